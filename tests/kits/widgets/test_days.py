"""Days: each visitor counts once a day, until midnight in the zone of the settings, whatever the clocks do there."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from keystead import KeyRing, Store
from keystead.kits.widgets import WidgetKeys
from keystead.kits.widgets.service import Widgets
from keystead.kits.widgets.service.days import Calendar, Day
from keystead.parts.webhook import WebhookSender
from tests.kits.sharing.visiting import Clock
from tests.kits.widgets.conftest import both
from tests.kits.widgets.opened import ME, TOKEN, URL, Kept, found_by_doctor, owner, service_on, settings, site, somebody

pytestmark = pytest.mark.usefixtures("quick_hash")

# Future years: a store has its own clock, and keys that end in the past expire immediately.
SPRING, AUTUMN = "2040-03-25", "2040-10-28"
DAYS = {
    # zone, a day, and how long it is
    ("UTC", "2040-06-15"): 24.0,
    ("Asia/Tokyo", "2040-06-15"): 24.0,
    ("Europe/Berlin", SPRING): 23.0,
    ("Europe/Berlin", AUTUMN): 25.0,
    ("America/New_York", "2040-03-11"): 23.0,
    ("America/New_York", "2040-11-04"): 25.0,
    ("America/St_Johns", "2040-03-11"): 23.0,
    ("Australia/Lord_Howe", "2040-10-07"): 23.5,
    ("Australia/Lord_Howe", "2040-04-01"): 24.5,
    ("America/Santiago", "2040-09-02"): 23.0,  # there is no midnight on that day: it begins at one
    ("Asia/Kathmandu", "2040-06-15"): 24.0,
    ("Pacific/Kiritimati", "2040-06-15"): 24.0,
}
each_day = pytest.mark.parametrize(("zone", "day"), DAYS)


def ms_of(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def begins(zone: str, day: date) -> int:
    """When a day begins: the first moment that has its date there."""
    low = ms_of(datetime.combine(day, datetime.min.time(), UTC) - timedelta(hours=16))
    high = low + 34 * 3_600_000
    while high - low > 1:
        middle = (low + high) // 2
        is_there = datetime.fromtimestamp(middle / 1000, UTC).astimezone(ZoneInfo(zone)).date() >= day
        low, high = (low, middle) if is_there else (middle, high)
    return high


@each_day
def test_a_day_ends_when_the_next_begins(zone: str, day: str) -> None:
    today = date.fromisoformat(day)
    start, end = begins(zone, today), begins(zone, today + timedelta(days=1))
    assert (end - start) / 3_600_000 == DAYS[zone, day]
    for moment in (start, start + 1, (start + end) // 2, end - 1000, end - 1):
        for calendar in (Calendar(zone), shared := Calendar(zone)):
            found = calendar.day(moment)
            assert (found.date, found.ends_ms) == (today, end)
    assert shared.day(end).date == today + timedelta(days=1)
    assert shared.day(end - 1).date == today  # also when the clock is set back
    assert shared.day(start - 1).date == today - timedelta(days=1)


@both
@pytest.mark.parametrize(("zone", "day"), [("UTC", "2040-06-15"), ("Europe/Berlin", SPRING), ("Europe/Berlin", AUTUMN)])
async def test_a_visitor_counts_once_until_midnight_and_again_after_it(
    store: Store, kept: Kept, zone: str, day: str
) -> None:
    clock = Clock()
    widgets = service_on(store, clock, zone=zone)
    today = date.fromisoformat(day)
    start, end = begins(zone, today), begins(zone, today + timedelta(days=1))
    clock.stand_at(start - 1)
    counter = (await widgets.counters.create(URL, TOKEN, visitor=ME)).id
    like = (await widgets.likes.create(URL, TOKEN, visitor=ME)).id
    numbers = []
    for moment in (start - 1, start, start + 1, (start + end) // 2, end - 1000, end - 1, end, end + 1):
        clock.stand_at(moment)
        seen = await widgets.counters.increment(counter, ME)
        numbers.append((seen.total, seen.today, seen.yesterday, seen.week, seen.duplicate))
        for key in await kept.keys():
            if ":visit:" in key:
                late = [await kept.ends_ms(key) - one for one in (start, end, begins(zone, today + timedelta(days=2)))]
                assert any(0 <= one <= 60_000 for one in late)
    assert numbers == [
        (1, 1, 0, 1, False),
        (2, 1, 1, 2, False),
        *[(2, 1, 1, 2, True)] * 4,
        (3, 1, 1, 3, False),
        (3, 1, 1, 3, True),
    ]
    # A like belongs to its day, too: it is taken back on the same day, and given again on the next.
    clock.stand_at(end - 1)
    assert (await widgets.likes.toggle(like, ME)).total == 1
    assert (await widgets.likes.get(like, ME)).user_liked is True
    clock.stand_at(end)
    assert (await widgets.likes.get(like, ME)).user_liked is False
    assert (await widgets.likes.toggle(like, ME)).total == 2
    assert (await widgets.likes.toggle(like, ME)).total == 1


@both
async def test_a_marker_expires_at_midnight_but_not_within_a_minute(store: Store, kept: Kept) -> None:
    """On a real store, with its own clock: a marker from the last second of a day in a future year."""
    clock = Clock()
    tomorrow = datetime.now(UTC).date() + timedelta(days=2)
    midnight = ms_of(datetime.combine(tomorrow, datetime.min.time(), UTC))
    for before_ms in (1, 999, 12 * 3_600_000):
        clock.stand_at(midnight - before_ms)
        widgets = service_on(store, clock)
        id = (await widgets.counters.create(f"{URL}/{before_ms}", TOKEN, visitor=ME)).id
        await widgets.counters.increment(id, ME)
        for key in await kept.keys():
            if key.startswith(f"counter:{id}:visit"):
                assert await kept.ends_ms(key) == max(midnight, midnight - before_ms + 60_000)


class Jumping(Clock):
    """A clock that stands still, and advances by one millisecond, once, after so many reads."""

    def __init__(self, stands_at: int) -> None:
        super().__init__()
        self.looks = 0
        self.jumps_after: int | None = None
        self._from = stands_at

    def __call__(self) -> int:
        self.looks += 1
        return self._from + (self.jumps_after is not None and self.looks > self.jumps_after)


@pytest.mark.parametrize("what", ["visit", "like"])
async def test_midnight_during_a_request_loses_no_count(memory: Store, what: str) -> None:
    """It counts once, on one day or the other, and the response agrees."""
    kept = Kept(memory)
    end = begins("Europe/Berlin", date.fromisoformat(AUTUMN) + timedelta(days=1))
    days = set()
    for after in range(40):
        await kept.empty()
        clock = Jumping(end - 1)
        widgets = service_on(memory, clock, zone="Europe/Berlin")
        if what == "visit":
            id = (await widgets.counters.create(URL, TOKEN, visitor=ME)).id
        else:
            id = (await widgets.likes.create(URL, TOKEN, visitor=ME)).id
        clock.looks, clock.jumps_after = 0, after
        if what == "visit":
            seen = await widgets.counters.increment(id, ME)
            [daily] = [key for key in await kept.keys() if ":daily:" in key]
            assert (seen.total, seen.duplicate, await kept.ask("GET", daily)) == (1, False, b"1")
            days.add(daily[-10:])
        else:
            assert (await widgets.likes.toggle(id, ME)).total == 1
        if clock.looks <= after:
            break
    assert 3 < after < 39
    assert days == ({"2040-10-28", "2040-10-29"} if what == "visit" else set())


@both
@pytest.mark.parametrize(("zone", "day"), [("Europe/Berlin", SPRING), ("Australia/Lord_Howe", "2040-04-01")])
async def test_week_and_month_are_correct_across_a_dst_change(store: Store, zone: str, day: str) -> None:
    clock = Clock()
    widgets = service_on(store, clock, zone=zone)
    first = date.fromisoformat(day) - timedelta(days=20)
    clock.stand_at(begins(zone, first))
    id = (await widgets.counters.create(URL, TOKEN, visitor=ME)).id
    expected: list[int] = []
    for number in range(35):
        today = first + timedelta(days=number)
        # In the first and in the last millisecond of the day.
        for place, moment in enumerate((begins(zone, today), begins(zone, today + timedelta(days=1)) - 1)):
            clock.stand_at(moment)
            await widgets.counters.increment(id, somebody(place))
            if number % 3 == 0:
                await widgets.counters.increment(id, somebody(2 + place))
        expected.insert(0, 4 if number % 3 == 0 else 2)
        for service in (widgets, service_on(store, clock, zone=zone)):  # whether it remembers the days before or not
            seen = await service.counters.get(id)
            assert (seen.today, seen.yesterday) == (expected[0], sum(expected[1:2]))
            assert (seen.week, seen.month, seen.total) == (sum(expected[:7]), sum(expected[:30]), sum(expected))


async def test_setting_the_total_keeps_the_daily_counts(memory: Store) -> None:
    clock = Clock()
    widgets = service_on(memory, clock)
    id = (await widgets.counters.create(URL, TOKEN, visitor=ME)).id
    await widgets.counters.increment(id, ME)
    clock.move("24h")
    await widgets.counters.increment(id, ME)
    seen = await widgets.counters.set(owner(), 1000, visitor=ME)
    assert (seen.total, seen.today, seen.yesterday, seen.week) == (1000, 1, 1, 2)
    assert (await widgets.counters.increment(id, somebody(1))).total == 1001


@both
async def test_the_doctor_finds_nothing_after_a_change_of_time_zone(store: Store) -> None:
    widgets = service_on(store, zone="Pacific/Kiritimati")
    id = (await widgets.counters.create(URL, TOKEN, visitor=ME)).id
    await widgets.counters.increment(id, ME)
    assert await found_by_doctor(store) == []


@both
async def test_a_counter_stops_at_the_largest_number(store: Store) -> None:
    widgets = service_on(store)
    id = (await widgets.counters.create(URL, TOKEN, visitor=ME)).id
    await widgets.counters.set(owner(), 999_999_998, visitor=ME)
    assert (await widgets.counters.increment(id, somebody(1))).total == 999_999_999
    full = await widgets.counters.increment(id, somebody(2))
    assert (full.total, full.today, full.duplicate) == (999_999_999, 1, False)
    like = (await widgets.likes.create(URL, TOKEN, visitor=ME)).id
    await widgets.likes.set(owner(), 999_999_999, visitor=ME)
    assert (await widgets.likes.toggle(like, ME)).total == 999_999_999
    assert (await widgets.likes.get(like, ME)).user_liked is False


@both
async def test_no_visitor_counts_twice_if_the_store_clock_is_ahead(store: Store) -> None:
    """To this process it is the last second of a day; to the store, whose clock is its own, the next one has begun."""
    clock = Clock()
    clock.stand_at(ms_of(datetime.now(UTC)) - 5_000)
    widgets = service_on(store, clock)
    widgets.counters._calendar = widgets.likes._calendar = Ending(clock() + 1000)
    id = (await widgets.counters.create(URL, TOKEN, visitor=ME)).id
    like = (await widgets.likes.create(URL, TOKEN, visitor=ME)).id
    totals = [(await widgets.counters.increment(id, ME)).total for _ in range(3)]
    assert totals == [1, 1, 1]
    assert [(await widgets.likes.toggle(like, ME)).total for _ in range(4)] == [1, 0, 1, 0]


async def test_no_visitor_counts_twice_after_seal_key_rotation(memory: Store) -> None:
    old, new = {"2026": b"o" * 32}, {"2027": b"n" * 32}
    first, second = (
        Widgets(WidgetKeys(memory, seal=KeyRing(keys)), settings(), site(Clock()), WebhookSender())
        for keys in (old, old | new)
    )
    id = (await first.counters.create(URL, TOKEN, visitor=ME)).id
    assert (await first.counters.increment(id, ME)).total == 1
    assert (await second.counters.increment(id, ME)).duplicate is True


class Ending(Calendar):
    """A calendar whose day ends at this moment."""

    def __init__(self, ends_ms: int) -> None:
        super().__init__("UTC")
        self._ends_ms = ends_ms

    def day(self, now_ms: int) -> Day:
        return Day(date(2026, 1, 1), self._ends_ms)


@both
async def test_visitors_of_earlier_days_are_pruned_once_a_day(store: Store, clock: Clock) -> None:
    """A page that is visited around midnight has one set for ever, which would name all who ever came."""
    widgets = service_on(store, clock)
    id = (await widgets.counters.create(URL, TOKEN, visitor=ME)).id
    visitors = widgets.keys.counter_visitors(id)
    await widgets.counters.increment(id, somebody(0))
    await visitors.add("00" * 8, "11" * 8, end_of_day=clock() + 3_600_000)  # whose marks have ended
    for one in range(1, 15):
        await widgets.counters.increment(id, somebody(one))
    assert await visitors.count() == 17
    await widgets.counters.increment(id, somebody(15))
    assert await visitors.count() == 16
