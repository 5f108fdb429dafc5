"""Counters: each visitor counts once a day."""

from __future__ import annotations

import datetime as dt
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cached_property, lru_cache, partial
from typing import Any, Final, NamedTuple, TypeAlias

from keystead.errors import StoreError, Unreadable
from keystead.kits.widgets.models import CounterRecord
from keystead.kits.widgets.service.checks import LARGEST, check_id, check_number
from keystead.kits.widgets.service.days import Day, iso
from keystead.kits.widgets.service.outcomes import CounterData, Created, Owner, Visitor
from keystead.kits.widgets.service.records import CACHE_MAX, Guards, Operations, ServiceContext, remember, tries
from keystead.kits.widgets.service.services import UNSET
from keystead.kits.widgets.service.totals import TotalsService
from keystead.parts.limit import Counting
from keystead.schema import Bound, Done, Operation, Steps, procedure
from keystead.schema.in_one_turn import in_one_turn
from keystead.schema.key import Key
from keystead.schema.kinds import CounterKey, Seen, SetKey, ValueKey
from keystead.schema.kinds.value import stored_bytes
from keystead.schema.prepared_steps import Prepared
from keystead.schema.slots import has_slots
from keystead.schema.times import moment

_KeysOfDay: TypeAlias = tuple[CounterKey, CounterKey, ValueKey[datetime]]  # of the total, the day and the last visit

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
        # Markers of visitors that were counted today, with the stored record of the counter.
        self._known: OrderedDict[bytes, bytes] = OrderedDict()
        self._keys_of_day = lru_cache(CACHE_MAX)(self._make_keys_of_day)
        self._names_of_day = lru_cache(CACHE_MAX)(self._make_names_of_day)

    async def create(
        self, url: Any, token: Any, *, visitor: Visitor, id: Any = None, webhook_url: Any = None
    ) -> Created:
        """Create the counter of a page, or return the existing one if the token is its owner's."""
        return await self._create(url, token, visitor, id=id, webhook_url=webhook_url, first=self._zero_total)

    async def increment(self, id: Any, visitor: Visitor) -> CounterData:
        """Count a visit, unless this visitor was already counted today. One round trip if the record is cached.

        A counter with a webhook takes two, because the event contains the total before and after.
        """
        seen = self._cached(id) or await self._load_for_visitor(id, "write", visitor)
        if seen.value.webhook is None:
            return await self._increment(id, visitor)
        async with self._lock(id):
            return await self._increment(id, visitor)

    async def _increment(self, id: str, visitor: Visitor) -> CounterData:
        limit: str | None = "write"
        async for _ in tries(self.word):
            seen = self._cached(id) or await self._load_for_visitor(id, limit, visitor)
            before = None if seen.value.webhook is None else await self.keys.counter_total(id).get()
            now_ms = self.site.now_ms()
            day = self._calendar.day(now_ms)
            counting = None if limit is None else self._limit.counting(limit, visitor.address)
            if counting is not None and seen.value.webhook is None and self._prepared_visit is not None:
                visit = self._run_prepared(self._prepared_visit, counting, seen, visitor, now_ms, day)
            else:
                step = partial(self._visit, record=seen.value, visitor=visitor, now_ms=now_ms, day=day, before=before)
                visit = self._run_guarded(seen, limit, visitor, step)
            cached = self._cached_past(id, day)
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
        counts = self._keys_of_day(id, day.date)
        user_hash, ends_ms = self._visitor_hash(id, visitor, str(day.date)), day.marker_ends_ms(now_ms)
        event: list[Operation[Any]] = []
        if before is not None and before < LARGEST:
            change = {"previousCount": before, "newCount": before + 1, "incrementBy": 1}
            event = self._hooks.make_event(self.name, record, "counter.increment", change)
            guards = [*guards, self._equals(counts[0], before)]
        marker, visitors = keys.counter_visit(id, user_hash).alone, keys.counter_visitors(id)
        return self._visit_steps(guards, counts, marker, visitors, user_hash, at, ends_ms, event)

    def _visit_steps(
        self,
        guards: Guards,
        counts: _KeysOfDay,
        marker: ValueKey[datetime],
        visitors: SetKey[str],
        user_hash: str,
        at: datetime,
        ends_ms: int,
        rest: Operations = (),
    ) -> Steps[tuple[int, int]]:
        total, today, last = counts
        counted, counted_today = total.increment(), today.increment()
        return Steps(
            *guards,
            total.at_most(LARGEST - 1),
            self.keys.counter_total.get_all(*counts),
            marker.add(at, end_of_day=ends_ms).required(),
            visitors.add(user_hash, end_of_day=ends_ms),
            counted,
            counted_today,
            last.set(at),
            *rest,
        ).giving(counted, counted_today)

    @cached_property
    def _prepared_visit(self) -> Prepared[tuple[int, int]] | None:
        """The usual visit, of a counter without a webhook, with its limit; None if the store needs several steps."""
        keys, limit = self.keys, self._limit.limits["write"]
        if not self._counts_in_step("write"):
            return None
        now_ms = self.site.now_ms()
        at, ends_ms, seen = moment(now_ms), now_ms + _SETTLING_MS, Seen(None, b"\0record\0")

        def make(requests: Any, record: Any, total: Any, today: Any, last: Any, *given: Any) -> Steps[tuple[int, int]]:
            marker, visitors, user_hash, at, ends_ms, seen = given
            guards, counted = (requests.at_most(limit - 1), record.holds(seen)), (requests.increment(),)
            return self._visit_steps(guards, (total, today, last), marker, visitors, user_hash, at, ends_ms, counted)

        return Prepared(
            [
                *(keys.requests, self._records, keys.counter_total, keys.counter_daily, keys.counter_last),
                *(keys.counter_visit.alone, keys.counter_visitors),
            ],
            make,
            texts=1,
            values=[(at, _encode_time(at)), (ends_ms, ends_ms), (seen, seen.stored)],
            name="Counters._visit",
        )

    async def _run_prepared(
        self,
        prepared: Prepared[tuple[int, int]],
        counting: Counting,
        seen: Seen[CounterRecord],
        visitor: Visitor,
        now_ms: int,
        day: Day,
    ) -> Done[tuple[int, int]]:
        """As `_run_guarded` with `_visit`, in one round trip.

        A visitor that this process knows is only counted against the limit, with the counts read in the same step.
        """
        id, requests = seen.value.id, counting.counter.key.encode()
        user_hash = self._visitor_hash(id, visitor, str(day.date))
        marker = self.keys.counter_visit.render(id, user_hash).encode()
        *names, visitors = self._names_of_day(id, day.date)
        if self._known.get(marker) == seen.stored and self._prepared_read is not None:
            number, stored, counts = (await self._prepared_read(requests, *names)).value
            if number > counting.limit:
                raise counting.reached
            done = Done((0, 0), 0, (counts,), "counter_visit" if stored == seen.stored else self.name)
            return self._check_guards(seen, counting, done)
        at, ends_ms = _encode_time(moment(now_ms)), b"%d" % day.marker_ends_ms(now_ms)
        done = await prepared(*(requests, *names, marker, visitors), *(user_hash.encode(), at, ends_ms, seen.stored))
        if not done and done.stopped != "requests" and await counting.count > counting.limit:
            raise counting.reached
        if done or done.stopped == "counter_visit":
            remember(self._known, marker, seen.stored)
        return self._check_guards(seen, counting, done)

    def _make_keys_of_day(self, id: str, date: dt.date) -> _KeysOfDay:
        keys = self.keys
        return keys.counter_total(id), keys.counter_daily(id, date), keys.counter_last(id)

    def _make_names_of_day(self, id: str, date: dt.date) -> list[bytes]:
        """The names of these keys, between those of the record and of the visitors."""
        every = (self._records(id), *self._make_keys_of_day(id, date), self.keys.counter_visitors(id))
        return [one.key.encode() for one in every]

    def _read_current(self, id: str, day: Day) -> Operation[list[Any]]:
        return self.keys.counter_total.get_all(*self._keys_of_day(id, day.date))

    async def get(self, id: Any, visitor: Visitor | None = None) -> CounterData:
        """The counts. One round trip."""
        check_id(id)
        now_ms = self.site.now_ms()
        day = self._calendar.day(now_ms)
        read, cached = self._read_counts(id, visitor, day), self._cached_past(id, day)
        if cached is not None:
            (record, current), past = await read, cached
        else:
            (record, current), past = await in_one_turn(read, self._load_past(id, day))
        past = await self._reload_if_recreated(record, past)
        self._cache_past(record, past, now_ms)
        return _data(record, _current_counts(current), past)

    async def _read_counts(self, id: str, visitor: Visitor | None, day: Day) -> tuple[CounterRecord, Sequence[Any]]:
        """The record and the current counts. Raises WidgetRefused, LimitReached."""
        known, prepared = self._cache.get(id), self._prepared_read
        counting = None if visitor is None else self._limit.counting("read", visitor.address)
        if known is not None and counting is not None and prepared is not None:
            names = self._names_of_day(id, day.date)
            try:
                requests, stored, current = (await prepared(counting.counter.key.encode(), *names[:-1])).value
            except Unreadable:
                if not await self._upgrade_if_old(id):
                    raise self._unreadable() from None
            else:
                if requests > counting.limit:
                    raise counting.reached
                if stored == known.stored:  # not decoded again
                    return known.value, current
            visitor = None  # counted
        record, [current] = await self._read(id, visitor, lambda: [self._read_current(id, day)])
        return record, current

    @cached_property
    def _prepared_read(self) -> Prepared[tuple[int, bytes | None, list[Any]]] | None:
        """The usual read, counted against the limit; None if the store needs several steps."""
        keys = self.keys
        if not self._counts_in_step("read"):
            return None

        def make(requests: Any, record: Any, *counts: Any) -> Steps[tuple[int, bytes | None, list[Any]]]:
            counted, stored, current = requests.increment(), stored_bytes(record), keys.counter_total.get_all(*counts)
            return Steps(counted, stored, current).giving(counted, stored, current)

        families: list[Bound[Any]] = [
            keys.requests,
            self._records,
            keys.counter_total,
            keys.counter_daily,
            keys.counter_last,
        ]
        return Prepared(families, make, name="Counters.get")

    def _counts_in_step(self, limit: str) -> bool:
        """Whether a request can be counted in the same atomic step as its work."""
        return self._limit.limits[limit] != 0 and not has_slots(self._records.store)

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
        cached = self._past_cache.get(record.id)
        if cached is not None and cached.past is past and cached.record is record:
            return
        if self._calendar.day(now_ms - _SETTLING_MS) == past.day:
            remember(self._past_cache, record.id, _CachedPast(record, past))

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


def _encode_time(at: datetime) -> bytes:
    """A time as it is stored: the same as its codec does, which is slower."""
    return str(iso(at)).encode()


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
