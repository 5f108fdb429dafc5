"""Counters: each visitor counts once a day."""

from __future__ import annotations

import datetime as dt
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

from keystead.errors import StoreError
from keystead.kits.widgets.models import CounterRecord
from keystead.kits.widgets.service.checks import LARGEST, check_id, check_number
from keystead.kits.widgets.service.days import Day, iso
from keystead.kits.widgets.service.outcomes import CounterData, Created, Owner, Visitor
from keystead.kits.widgets.service.records import CACHE_MAX, Guards, ServiceContext, tries
from keystead.kits.widgets.service.services import UNSET
from keystead.kits.widgets.service.totals import TotalsService
from keystead.schema import Bound, Done, Operation, Steps, procedure
from keystead.schema.in_one_turn import in_one_turn
from keystead.schema.key import Key
from keystead.schema.kinds import CounterKey, SetKey, ValueKey
from keystead.schema.times import moment

COUNTER_TYPES: Final = ("total", "today", "yesterday", "week", "month")
_WEEK: Final = 7
_MONTH: Final = 30  # days, including today

_PRUNE_AT: Final = 16  # the visit of a day that removes the visitors of earlier days from the set
_SETTLING_MS: Final = 60_000  # after midnight, when visits of the day before may still be counted


class Counters(TotalsService[CounterRecord]):
    name = "counter"
    word = "counter"
    record_type = CounterRecord

    def __init__(self, context: ServiceContext) -> None:
        super().__init__(context)
        self._past_cache: OrderedDict[str, _CachedPast] = OrderedDict()
        self._keys_of_day = lru_cache(CACHE_MAX)(self._make_keys_of_day)

    async def create(
        self, url: Any, token: Any, *, visitor: Visitor, id: Any = None, webhook_url: Any = None
    ) -> Created:
        """Create the counter of a page, or return the existing one if the token is its owner's."""
        return await self._create(url, token, visitor, id=id, webhook_url=webhook_url, first=self._zero_total)

    async def increment(self, id: Any, visitor: Visitor) -> CounterData:
        """Count a visit, unless this visitor was already counted today. One round trip if the record is cached.

        A counter with a webhook takes two, because the event contains the total before and after.
        """
        if (await self._load_for_visitor(id, "write", visitor)).value.webhook is None:
            return await self._increment(id, visitor)
        async with self._lock(id):
            return await self._increment(id, visitor)

    async def _increment(self, id: str, visitor: Visitor) -> CounterData:
        limit: str | None = "write"
        async for _ in tries(self.word):
            seen = await self._load_for_visitor(id, limit, visitor)
            before = None if seen.value.webhook is None else await self.keys.counter_total(id).get()
            now_ms = self.site.now_ms()
            day = self._calendar.day(now_ms)
            step = partial(self._visit, record=seen.value, visitor=visitor, now_ms=now_ms, day=day, before=before)
            visit, cached = self._run_guarded(seen, limit, visitor, step), self._cached_past(id, day)
            if cached is not None:
                done, past = await visit, cached
            else:
                # Sent together, in one round trip.
                done, past = await in_one_turn(visit, self._load_past(id, day))
            limit = None  # counted
            if done.stopped == "counter_total" and (before is None or before >= LARGEST):
                return (await self.get(id)).model_copy(update={"duplicate": False})
            if done or done.stopped == "counter_visit":
                return await self._finish_visit(seen.value, done, past, now_ms)
        raise AssertionError  # pragma: no cover - the last of the tries raises

    async def _finish_visit(
        self, record: CounterRecord, done: Done[tuple[int, int]], past: PastCounts, now_ms: int
    ) -> CounterData:
        """The counts after a visit, which counted (`done`) or did not."""
        past = await self._reload_if_recreated(record, past)
        self._cache_past(record, past, now_ms)
        now = _current_counts([*done.value, moment(now_ms)] if done else done.before[-1])
        self.site.count("widgets", "visit", "counted" if done else "known")
        if done and now.today == _PRUNE_AT:
            with suppress(StoreError):  # the visit is counted, and the next day prunes again
                await self.keys.counter_visitors(record.id).live()
        return _data(record, now, past, duplicate=not done)

    @procedure
    def _visit(
        self, guards: Guards, record: CounterRecord, visitor: Visitor, now_ms: int, day: Day, before: int | None
    ) -> Steps[tuple[int, int]]:
        """Count a visit. If the marker of this visitor exists, the step stops after it has read the counts."""
        keys, id, at = self.keys, record.id, moment(now_ms)
        total, today, last = self._keys_of_day(id, day.date)
        user_hash, ends_ms = self._visitor_hash(id, visitor, str(day.date)), day.marker_ends_ms(now_ms)
        event: list[Operation[Any]] = []
        if before is not None and before < LARGEST:
            counts = {"previousCount": before, "newCount": before + 1, "incrementBy": 1}
            event = self._hooks.make_event(self.name, record, "counter.increment", counts)
        counted, counted_today = total.increment(), today.increment()
        return Steps(
            *guards,
            self._equals(total, before) if event and before is not None else total.at_most(LARGEST - 1),
            self._read_current(id, day),
            keys.counter_visit(id, user_hash).alone.add(at, end_of_day=ends_ms).required(),
            keys.counter_visitors(id).add(user_hash, end_of_day=ends_ms),
            counted,
            counted_today,
            last.set(at),
            *event,
        ).giving(counted, counted_today)

    def _make_keys_of_day(self, id: str, date: dt.date) -> tuple[CounterKey, CounterKey, ValueKey[datetime]]:
        keys = self.keys
        return keys.counter_total(id), keys.counter_daily(id, date), keys.counter_last(id)

    def _read_current(self, id: str, day: Day) -> Operation[list[Any]]:
        return self.keys.counter_total.get_all(*self._keys_of_day(id, day.date))

    async def get(self, id: Any, visitor: Visitor | None = None) -> CounterData:
        """The counts. One round trip."""
        check_id(id)
        now_ms = self.site.now_ms()
        day = self._calendar.day(now_ms)
        read, cached = self._read(id, visitor, lambda: [self._read_current(id, day)]), self._cached_past(id, day)
        if cached is not None:
            (record, [current]), past = await read, cached
        else:
            (record, [current]), past = await in_one_turn(read, self._load_past(id, day))
        past = await self._reload_if_recreated(record, past)
        self._cache_past(record, past, now_ms)
        return _data(record, _current_counts(current), past)

    async def set(self, owner: Owner, total: Any, *, visitor: Visitor) -> CounterData:
        """Set the total. The daily counts stay."""
        return await self.update_settings(owner, visitor=visitor, total=total)

    async def update_settings(
        self, owner: Owner, *, visitor: Visitor, webhook_url: Any = UNSET, total: Any = UNSET
    ) -> CounterData:
        """Change the given settings in one step."""
        number = None if total is UNSET else check_number("total", total)
        change = self._hook_change(webhook_url)
        data = await self.get(await self._update(owner, visitor, number, change))
        return data.model_copy(update={"webhook_secret": change.secret})

    async def _upgrade_steps(self, record: CounterRecord) -> list[Operation[Any]]:
        return self._upgrade_totals(record.id, record.total_count, record.last_visit)

    def _cached_past(self, id: str, day: Day) -> PastCounts | None:
        cached, record = self._past_cache.get(id), self._cache.get(id)
        return cached.past if cached is not None and record is not None and cached.fits(record.value, day) else None

    async def _load_past(self, id: str, day: Day) -> PastCounts:
        """The counts of the days before, which do not change any more. A process loads them once a day."""
        cached = self._cached_past(id, day)
        if cached is not None:
            return cached
        record = self._cache.get(id)
        dates = [day.date - timedelta(days=back) for back in range(1, _MONTH)]
        days = await self._read_counters(self.keys.counter_daily, [(id, date) for date in dates])
        created = None if record is None else record.value.created
        return PastCounts(days[0], sum(days[: _WEEK - 1]), sum(days), day, created)

    async def _reload_if_recreated(self, record: CounterRecord, past: PastCounts) -> PastCounts:
        """The past counts, loaded again if the counter was deleted and created again meanwhile."""
        if past.created is None or past.created == record.created:
            return past
        self._past_cache.pop(record.id, None)
        return (await self._load_past(record.id, past.day))._replace(created=record.created)

    def _cache_past(self, record: CounterRecord, past: PastCounts, now_ms: int) -> None:
        """Not in the first minute of a day, when visits of the day before may still be counted."""
        if self._calendar.day(now_ms - _SETTLING_MS) == past.day:
            self._past_cache[record.id] = _CachedPast(record, past)
            if len(self._past_cache) > CACHE_MAX:
                self._past_cache.popitem(last=False)

    def _owned_keys(self, record: CounterRecord) -> list[Key]:
        keys, id = self.keys, record.id
        days = [keys.counter_daily(id, day) for day in _list_days(record, self.site.now_ms())]
        return [keys.counter_total(id), keys.counter_last(id), keys.counter_visitors(id), *days]

    def _markers(self, id: str) -> tuple[SetKey[str], Bound[ValueKey[Any]]]:
        return self.keys.counter_visitors(id), self.keys.counter_visit


class CurrentCounts(NamedTuple):
    """The counts that a visit changes, and the time of the last visit."""

    total: int
    today: int
    last: datetime | None


class PastCounts(NamedTuple):
    """The counts before `day`: of the day before, and of the week and the month that end with `day`."""

    yesterday: int
    week: int
    month: int
    day: Day
    created: datetime | None  # identifies the counter that was read, if its record was cached


class _CachedPast(NamedTuple):
    record: CounterRecord
    past: PastCounts

    def fits(self, record: CounterRecord, day: Day) -> bool:
        return self.past.day == day and self.record.created == record.created


def _current_counts(found: Sequence[Any]) -> CurrentCounts:
    total, today, last = found
    return CurrentCounts(total or 0, today or 0, last)


def _data(record: CounterRecord, now: CurrentCounts, past: PastCounts, *, duplicate: bool | None = None) -> CounterData:
    return CounterData(
        id=record.id,
        url=record.url,
        total=now.total,
        today=now.today,
        yesterday=past.yesterday,
        week=past.week + now.today,
        month=past.month + now.today,
        last_visit=iso(now.last),
        duplicate=duplicate,
    )


def _list_days(record: CounterRecord, now_ms: int) -> Iterable[dt.date]:
    """All days since the counter was created, and one before and after: the time zone setting may have changed."""
    day, last = record.created.date() - timedelta(days=1), moment(now_ms).date() + timedelta(days=1)
    while day <= last:
        yield day
        day += timedelta(days=1)
