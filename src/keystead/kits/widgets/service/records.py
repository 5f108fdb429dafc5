"""Widget records, with optimistic locking.

Every write beside a record is one atomic step, guarded by the condition that the record is still the one that was read.
So a write in flight never revives a deleted widget, and a widget created again for the same page starts at zero. A
record changes only when its owner changes it. Each process caches records; a failed guard reveals a stale one.
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
from keystead.kits.widgets.service.checks import check_id
from keystead.kits.widgets.service.days import Calendar
from keystead.kits.widgets.service.hooks import Hooks
from keystead.kits.widgets.service.outcomes import Visitor
from keystead.kits.widgets.service.refused import WidgetRefused, in_cooldown, not_found, try_again
from keystead.kits.widgets.service.settings import WidgetSettings
from keystead.parts.limit import Counting, NamedLimits, client_of
from keystead.schema import Bound, Done, Operation, Steps, attempts, procedure
from keystead.schema.in_one_turn import in_one_turn
from keystead.schema.kinds import CounterKey, Seen, ValueKey
from keystead.schema.slots import one_step
from keystead.schema.times import deadline_ms

R = TypeVar("R", bound=WidgetRecord)
D = TypeVar("D")
K = TypeVar("K")
V = TypeVar("V")
Operations: TypeAlias = Sequence[Operation[Any]]
Guards: TypeAlias = Operations

CACHE_MAX: Final = 10_000  # records that a process caches, for each service


@dataclass(frozen=True)
class ServiceContext:
    """The dependencies of every service."""

    keys: WidgetKeys
    settings: WidgetSettings
    site: Site
    limit: NamedLimits
    hooks: Hooks
    calendar: Calendar
    secret: bytes  # keys the hashes of visitors, so that no IP address can be guessed from them


class LastUse(NamedTuple):
    """When a widget was last used, and guards that fail if it is used again. None: no use is known."""

    at: datetime | None
    guards: Callable[[], Guards] = tuple


async def read_last_use(key: ValueKey[datetime]) -> LastUse:
    seen = await key.see().if_readable()
    return LastUse(None if seen is None else seen.value, lambda: [key.holds(seen)])


class Records(Generic[R]):
    """The records of one service."""

    name: ClassVar[ServiceName]
    word: ClassVar[str]  # its name in sentences

    def __init__(self, context: ServiceContext) -> None:
        self.keys = context.keys
        self.settings = context.settings
        self.site = context.site
        self._limit = context.limit
        self._hooks = context.hooks
        self._calendar = context.calendar
        self._secret = context.secret
        self._cache: OrderedDict[str, Seen[R]] = OrderedDict()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._records: Bound[ValueKey[R]] = getattr(self.keys, self.name)

    async def find(self, id: str) -> R | None:
        """The stored record; None: there is none, or it is being deleted."""
        seen = await self._see_live(id)
        return None if seen is None else seen.value

    async def _see(self, id: str) -> Seen[R] | None:
        """The stored record, also while it is being deleted; None: there is none. An old layout is upgraded first."""
        try:
            seen = await self._records(id).see()
            return await self._upgrade_record(seen) if seen is not None and seen.value.is_old else seen
        except BadKey:  # a URL key that holds something else than an id
            return None
        except Unreadable:
            raise self._unreadable() from None

    async def _see_live(self, id: str) -> Seen[R] | None:
        seen = await self._see(id)
        return None if seen is None or seen.value.ending is not None else seen

    async def _require(self, id: str) -> Seen[R]:
        """Raises WidgetRefused if there is no such widget."""
        seen = await self._see_live(id)
        if seen is None:
            raise not_found(self.word)
        return seen

    async def _upgrade_record(self, seen: Seen[R]) -> Seen[R] | None:
        """The record in the current layout; None: it was deleted meanwhile."""
        raise NotImplementedError

    async def _load_cached(self, id: Any) -> Seen[R]:
        """The record, from the cache if possible. It may be stale: a guard detects that. Raises WidgetRefused."""
        cached = self._cached(id)
        if cached is not None:
            return cached
        seen = await self._require(id)
        self._cache_record(seen)
        return seen

    def _cached(self, id: Any) -> Seen[R] | None:
        """The record in the cache. Raises WidgetRefused for an invalid id."""
        cached = self._cache.get(check_id(id))
        if cached is not None:
            self._cache.move_to_end(id)
        return cached

    async def _load_for_visitor(self, id: Any, limit: str | None, visitor: Visitor) -> Seen[R]:
        """The same, but requests for missing widgets count against the rate limit."""
        try:
            return await self._load_cached(id)
        except WidgetRefused:
            if limit is not None:
                await self._limit.count(limit, visitor.address)
            raise

    def _cache_record(self, seen: Seen[R]) -> None:
        remember(self._cache, seen.value.id, seen)

    def _forget(self, id: str) -> None:
        self._cache.pop(id, None)

    async def _run_guarded(
        self, seen: Seen[R], limit: str | None, visitor: Visitor, step: Callable[[Guards], Coroutine[Any, Any, Done[D]]]
    ) -> Done[D]:
        """Run a procedure with two guards: the record is unchanged, and the rate limit is not reached.

        The request is counted in the same round trip; in a cluster, in one before. No limit: it is already counted.
        If `stopped` is the name of the service, the cached record was stale, and the next attempt reads it again.
        Raises LimitReached.
        """
        counting = None if limit is None else self._limit.counting(limit, visitor.address)
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
            # Both are sent together, in one round trip, the count first: of many concurrent requests, each is then
            # measured by those before it and not by all of them.
            _, done = await in_one_turn(counting.count, step([counting.within, record.holds(seen)]))
        return self._check_guards(seen, counting, done)

    def _check_guards(self, seen: Seen[R], counting: Counting | None, done: Done[D]) -> Done[D]:
        if done.stopped == "requests" and counting is not None:
            raise counting.reached
        if done.stopped == self.name:
            self._forget(seen.value.id)
        return done

    @procedure
    def _write(self, seen: Seen[R], operations: Operations) -> Steps[None]:
        """Run operations if the record is unchanged."""
        return Steps(self._records(seen.value.id).holds(seen), *operations)

    async def _read(
        self, id: Any, visitor: Visitor | None, operations: Callable[[], Operations]
    ) -> tuple[R, tuple[Any, ...]]:
        """The record and the results of these operations, in one round trip. Raises WidgetRefused, LimitReached.

        Without a visitor, the request is not counted.
        """
        check_id(id)
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
            if await self._upgrade_if_old(id):  # an old layout may not be readable as it is
                return await self._read(id, None, operations)
            raise self._unreadable() from None
        seen: Seen[R] | None = results[0]
        if seen is None or seen.value.ending is not None:
            raise not_found(self.word)
        if seen.value.is_old and await self._upgrade_if_old(id):
            return await self._read(id, None, operations)
        self._cache_record(seen)
        return seen.value, results[1:]

    async def _upgrade_if_old(self, id: str) -> bool:
        """Whether the widget had an old layout, and was upgraded."""
        seen = await self._records(id).see().if_readable()
        return seen is not None and seen.value.is_old and await self._see(id) is not None

    def _unreadable(self) -> WidgetRefused:
        return WidgetRefused("UNREADABLE", f"the stored {self.word} cannot be read; `keystead doctor` shows why")

    def _write_record(self, record: R) -> Operation[None]:
        """Write only the record: the index already lists it, or is written in the same step."""
        return self._records(record.id).alone.set(record)

    def _visitor_hash(self, id: str, visitor: Visitor, day: str = "") -> str:
        """A pseudonym of a visitor for one widget: 16 hex digits that reveal no IP address, and differ by widget."""
        identity = "\n".join((self.name, id, client_of(visitor.address), visitor.agent, day))
        return hmac.digest(self._secret, identity.encode("utf-8", "replace"), "sha256").hex()[:16]

    async def _cooldown(self, marker: ValueKey[datetime], cooldown_s: int, what: str) -> WidgetRefused:
        """The refusal for a visitor whose cooldown is not over."""
        since = await marker.get()
        left_ms = 1000 if since is None else deadline_ms(since) + cooldown_s * 1000 - self.site.now_ms()
        return in_cooldown(max(1, -(-left_ms // 1000)), what)

    @staticmethod
    def _equals(counter: CounterKey, number: int) -> Operation[bool]:
        """A guard: the counter still has this value. A missing counter counts as zero."""
        return counter.at_most(0) if number <= 0 else counter.holds(number)

    @asynccontextmanager
    async def _lock(self, id: Any) -> AsyncIterator[None]:
        """Serialize writers of one widget within this process, because they would only conflict."""
        name = check_id(id)
        lock = self._locks.get(name)
        if lock is None:
            lock = self._locks[name] = asyncio.Lock()
        async with lock:
            yield


def remember(cache: OrderedDict[K, V], key: K, value: V) -> None:
    """Put a value into a cache of at most `CACHE_MAX` values, from which the oldest is dropped."""
    cache[key] = value
    cache.move_to_end(key)
    if len(cache) > CACHE_MAX:
        cache.popitem(last=False)


class tries(attempts):  # noqa: N801 - used like a function
    """Attempts that end with a WidgetRefused for the visitor."""

    async def __anext__(self) -> int:
        try:
            return await super().__anext__()
        except Contended:
            raise try_again("too many concurrent changes; try again in a moment") from None
