"""Counters: each visitor counts once a day."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any, Final, Literal

from keystead.errors import BadValue
from keystead.kits.widgets.models import CounterRecord
from keystead.kits.widgets.service.checks import LARGEST, whole
from keystead.kits.widgets.service.days import Day, iso
from keystead.kits.widgets.service.outcomes import BatchItem, CounterData, Created, Owner, Visitor
from keystead.kits.widgets.service.refused import WidgetRefused, wrong
from keystead.kits.widgets.service.services import ATTEMPTS, UNSET, Service, contended, days_since
from keystead.schema import Operation
from keystead.schema.kinds.value import Seen
from keystead.schema.times import moment
from keystead.stores import Reply

COUNTER_TYPES: Final = ("total", "today", "yesterday", "week", "month")
_WEEK: Final = 7
_MONTH: Final = 30  # days, today among them

# Places of the operations of a visit.
_READ, _TOLD, _MARK, _ROOM = range(4)


class Counters(Service[CounterRecord]):
    name = "counter"
    word = "counter"

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
        if (await self._known(id)).value.webhook is None:
            return await self._increment(id, visitor)
        async with self._turn(id):
            return await self._increment(id, visitor)

    async def _increment(self, id: str, visitor: Visitor) -> CounterData:
        limit: str | None = "write"
        for _ in range(ATTEMPTS):
            before: int | None = None
            if (await self._known(id)).value.webhook is not None:
                before = await self.keys.counter_total(id).get()
            now_ms = self.site.now_ms()
            day = self._calendar.day(now_ms)
            try:
                step = partial(self._visit, visitor, now_ms, day, before)
                seen, done = await self._guarded(id, limit, visitor, step)
            except BadValue:  # the day ended meanwhile
                continue
            limit = None  # it is counted
            if done.stopped_at == _TOLD:  # others came between
                continue
            numbers: Numbers = done.values[_READ] if done else done.before[_READ]
            if done:
                numbers = numbers.plus_one(moment(now_ms))
            self.site.count("widgets", "visit", "counted" if done else "known")
            return _data(seen.value, numbers, duplicate=done.stopped_at == _MARK)
        raise contended()

    def _visit(
        self, visitor: Visitor, now_ms: int, day: Day, before: int | None, seen: Seen[CounterRecord]
    ) -> Sequence[Operation[Any]]:
        keys, record, at = self.keys, seen.value, moment(now_ms)
        id = record.id
        total = keys.counter_total(id)
        told: list[Operation[Any]] = []
        # Where nothing is told, it makes no difference how many there are.
        held = total.at_most(2**62)
        if before is not None:
            counts = {"previousCount": before, "newCount": before + 1, "incrementBy": 1}
            told, held = self._hooks.told(self.name, record, "counter.increment", counts), self._is(total, before)
        return [
            self._numbers(id, day),
            held,
            keys.counter_visit(id, self._visitor_hash(id, visitor, str(day.date))).add(at, end_of_day=day.ends_ms),
            total.at_most(LARGEST - 1),
            total.increment(),
            keys.counter_daily(id, day.date).increment(),
            keys.counter_last(id).set(at),
            *told,
        ]

    async def get(self, id: Any, visitor: Visitor | None = None) -> CounterData:
        """The numbers of a counter. One round trip."""
        record, (numbers,) = await self._read(id, visitor, lambda: [self._numbers(id, self._today)])
        return _data(record, numbers)

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
            writes: list[Operation[Any]] = [self._written(change.of(seen.value))]
            return writes if number is None else [*writes, self.keys.counter_total(seen.value.id).set(number)]

        data = await self.get((await self._change(owner, visitor, step)).id)
        return data.model_copy(update={"webhookSecret": change.secret})

    async def batch_create(self, token: Any, items: Sequence[BatchItem], *, visitor: Visitor) -> list[Created]:
        return await self._create_many(
            token,
            items,
            visitor,
            lambda values: CounterRecord(**values),
            lambda new: [self.keys.counter_total(new).set(0)],
        )

    async def batch_get(self, ids: Sequence[str], *, visitor: Visitor) -> dict[str, int]:
        return await self._many(ids, visitor, self.keys.counter_total)

    async def sum_by_prefix(self, prefix: Any, *, visitor: Visitor) -> int:
        return await self._sum(prefix, visitor, self.keys.counter_total)

    @property
    def _today(self) -> Day:
        return self._calendar.day(self.site.now_ms())

    def _numbers(self, id: str, day: Day) -> Operation[Numbers]:
        """All numbers of a counter with one command."""
        keys = self.keys
        days = [keys.counter_daily(id, day.back(back)).key for back in range(_MONTH)]
        command = ("MGET", keys.counter_total(id).key, keys.counter_last(id).key, *days)
        return Operation(keys.counter_total.store, [command], lambda replies: self._read_numbers(id, replies))

    def _read_numbers(self, id: str, replies: list[Reply]) -> Numbers:
        total, last, *days = replies[0]
        key = self.keys.counter_last(id).key
        at = self.keys.counter_last.family.value_of(last, key, None)
        return Numbers(int(total or 0), at, [int(one or 0) for one in days])

    def _belongings(self, record: CounterRecord) -> list[str]:
        keys, id = self.keys, record.id
        days = days_since(record, self.site.now_ms())
        return [
            keys.counter_total(id).key,
            keys.counter_last(id).key,
            keys.counter_visitors(id).key,
            *(keys.counter_daily(id, day).key for day in days),
        ]

    async def _marks(self, id: str) -> list[str]:
        return [self.keys.counter_visit(id, one).key for one in await self.keys.counter_visitors(id).members()]


class Numbers:
    """What a counter has counted: in all, and by day, today first."""

    def __init__(self, total: int, last: datetime | None, days: list[int]) -> None:
        self.total = total
        self.last = last
        self.days = days

    def plus_one(self, at: datetime) -> Numbers:
        return Numbers(self.total + 1, at, [self.days[0] + 1, *self.days[1:]])


def _data(record: CounterRecord, numbers: Numbers, *, duplicate: bool | None = None) -> CounterData:
    days = numbers.days
    return CounterData(
        id=record.id,
        url=record.url,
        total=numbers.total,
        today=days[0],
        yesterday=days[1],
        week=sum(days[:_WEEK]),
        month=sum(days),
        lastVisit=iso(numbers.last),
        duplicate=duplicate,
    )


CounterType = Literal["total", "today", "yesterday", "week", "month"]
