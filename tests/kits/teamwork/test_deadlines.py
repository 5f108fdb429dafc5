"""Deadlines: one notice per item, day and mark, from 09:00 in the team's zone, even if jobs run twice or late."""

import asyncio
from datetime import UTC, date, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keystead import Store, connect
from keystead.errors import BadValue
from keystead.kits.teamwork.keys import TeamworkKeys
from keystead.kits.teamwork.models import Deadline
from keystead.kits.teamwork.service.deadlines import Deadlines, FoundItem
from keystead.kits.teamwork.service.events import DeadlineNear
from tests.every_store import EVERY, mariadb_server, on, postgres_server, redis_server, store, stores, valkey_cluster
from tests.parts.sessions.conftest import Clock

__all__ = ["mariadb_server", "postgres_server", "redis_server", "store", "stores", "valkey_cluster"]

everywhere = on(*EVERY, "cluster")
here = on("memory")
WR, TASK = Deadline("WORK_REQUEST", "101"), Deadline("TECH_TASK", "21")
SEOUL = "Asia/Seoul"


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


class Office:
    """Deadlines and their notices, deduplicated by event id."""

    def __init__(self, store: Store, now: str = "2026-02-20T00:00", **options: Any) -> None:
        self.clock = Clock(at(now))
        self.sent: dict[tuple[str, int | None], DeadlineNear] = {}
        self.keys = TeamworkKeys(store, now_ms=self.clock)
        self.deadlines = Deadlines(self.keys, self._tell, **options)

    async def _tell(self, team: int, event: DeadlineNear) -> None:
        self.sent.setdefault((event.id, event.item.assignee_id), event)

    async def run(self, now: str) -> list[str]:
        """The new notices at a moment: `WORK_REQUEST:101 in 3`."""
        before = set(self.sent)
        self.clock.now_ms = at(now)
        await self.deadlines.notify_due()
        new = [event for key, event in self.sent.items() if key not in before]
        return [f"{event.item.ref_type}:{event.item.ref_id} in {event.days}" for event in new]

    async def register(self, ref: Deadline, due: str, team: int = 3, assignee: int | None = 42) -> bool:
        return await self.deadlines.register(team, ref, date.fromisoformat(due), title="Print", assignee=assignee)


@everywhere
async def test_deadlines_are_registered_moved_completed_and_listed_by_range(store: Store) -> None:
    office = Office(store)
    assert await office.register(WR, "2026-03-03")
    assert await office.register(TASK, "2026-03-04")
    assert not await office.register(WR, "2026-03-03")
    assert await office.deadlines.move(3, TASK, date(2026, 3, 1))
    listed = await office.deadlines.between(3, date(2026, 3, 1), date(2026, 3, 3))
    assert [(one.ref, one.due) for one in listed] == [(TASK, date(2026, 3, 1)), (WR, date(2026, 3, 3))]
    assert listed[0].item is not None
    assert (listed[0].item.title, listed[0].item.assignee_id) == ("Print", 42)
    assert await office.deadlines.complete(3, TASK)
    assert not await office.deadlines.complete(3, TASK)
    assert not await office.deadlines.move(3, TASK, date(2026, 3, 1))
    assert [one.ref for one in await office.deadlines.between(3, date(1970, 1, 1), date(9999, 12, 31))] == [WR]
    assert await office.deadlines.between(4, date(1970, 1, 1), date(9999, 12, 31)) == []


@on("redis")
async def test_deadlines_are_stored_as_in_the_document(store: Store, redis_server: Any) -> None:
    office = Office(store)
    await office.register(WR, "2026-03-03")
    assert redis_server.ask("ZRANGE", "deadlines:team:3", "0", "-1", "WITHSCORES") == [
        [b"WORK_REQUEST:101", 1772496000.0]
    ]
    assert redis_server.ask("TTL", "deadlines:team:3") == -1


@here
async def test_any_id_round_trips(store: Store) -> None:
    office = Office(store)
    names = ["a:b", "::", "%3A", "é 😀", "x" * 200, "1", "01"]
    for name in names:
        await office.register(Deadline("DEFECT", name), "2026-03-03")
    listed = await office.deadlines.between(3, date(2026, 3, 3), date(2026, 3, 3))
    assert {one.ref.ref_id for one in listed} == set(names)
    assert len(await office.run("2026-03-01T09:00")) == len(names)


@everywhere
async def test_an_item_is_notified_three_days_before_and_when_overdue_and_never_again(store: Store) -> None:
    office = Office(store)
    await office.register(WR, "2026-03-03")
    assert await office.run("2026-02-28T08:59") == []
    assert await office.run("2026-02-28T09:00") == ["WORK_REQUEST:101 in 3"]
    for day in ("2026-02-28T09:15", "2026-03-01T09:00", "2026-03-02T09:00", "2026-03-03T09:00", "2026-03-04T08:45"):
        assert await office.run(day) == []
    assert await office.run("2026-03-04T09:00") == ["WORK_REQUEST:101 in -1"]
    assert await office.run("2026-03-09T09:00") == []


@here
async def test_a_late_job_notifies_only_the_nearest_mark(store: Store) -> None:
    office = Office(store, days=(7, 3, 1))
    await office.register(WR, "2026-03-10")
    assert await office.run("2026-03-03T09:00") == ["WORK_REQUEST:101 in 7"]
    assert await office.run("2026-03-09T12:00") == ["WORK_REQUEST:101 in 1"]
    assert await office.run("2026-03-10T09:00") == []


@here
async def test_a_new_near_item_is_notified_at_the_next_run_from_nine_on(store: Store) -> None:
    office = Office(store)
    await office.register(WR, "2026-03-03")
    assert await office.run("2026-03-03T08:59") == []  # no notices at night
    assert await office.run("2026-03-03T09:14") == ["WORK_REQUEST:101 in 0"]


@here
async def test_today_is_the_calendar_day_in_the_teams_zone(store: Store) -> None:
    office = Office(store, "2026-03-02T15:00", zone=SEOUL)  # midnight in Seoul
    rules = await office.deadlines.rules_of(3)
    assert office.deadlines.today_in(rules.zone) == date(2026, 3, 3)
    office.clock.pass_ms(-1)
    assert office.deadlines.today_in(rules.zone) == date(2026, 3, 2)


@on("memory", "redis")
async def test_each_mark_of_a_team_is_notified_once_with_the_right_number_of_days(store: Store) -> None:
    office = Office(store, days=(7, 3))
    await office.register(WR, "2026-03-10")
    await office.register(TASK, "2026-03-10", team=4)
    await office.deadlines.set_rules(4, days=[5])
    assert await office.run("2026-03-03T09:00") == ["WORK_REQUEST:101 in 7"]
    assert await office.run("2026-03-05T09:00") == ["TECH_TASK:21 in 5"]
    assert await office.run("2026-03-07T09:00") == ["WORK_REQUEST:101 in 3"]
    assert (await office.deadlines.rules_of(4)).days == (5,)
    await office.deadlines.set_rules(4, zone=SEOUL)  # the days stay
    assert (str((await office.deadlines.rules_of(4)).zone), (await office.deadlines.rules_of(4)).days) == (SEOUL, (5,))


@on("memory", "redis")
async def test_a_change_of_zone_repeats_no_mark_and_sends_no_farther_one(store: Store) -> None:
    office = Office(store, zone="Pacific/Kiritimati", days=(7, 3))  # 14 hours ahead
    await office.register(WR, "2026-03-10")
    assert await office.run("2026-03-06T20:00") == ["WORK_REQUEST:101 in 3"]  # there it is the 7th; it was new
    await office.deadlines.set_rules(3, zone="Pacific/Honolulu")  # where it is the 6th, four days before
    assert await office.run("2026-03-06T20:15") == []
    for day in ("2026-03-07T20:00", "2026-03-08T20:00", "2026-03-10T20:00"):
        assert await office.run(day) == []
    assert await office.run("2026-03-11T19:00") == ["WORK_REQUEST:101 in -1"]
    await office.deadlines.set_rules(3, zone="Pacific/Kiritimati")
    assert await office.run("2026-03-12T20:00") == []


ZADD = ("ZADD", "deadlines:team:3", 1772496000, "WORK_REQUEST:101")  # as the document writes it; 2026-03-03


class Adopted(Office):
    """An office with a `find` function for deadlines from other programs."""

    def __init__(self, store: Store, **options: Any) -> None:
        self.users = [42]
        super().__init__(store, find=self._find, **options)

    async def _find(self, team: int, ref: Deadline) -> FoundItem:
        return FoundItem(self.users if team == 3 else [], "Print")


@on("memory", "sqlite", "redis")
async def test_a_deadline_from_another_program_is_notified_like_any_other(store: Store) -> None:
    office = Adopted(store, days=(7, 3))
    await store.run([ZADD])
    assert await office.run("2026-02-24T08:59") == []
    assert await office.run("2026-02-24T09:00") == ["WORK_REQUEST:101 in 7"]
    assert await office.run("2026-02-24T09:15") == []
    assert await office.run("2026-02-28T09:00") == ["WORK_REQUEST:101 in 3"]
    office.users = [42, 7]  # one more leads the team
    assert await office.run("2026-02-28T09:15") == ["WORK_REQUEST:101 in 3"]
    assert {assignee for _, assignee in office.sent} == {42, 7}
    assert await office.run("2026-03-04T09:00") == ["WORK_REQUEST:101 in -1"] * 2
    other = Adopted(store, days=(7, 3))
    other.users = office.users
    assert await other.run("2026-03-04T09:15") == []  # another process has the record
    # The other program moves it, and removes it when it is closed: nothing is left of it.
    await store.run([("ZADD", "deadlines:team:3", 1772496000 + 20 * 86400, "WORK_REQUEST:101")])
    assert await office.run("2026-03-20T09:00") == ["WORK_REQUEST:101 in 3"] * 2
    await store.run([("ZREM", "deadlines:team:3", "WORK_REQUEST:101")])
    assert await office.run("2026-03-20T09:15") == []
    assert await office.keys.due_found(3).count() == 0


@here
async def test_an_invalid_deadline_from_another_program_blocks_no_other(store: Store) -> None:
    office = Adopted(store)
    await store.run(
        [
            ZADD,
            ("ZADD", "deadlines:team:3", 1772496000, "small:1"),
            ("ZADD", "deadlines:team:3", 1772496000, "DEFECT:" + "x" * 300),
            ("ZADD", "deadlines:team:99999999999999999999", 1772496000, "DEFECT:1"),
            ("ZADD", "deadlines:team:0", 1772496000, "DEFECT:1"),
        ]
    )
    assert await office.run("2026-03-01T09:00") == ["WORK_REQUEST:101 in 2"]
    assert await office.run("2026-03-01T09:15") == []


@on("memory", "redis")
async def test_a_team_known_only_to_another_program_is_found_within_an_hour(store: Store) -> None:
    office = Adopted(store)
    assert await office.run("2026-03-01T09:00") == []
    await store.run([ZADD])
    assert await office.run("2026-03-01T09:45") == []  # it has scanned at 09:00
    assert await office.run("2026-03-01T10:00") == ["WORK_REQUEST:101 in 2"]
    assert await office.keys.due_teams().members() == {3}


@here
async def test_concurrent_jobs_notify_once(store: Store) -> None:
    office = Office(store)
    for number in range(30):
        await office.register(Deadline("DEFECT", str(number)), "2026-03-03", team=number % 3 + 1)
    office.clock.now_ms = at("2026-02-28T09:00")
    await asyncio.gather(*(office.deadlines.notify_due() for _ in range(3)))
    assert len(office.sent) == 30


@here
async def test_notices_start_at_nine_in_the_teams_zone(store: Store) -> None:
    office = Office(store, zone=SEOUL)
    await office.register(WR, "2026-03-03")
    await office.register(TASK, "2026-03-03", team=4)
    await office.deadlines.set_rules(4, zone="America/Los_Angeles")
    assert await office.run("2026-02-27T23:59") == []
    assert await office.run("2026-02-28T00:00") == ["WORK_REQUEST:101 in 3"]  # 09:00 in Seoul
    assert await office.run("2026-02-28T16:59") == []
    assert await office.run("2026-02-28T17:00") == ["TECH_TASK:21 in 3"]  # 09:00 in Los Angeles
    with pytest.raises(BadValue, match="Europe/Berlin"):
        await office.deadlines.set_rules(4, zone="Mars/Base")


@here
async def test_a_change_of_zone_neither_repeats_nor_skips_a_notice(store: Store) -> None:
    office = Office(store, zone=SEOUL)
    await office.register(WR, "2026-03-03")
    await office.register(TASK, "2026-03-04")
    assert await office.run("2026-02-28T00:00") == ["WORK_REQUEST:101 in 3"]
    await office.deadlines.set_rules(3, zone="Pacific/Honolulu")  # where it is the day before
    assert await office.run("2026-02-28T19:00") == []
    await office.deadlines.set_rules(3, zone="Pacific/Kiritimati")  # and there the day after
    assert await office.run("2026-02-28T20:00") == ["TECH_TASK:21 in 3"]


@here
async def test_a_moved_item_is_notified_for_its_new_day(store: Store) -> None:
    office = Office(store)
    await office.register(WR, "2026-03-03")
    assert await office.run("2026-02-28T09:00") == ["WORK_REQUEST:101 in 3"]
    await office.deadlines.move(3, WR, date(2026, 3, 5))
    assert await office.run("2026-03-01T09:00") == []
    assert await office.run("2026-03-02T09:00") == ["WORK_REQUEST:101 in 3"]
    await office.deadlines.move(3, WR, date(2026, 3, 3))  # and back to a day with a notice
    assert await office.run("2026-03-02T09:15") == []


@here
async def test_an_item_moved_while_the_job_runs_is_notified_for_its_current_day(store: Store) -> None:
    office = Office(store)
    await office.register(WR, "2026-03-03")
    notify = office.deadlines._notify

    async def moved_meanwhile(team: int, event: DeadlineNear) -> None:
        await office.deadlines.move(3, WR, date(2026, 3, 9))
        await notify(team, event)

    office.deadlines._notify = moved_meanwhile
    assert await office.run("2026-02-28T09:00") == ["WORK_REQUEST:101 in 3"]
    office.deadlines._notify = notify
    assert await office.run("2026-03-05T09:00") == []
    assert await office.run("2026-03-06T09:00") == ["WORK_REQUEST:101 in 3"]


@here
async def test_a_new_assignee_is_notified_and_an_unassigned_item_once_it_is_assigned(store: Store) -> None:
    office = Office(store)
    await office.register(WR, "2026-03-03", assignee=None)
    assert await office.run("2026-02-28T09:00") == []
    await office.register(WR, "2026-03-03", assignee=7)
    assert await office.run("2026-02-28T09:15") == ["WORK_REQUEST:101 in 3"]
    await office.register(WR, "2026-03-03", assignee=8)
    assert await office.run("2026-02-28T09:30") == ["WORK_REQUEST:101 in 3"]
    await office.register(WR, "2026-03-03", assignee=None)
    await office.register(WR, "2026-03-03", assignee=7)
    assert await office.run("2026-02-28T09:45") == []
    assert {assignee for _, assignee in office.sent} == {7, 8}


@pytest.mark.parametrize(
    ("zone", "due", "before", "morning"),
    [
        ("Europe/Berlin", "2026-04-01", "2026-03-29T06:59", "2026-03-29T07:00"),  # clocks go forward that night
        ("Europe/Berlin", "2026-10-28", "2026-10-25T07:59", "2026-10-25T08:00"),  # clocks go back that night
        ("Australia/Lord_Howe", "2026-04-08", "2026-04-04T22:29", "2026-04-04T22:30"),  # by half an hour
        ("America/Havana", "2026-03-11", "2026-03-08T12:59", "2026-03-08T13:00"),  # at midnight
        ("Asia/Kathmandu", "2028-03-01", "2028-02-27T03:14", "2028-02-27T03:15"),  # over the 29th of February
        ("Asia/Seoul", "2027-01-01", "2026-12-28T23:59", "2026-12-29T00:00"),  # over the end of a year
    ],
)
async def test_nine_in_the_morning_on_days_of_clock_changes_and_ends_of_months(
    zone: str, due: str, before: str, morning: str
) -> None:
    async with connect("memory://") as opened:
        office = Office(opened, zone=zone)
        await office.register(WR, due)
        assert await office.run(before) == []
        assert await office.run(morning) == ["WORK_REQUEST:101 in 3"]
        assert await office.run(morning) == []


@given(
    looks=st.lists(st.integers(min_value=0, max_value=14 * 96), min_size=1, max_size=12),
    zones=st.lists(
        st.sampled_from(["UTC", SEOUL, "America/New_York", "Asia/Kathmandu", "Pacific/Kiritimati", "Pacific/Niue"]),
        min_size=1,
        max_size=4,
    ),
)
@settings(max_examples=60, deadline=None)
def test_at_any_run_times_and_zones_each_mark_is_notified_once_with_the_right_number(
    looks: list[int], zones: list[str]
) -> None:
    due = date(2026, 3, 10)

    async def play() -> None:
        async with connect("memory://") as opened:
            office = Office(opened, "2026-03-01T00:00", days=(7, 3))
            await office.register(WR, due.isoformat())
            start = at("2026-03-01T00:00")
            is_reached = False
            for number, look in enumerate(sorted(looks)):
                zone = zones[number % len(zones)]
                await office.deadlines.set_rules(3, zone=zone)
                office.clock.now_ms = start + look * 15 * 60_000
                local = datetime.fromtimestamp(office.clock.now_ms / 1000, ZoneInfo(zone))
                before = len(office.sent)
                await office.deadlines.notify_due()
                left = (due - local.date()).days
                is_reached = is_reached or (local.hour >= 9 and left <= 7)
                assert [one.days for one in list(office.sent.values())[before:]] in ([], [left])
            ids = [event_id for event_id, _ in office.sent]
            marks = [event_id.rpartition(":")[2] for event_id in ids]
            assert marks == [mark for mark in ("D-7", "D-3", "overdue") if mark in marks]  # none twice, none too late
            assert bool(ids) == is_reached

    asyncio.run(play())


@here
async def test_invalid_days_and_dates_are_refused(store: Store) -> None:
    for wrong in ((), (-1,), (400,), ("3",)):
        with pytest.raises(BadValue):
            Office(store, days=wrong)
    with pytest.raises(BadValue, match="from 1970"):
        await Office(store).deadlines.register(3, WR, date(1960, 1, 1), title="")


@on("memory", "redis")
async def test_unreadable_teams_and_items_block_no_other(store: Store) -> None:
    office = Office(store)
    for team in (2, 3, 4):
        await office.register(WR, "2026-02-22", team=team)
    await office.register(TASK, "2026-02-22", team=3)
    keys = office.keys
    due, item, teams = keys.deadlines(2).key, keys.due_item(3, *WR).key, keys.due_teams().key
    await store.run([("DEL", due), ("SET", due, "x"), ("DEL", item), ("RPUSH", item, "x")])
    await store.run([("SADD", teams, "x", b"\xff")])
    told = await office.run("2026-02-20T12:00")
    assert sorted(told) == ["TECH_TASK:21 in 2", "WORK_REQUEST:101 in 2"]
