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
from keystead.kits.widgets.service.checks import LARGEST, checked_id, whole
from keystead.kits.widgets.service.days import Day, iso
from keystead.kits.widgets.service.outcomes import BatchItem, CounterData, Created, Owner, Visitor
from keystead.kits.widgets.service.records import KEPT, Guards, Surroundings, Use, last_use, tries
from keystead.kits.widgets.service.refused import WidgetRefused, wrong
from keystead.kits.widgets.service.services import UNSET
from keystead.kits.widgets.service.totals import TotalsService
from keystead.schema import Bound, Done, Operation, Steps, procedure
from keystead.schema.in_one_turn import in_one_turn
from keystead.schema.key import Key
from keystead.schema.kinds import CounterKey, Seen, SetKey, ValueKey
from keystead.schema.times import moment

COUNTER_TYPES: Final = ("total", "today", "yesterday", "week", "month")
_WEEK: Final = 7
_MONTH: Final = 30  # days, today among them

_PRUNED_AT: Final = 16  # visits of a day, when the visitors of the days before are taken out, if there are any
_SETTLING_MS: Final = 60_000  # after midnight


class Counters(TotalsService[CounterRecord]):
    name = "counter"
    word = "counter"

    def __init__(self, given: Surroundings) -> None:
        super().__init__(given)
        self._days: OrderedDict[str, _Known] = OrderedDict()
        self._numbers_of = lru_cache(KEPT)(self._keys_of)  # most visits are of today, to pages that are visited often

    async def create(
        self, url: Any, token: Any, *, visitor: Visitor, id: Any = None, webhook_url: Any = None
    ) -> Created:
        """A counter for a page, which begins at zero; the one that is there, for whoever has its token."""
        return await self._create(
            url,
            token,
            visitor,
            lambda values: CounterRecord(**values),
            id=id,
            webhook_url=webhook_url,
            first=lambda new: [self.keys.counter_total(new).set(0)],
        )

    async def increment(self, id: Any, visitor: Visitor) -> CounterData:
        """Count a visit, unless this visitor was counted today. One round trip where this process knows the counter.

        A counter whose events are told takes two: the event names the total before and after.
        """
        if (await self._load_for_visitor(id, "write", visitor)).value.webhook is None:
            return await self._increment(id, visitor)
        async with self._turn(id):
            return await self._increment(id, visitor)

    async def _increment(self, id: str, visitor: Visitor) -> CounterData:
        limit: str | None = "write"
        async for _ in tries(self.word):
            seen = await self._load_for_visitor(id, limit, visitor)
            told = None if seen.value.webhook is None else await self.keys.counter_total(id).get()
            now_ms = self.site.now_ms()
            day = self._calendar.day(now_ms)
            step = partial(self._visit, record=seen.value, visitor=visitor, now_ms=now_ms, day=day, before=told)
            visit, known = self._run_guarded(seen, limit, visitor, step), self._known_past(id, day)
            if known is not None:
                done, past = await visit, known
            else:
                # Both leave in one turn, so that it is one round trip also where the days before are not known yet.
                done, past = await in_one_turn(visit, self._past(id, day))
            limit = None  # it is counted
            if done.stopped == "counter_total" and (told is None or told >= LARGEST):
                return (await self.get(id)).model_copy(update={"duplicate": False})
            if done or done.stopped == "counter_visit":
                return await self._finish_visit(seen.value, done, past, now_ms)
        raise AssertionError  # pragma: no cover - the last of the tries raises

    async def _finish_visit(
        self, record: CounterRecord, done: Done[tuple[int, int]], past: Past, now_ms: int
    ) -> CounterData:
        """The numbers after a visit, which counted (`done`) or did not."""
        past = await self._past_of(record, past)
        self._remember(record, past, now_ms)
        now = _now([*done.value, moment(now_ms)] if done else done.before[-1])
        self.site.count("widgets", "visit", "counted" if done else "known")
        if done and now.today == _PRUNED_AT:
            with suppress(StoreError):  # the visit counts, and the next day takes them out
                await self.keys.counter_visitors(record.id).live()
        return _data(record, now, past, duplicate=not done)

    @procedure
    def _visit(
        self, guards: Guards, record: CounterRecord, visitor: Visitor, now_ms: int, day: Day, before: int | None
    ) -> Steps[tuple[int, int]]:
        """Count a visit, unless this visitor was counted today: then the numbers stand before the mark."""
        keys, id, at = self.keys, record.id, moment(now_ms)
        total, today, last = self._numbers_of(id, day.date)
        user_hash, ends_ms = self._visitor_hash(id, visitor, str(day.date)), day.mark_ends_ms(now_ms)
        told: list[Operation[Any]] = []
        if before is not None and before < LARGEST:
            counts = {"previousCount": before, "newCount": before + 1, "incrementBy": 1}
            told = self._hooks.make_event(self.name, record, "counter.increment", counts)
        counted, counted_today = total.increment(), today.increment()
        return Steps(
            *guards,
            self._is(total, before) if told and before is not None else total.at_most(LARGEST - 1),
            self._now(id, day),
            keys.counter_visit(id, user_hash).alone.add(at, end_of_day=ends_ms).required(),
            keys.counter_visitors(id).add(user_hash, end_of_day=ends_ms),
            counted,
            counted_today,
            last.set(at),
            *told,
        ).giving(counted, counted_today)

    def _keys_of(self, id: str, date: dt.date) -> tuple[CounterKey, CounterKey, ValueKey[datetime]]:
        keys = self.keys
        return keys.counter_total(id), keys.counter_daily(id, date), keys.counter_last(id)

    def _now(self, id: str, day: Day) -> Operation[list[Any]]:
        return self.keys.counter_total.get_all(*self._numbers_of(id, day.date))

    async def get(self, id: Any, visitor: Visitor | None = None) -> CounterData:
        """The numbers of a counter. One round trip."""
        checked_id(id)
        now_ms = self.site.now_ms()
        day = self._calendar.day(now_ms)
        read, known = self._read(id, visitor, lambda: [self._now(id, day)]), self._known_past(id, day)
        if known is not None:
            (record, [now]), past = await read, known
        else:
            (record, [now]), past = await in_one_turn(read, self._past(id, day))
        past = await self._past_of(record, past)
        self._remember(record, past, now_ms)
        return _data(record, _now(now), past)

    async def shown(self, id: Any, type: str = "total", visitor: Visitor | None = None) -> int:
        """One of the numbers; 0: there is no such counter."""
        if type not in COUNTER_TYPES:
            raise wrong("type", f"type is one of {', '.join(COUNTER_TYPES)}")
        try:
            found = await self.get(id, visitor)
        except WidgetRefused as refused:
            if refused.reason == "NOT_FOUND":
                return 0
            raise
        number: int = getattr(found, type)
        return number

    async def set(self, owner: Owner, total: Any, *, visitor: Visitor) -> CounterData:
        """Write the total. What was counted by day stays."""
        number = whole("total", total)

        async def step(seen: Seen[CounterRecord]) -> Sequence[Operation[Any]]:
            return [self.keys.counter_total(seen.value.id).set(number)]

        return await self.get((await self._change(owner, visitor, step)).id)

    async def update_settings(
        self, owner: Owner, *, visitor: Visitor, webhook_url: Any = UNSET, total: Any = UNSET
    ) -> CounterData:
        """Change what is given, in one step."""
        number = None if total is UNSET else whole("total", total)
        change = self._hook_change(webhook_url)

        async def step(seen: Seen[CounterRecord]) -> Sequence[Operation[Any]]:
            writes: list[Operation[Any]] = [self._write_record(change.of(seen.value))]
            return writes if number is None else [*writes, self.keys.counter_total(seen.value.id).set(number)]

        data = await self.get((await self._change(owner, visitor, step)).id)
        return data.model_copy(update={"webhook_secret": change.secret})

    async def batch_create(self, token: Any, items: Sequence[BatchItem], *, visitor: Visitor) -> list[Created]:
        return await self._create_all(
            token,
            items,
            visitor,
            lambda values: CounterRecord(**values),
            lambda new: [self.keys.counter_total(new).set(0)],
        )

    async def batch_get(self, ids: Sequence[str], *, visitor: Visitor) -> dict[str, int]:
        return await self._get_totals(ids, visitor, self.keys.counter_total)

    async def sum_by_prefix(self, prefix: Any, *, visitor: Visitor) -> int:
        return await self._sum(prefix, visitor, self.keys.counter_total)

    async def _upgrade_steps(self, record: CounterRecord) -> list[Operation[Any]]:
        steps: list[Operation[Any]] = []
        if record.total_count is not None:
            steps.append(self.keys.counter_total(record.id).start_at(record.total_count))
        if record.last_visit is not None:
            steps.append(self.keys.counter_last(record.id).add(record.last_visit))
        return steps

    def _known_past(self, id: str, day: Day) -> Past | None:
        known, record = self._days.get(id), self._kept.get(id)
        return known.past if known is not None and record is not None and known.is_of(record.value, day) else None

    async def _past(self, id: str, day: Day) -> Past:
        """What was counted on the days before, which does not change any more. A process asks once a day."""
        known = self._known_past(id, day)
        if known is not None:
            return known
        record = self._kept.get(id)
        days = await self._numbers(self.keys.counter_daily, [(id, day.back(back)) for back in range(1, _MONTH)])
        made = None if record is None else record.value.created
        return Past(days[0], sum(days[: _WEEK - 1]), sum(days), day, made)

    async def _past_of(self, record: CounterRecord, past: Past) -> Past:
        """The same, asked for again where it was read of a counter that was deleted meanwhile, and made anew."""
        if past.made is None or past.made == record.created:
            return past
        self._days.pop(record.id, None)
        return (await self._past(record.id, past.day))._replace(made=record.created)

    def _remember(self, record: CounterRecord, past: Past, now_ms: int) -> None:
        """Those of a day that has just begun are not remembered: somebody may still count for the day before."""
        if self._calendar.day(now_ms - _SETTLING_MS) == past.day:
            self._days[record.id] = _Known(record, past)
            if len(self._days) > KEPT:
                self._days.popitem(last=False)

    async def _last_use(self, record: CounterRecord) -> Use:
        return await last_use(self.keys.counter_last(record.id))

    def _belongings(self, record: CounterRecord) -> list[Key]:
        keys, id = self.keys, record.id
        days = [keys.counter_daily(id, day) for day in _list_days(record, self.site.now_ms())]
        return [keys.counter_total(id), keys.counter_last(id), keys.counter_visitors(id), *days]

    def _marks(self, id: str) -> tuple[SetKey[str], Bound[ValueKey[Any]]]:
        return self.keys.counter_visitors(id), self.keys.counter_visit


class Now(NamedTuple):
    """What a counter has counted in all and today, and when last."""

    total: int
    today: int
    last: datetime | None


class Past(NamedTuple):
    """What it has counted before this day: on the day before, and in the week and the month that this day ends."""

    yesterday: int
    week: int
    month: int
    day: Day
    made: datetime | None  # when the counter was made that it was read of, as far as this process knew


class _Known(NamedTuple):
    record: CounterRecord
    past: Past

    def is_of(self, record: CounterRecord, day: Day) -> bool:
        return self.past.day == day and self.record.created == record.created


def _now(found: Sequence[Any]) -> Now:
    total, today, last = found
    return Now(total or 0, today or 0, last)


def _data(record: CounterRecord, now: Now, past: Past, *, duplicate: bool | None = None) -> CounterData:
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
    """All days since a widget was made, and one before and after: the zone of the settings may have changed."""
    day, last = record.created.date() - timedelta(days=1), moment(now_ms).date() + timedelta(days=1)
    while day <= last:
        yield day
        day += timedelta(days=1)
