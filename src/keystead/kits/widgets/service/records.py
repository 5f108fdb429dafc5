"""Records: what a widget is, found and guarded.

The record of a widget is what is guarded. Whoever writes anything beside it does so in one atomic step with the guard
that the record is still the one that was read: so no write in flight revives a widget that was deleted, and one that
was created anew for the same page begins at zero. The record changes only when its owner changes it; each process keeps
those that it has read, and learns from the guard when one is no longer true.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, ClassVar, Final, Generic, TypeVar
from weakref import WeakValueDictionary

from keystead.errors import BadKey, Unreadable
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
from keystead.schema import Bound, Done, Operation
from keystead.schema.key import nothing
from keystead.schema.kinds import CounterKey, ValueKey
from keystead.schema.kinds.value import Seen

R = TypeVar("R", bound=WidgetRecord)

ATTEMPTS: Final = 20
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
        self._in_one_step = self.keys.store_of("default").guarantees.atomic == "any keys"
        self._records: Bound[ValueKey[R]] = getattr(self.keys, self.name)

    async def _see(self, id: str) -> Seen[R] | None:
        """The record as it is stored, whether it is ending or not; None: there is none. Old rows are upgraded first."""
        try:
            seen = await self._records(id).see()
            return await self._upgraded(seen) if seen is not None and seen.value.is_old else seen
        except BadKey:  # what is stored for an address is no id, so it leads nowhere
            return None
        except Unreadable:
            raise self._unreadable() from None

    async def _upgraded(self, seen: Seen[R]) -> Seen[R] | None:
        """The record, with its rows in the layout of today; None: it was deleted meanwhile."""
        raise NotImplementedError

    async def record(self, id: str) -> R:
        """The record as it is now. Raises WidgetRefused where there is none."""
        seen = await self._see(id)
        if seen is None or seen.value.ending is not None:
            raise unknown(self.word)
        return seen.value

    async def _known(self, id: Any) -> Seen[R]:
        """The record, as this process remembers it. A guard says whether it is still true. Raises WidgetRefused."""
        kept = self._kept.get(checked_id(id))
        if kept is not None:
            self._kept.move_to_end(id)
            return kept
        seen = await self._see(id)
        if seen is None or seen.value.ending is not None:
            raise unknown(self.word)
        self._keep(seen)
        return seen

    async def _met(self, id: Any, limit: str | None, visitor: Visitor) -> Seen[R]:
        """The same for a visitor: who asks for what is not there is counted, too."""
        try:
            return await self._known(id)
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

    async def _guarded(
        self, id: Any, limit: str | None, visitor: Visitor, step: Callable[[Seen[R]], Sequence[Operation[Any]]]
    ) -> tuple[Seen[R], Done[Any]]:
        """What `step` says of the record, in one atomic step with the guard that this is still the record.

        The request is counted in the same round trip; no limit: it was counted before. A place in the outcome counts
        from the first of the operations of `step`. Raises WidgetRefused where there is no such widget, or LimitReached.
        """
        for attempt in range(ATTEMPTS):
            seen = await self._met(id, None if attempt else limit, visitor)
            counting = None if limit is None or attempt else self._limit.counting(limit, visitor.address)
            await self._hooks.announce(self.name, seen.value)
            wanted = step(seen)  # or raise what keeps it from being counted
            guards = [self._records(id).holds(seen)]
            if counting is not None and self._in_one_step:
                guards.insert(0, counting.within)
                # Both leave in one turn, the count first: one round trip.
                _, done = await asyncio.gather(counting.count, self.keys.atomically(*guards, *wanted))
                if done.stopped_at == 0:
                    raise counting.reached
            else:
                if counting is not None and await counting.count > counting.limit:
                    for dropped in (*guards, *wanted):
                        dropped.close()
                    raise counting.reached
                done = await self.keys.atomically(*guards, *wanted)
            if done.stopped_at != len(guards) - 1:
                return seen, _without(done, len(guards))
            self._forget(id)
            await apart(attempt)
        raise contended()

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
                count, results = await asyncio.gather(counting.count, read)
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

    def _written(self, record: R, *options: str) -> Operation[Any]:
        """A write of the record alone: its index names it already, or is written beside it."""
        bound = self._records
        key = bound(record.id).key
        codec: Any = bound.family.codecs["value"]
        command = ("SET", key, codec.encode(record, key, bound.keyspace.ring), *options)
        return Operation(bound, "set", [command], nothing)

    def _visitor_hash(self, id: str, visitor: Visitor, day: str = "") -> str:
        """Who a visitor is to one widget: 16 digits that tell nobody their address, nor who they are elsewhere."""
        said = "\n".join((self.name, id, client_of(visitor.address), visitor.agent, day))
        return hmac.new(self._secret, said.encode("utf-8", "replace"), sha256).hexdigest()[:16]

    @staticmethod
    def _is(total: CounterKey, number: int) -> Operation[bool]:
        """A guard: the total is still this number. It is never below zero."""
        return total.at_most(0) if number <= 0 else total.holds(number)

    @asynccontextmanager
    async def _turn(self, id: Any) -> AsyncIterator[None]:
        """One after the other within this process: those who must all change one number would only be in their way."""
        name = checked_id(id)
        lock = self._turns.get(name)
        if lock is None:
            lock = self._turns[name] = asyncio.Lock()
        async with lock:
            yield


def _without(done: Done[Any], guards: int) -> Done[Any]:
    """The outcome without its guards."""
    place = None if done.stopped_at is None else done.stopped_at - guards
    return Done(done.values[guards:], place, done.before[guards:])


async def apart(attempt: int) -> None:
    """Whoever lost waits a little, each another time, so that somebody wins."""
    await asyncio.sleep(secrets.randbelow(1000) / 1_000_000 * 2 ** min(attempt, 6))


def contended() -> WidgetRefused:
    return WidgetRefused("TRY_AGAIN", "too many change this at the same time; try again in a moment", retryAfter=1)
