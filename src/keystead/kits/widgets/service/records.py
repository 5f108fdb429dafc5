"""Widget records, with optimistic locking.

Every write beside a record is one atomic step with the guard that the record is still the one that was read. So a write
in flight never revives a deleted widget, and a widget that is created again for the same page starts at zero. A record
changes only when its owner changes it. Each process caches the records that it has read; a failed guard tells it that
one is stale.
"""

from __future__ import annotations

import asyncio
import hmac
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from keystead.errors import BadKey, Contended, Unreadable
from keystead.kits.kit import Site
from keystead.kits.widgets.keys import WidgetKeys
from keystead.kits.widgets.models import ServiceName, WidgetRecord
from keystead.kits.widgets.service.checks import checked_id
from keystead.kits.widgets.service.days import Calendar
from keystead.kits.widgets.service.hooks import Hooks
from keystead.kits.widgets.service.outcomes import Visitor
from keystead.kits.widgets.service.refused import WidgetRefused, unknown
from keystead.kits.widgets.service.settings import WidgetSettings
from keystead.parts.limit import NamedLimits, client_of
from keystead.schema import Bound, Done, Operation, Steps, attempts, procedure
from keystead.schema.in_one_turn import in_one_turn
from keystead.schema.kinds import CounterKey, Seen, ValueKey
from keystead.schema.slots import one_step

R = TypeVar("R", bound=WidgetRecord)
D = TypeVar("D")
Guards: TypeAlias = Sequence[Operation[Any]]

KEPT: Final = 10_000  # records that a process remembers, of each service


@dataclass(frozen=True)
class Surroundings:
    """What all services are given."""

    keys: WidgetKeys
    settings: WidgetSettings
    site: Site
    limit: NamedLimits
    hooks: Hooks
    calendar: Calendar
    secret: bytes  # what makes the names of visitors, so that nobody can guess an address from them


class Use(NamedTuple):
    """When a widget was last used, and guards that hold that; no time: nobody knows of any use."""

    at: datetime | None
    still: Callable[[], Sequence[Operation[Any]]] = tuple


async def last_use(last: ValueKey[datetime]) -> Use:
    """Of a widget that keeps the time under a key of its own."""
    seen = await last.see().if_readable()
    return Use(None if seen is None else seen.value, lambda: [last.holds(seen)])


class Records(Generic[R]):
    """The records of one of the services."""

    name: ClassVar[ServiceName]
    word: ClassVar[str]  # what people call it

    def __init__(self, given: Surroundings) -> None:
        self.keys = given.keys
        self.settings = given.settings
        self.site = given.site
        self._limit = given.limit
        self._hooks = given.hooks
        self._calendar = given.calendar
        self._secret = given.secret
        self._kept: OrderedDict[str, Seen[R]] = OrderedDict()
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._records: Bound[ValueKey[R]] = getattr(self.keys, self.name)

    async def _see(self, id: str) -> Seen[R] | None:
        """The record as it is stored, whether it is ending or not; None: there is none. Old rows are upgraded first."""
        try:
            seen = await self._records(id).see()
            return await self._upgrade_record(seen) if seen is not None and seen.value.is_old else seen
        except BadKey:  # what is stored for an address is no id, so it leads nowhere
            return None
        except Unreadable:
            raise self._unreadable() from None

    async def _upgrade_record(self, seen: Seen[R]) -> Seen[R] | None:
        """The record, with its rows in the layout of today; None: it was deleted meanwhile."""
        raise NotImplementedError

    async def record(self, id: str) -> R:
        """The record as it is now. Raises WidgetRefused where there is none."""
        seen = await self._see(id)
        if seen is None or seen.value.ending is not None:
            raise unknown(self.word)
        return seen.value

    async def _load_known(self, id: Any) -> Seen[R]:
        """The record from the cache of this process. A guard detects a stale one. Raises WidgetRefused."""
        kept = self._kept.get(checked_id(id))
        if kept is not None:
            self._kept.move_to_end(id)
            return kept
        seen = await self._see(id)
        if seen is None or seen.value.ending is not None:
            raise unknown(self.word)
        self._keep(seen)
        return seen

    async def _load_for_visitor(self, id: Any, limit: str | None, visitor: Visitor) -> Seen[R]:
        """The same for a visitor: who asks for what is not there is counted, too."""
        try:
            return await self._load_known(id)
        except WidgetRefused:
            if limit is not None:
                await self._limit.count(limit, visitor.address)
            raise

    def _keep(self, seen: Seen[R]) -> None:
        self._kept[seen.value.id] = seen
        self._kept.move_to_end(seen.value.id)
        if len(self._kept) > KEPT:
            self._kept.popitem(last=False)

    def _forget(self, id: str) -> None:
        self._kept.pop(id, None)

    async def _run_guarded(
        self, seen: Seen[R], limit: str | None, visitor: Visitor, step: Callable[[Guards], Coroutine[Any, Any, Done[D]]]
    ) -> Done[D]:
        """What a procedure does behind the guards that it is given: that this is still the record, and the limit.

        The request is counted in the same round trip, and in a cluster in one before; no limit: it was counted already.
        Where `stopped` is the name of the service, the record is another by now, and is read anew the next time.
        Raises LimitReached.
        """
        counting = None if limit is None else self._limit.counting(limit, visitor.address)
        if seen.value.webhook is not None:
            await self._hooks.announce(self.name, seen.value)
        record = self._records(seen.value.id)
        if counting is None:
            done = await step([record.holds(seen)])
        elif not one_step(self._records.store, record.key, counting.counter.key):
            # Two slots of a cluster have no common order, so the request is counted first.
            if await counting.count > counting.limit:
                raise counting.reached
            done = await step([record.holds(seen)])
        else:
            # Both leave in one turn, so it is one round trip; and as neighbours, the count first: of many that come at
            # once, each is measured by those before it and not by all of them.
            _, done = await in_one_turn(counting.count, step([counting.within, record.holds(seen)]))
            if done.stopped == "requests":
                raise counting.reached
        if done.stopped == self.name:
            self._forget(seen.value.id)
        return done

    @procedure
    def _write(self, seen: Seen[R], operations: Sequence[Operation[Any]]) -> Steps[None]:
        """Something of a widget, if this is still its record."""
        return Steps(self._records(seen.value.id).holds(seen), *operations)

    async def _read(
        self, id: Any, visitor: Visitor | None, operations: Callable[[], Sequence[Operation[Any]]]
    ) -> tuple[R, tuple[Any, ...]]:
        """The record and the results of these operations, in one round trip. Raises WidgetRefused, LimitReached.

        No visitor: it is not counted.
        """
        checked_id(id)
        counting = None if visitor is None else self._limit.counting("read", visitor.address)
        try:
            read = self.keys.run(self._records(id).see(), *operations())
            if counting is None:
                results = await read
            else:
                count, results = await in_one_turn(counting.count, read)
                if count > counting.limit:
                    raise counting.reached
        except Unreadable:
            if await self._upgrades(id):  # old rows may not be readable as they are
                return await self._read(id, None, operations)
            raise self._unreadable() from None
        seen: Seen[R] | None = results[0]
        if seen is None or seen.value.ending is not None:
            raise unknown(self.word)
        if seen.value.is_old and await self._upgrades(id):
            return await self._read(id, None, operations)
        self._keep(seen)
        return seen.value, results[1:]

    async def _upgrades(self, id: str) -> bool:
        """Upgrade the rows of a widget. False: they are not old."""
        seen = await self._records(id).see().if_readable()
        return seen is not None and seen.value.is_old and await self._see(id) is not None

    def _unreadable(self) -> WidgetRefused:
        return WidgetRefused(
            "UNREADABLE", f"what is stored of this {self.word} cannot be read; `keystead doctor` shows it"
        )

    def _write_record(self, record: R) -> Operation[None]:
        """A write of the record alone: its index names it already, or is written beside it."""
        return self._records(record.id).alone.set(record)

    def _visitor_hash(self, id: str, visitor: Visitor, day: str = "") -> str:
        """Who a visitor is to one widget: 16 digits that tell nobody their address, nor who they are elsewhere."""
        said = "\n".join((self.name, id, client_of(visitor.address), visitor.agent, day))
        return hmac.digest(self._secret, said.encode("utf-8", "replace"), "sha256").hex()[:16]

    @staticmethod
    def _is(total: CounterKey, number: int) -> Operation[bool]:
        """A guard: the total is still this number. It is never below zero."""
        return total.at_most(0) if number <= 0 else total.holds(number)

    @asynccontextmanager
    async def _turn(self, id: Any) -> AsyncIterator[None]:
        """Serialize, within this process, callers that change the same number: they would only conflict."""
        name = checked_id(id)
        lock = self._turns.get(name)
        if lock is None:
            lock = self._turns[name] = asyncio.Lock()
        async with lock:
            yield


class tries(attempts):  # noqa: N801 - it is used as a function is
    """Attempts that end in what visitors are told."""

    async def __anext__(self) -> int:
        try:
            return await super().__anext__()
        except Contended:
            sentence = "too many change this at the same time; try again in a moment"
            raise WidgetRefused("TRY_AGAIN", sentence, retry_after_s=1) from None
