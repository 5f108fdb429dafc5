"""The cache: concurrent misses trigger one load (single flight); stale copies are served when the provider fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeAlias, TypeVar

from keystead.errors import BadDeclaration, BadKey, CommandError, DoesNotFit, StoreError, Unreadable, WrongKind
from keystead.parts.cache.load_markers import LoadMarkers
from keystead.parts.cache.load_results import CacheCounts, CacheLookup, CacheResult, LoadFailed
from keystead.parts.cache.single_flight import Flight, LoadFailure, Raised
from keystead.parts.cache.storage import EntriesWithMarks, EntryStorage, MarksInside
from keystead.schema import Bound, Hash, Operation, Value
from keystead.schema.kinds import HashKey, ValueKey
from keystead.schema.lifetime import After, Sliding, Spread
from keystead.schema.operation import combine
from keystead.schema.slots import has_slots, spans_keys
from keystead.schema.unreadable import log_unreadable

_log = logging.getLogger("keystead.cache")

T = TypeVar("T")

Key: TypeAlias = "ValueKey[T] | HashKey[T, Any, Any]"
Load: TypeAlias = Callable[[], Awaitable[T | None]]


class Cache(Generic[T]):
    """One cache: `Cache(keys.report)` for a family `Cached`, which brings along what a cache needs; or of families of
    your own: `Cache(keys.membership, keys.membership_mark, stale=keys.membership_stale)`.

        class AppKeys(Keyspace):
            membership = Value("membership:{id}", Membership, lifetime=after("1h", jitter="10%"), role="cache", …)
            membership_mark = LoadMarkers("membership:{id}:mark", loading="10s", retry="5s", nothing="1m", …)
            membership_stale = Value("membership:{id}:stale", Membership, lifetime=after("1d"), role="cache", …)

    entries      a family of values or hashes. Its lifetime is that of an entry: a fixed time, or with `sliding` as long
                 as it is used
    marks        its load markers, which say who loads and how long that may take
    stale        a family of the same values that live longer, served when the provider fails
    store_down   policy for store outages: `load` calls the provider, one load at a time for each key in this process;
                 `raise` raises the store's error

    `invalidate` drops an entry for all processes, and no load that started earlier writes it again.
    `longest_staleness` is how old an answer may be without invalidation.

    Raises BadDeclaration for families of another shape, and DoesNotFit for a store without atomic steps. On a cluster
    all families need one slot: give them one `tag`. On Memcached, where an atomic step covers one key, markers take the
    place of the entries, and there are no stale copies. `wait` is for tests.
    """

    def __init__(
        self,
        entries: Bound[ValueKey[T]] | Bound[HashKey[T, Any, Any]],
        marks: Bound[ValueKey[Any]] | None = None,
        *,
        stale: Bound[ValueKey[T]] | Bound[HashKey[T, Any, Any]] | None = None,
        store_down: Literal["load", "raise"] = "load",
        wait: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        if marks is None and isinstance(entries, Bound):
            marks, stale = entries.companion("mark"), stale or entries.companion("stale")
        marks = _check_declared(entries, marks, stale)
        inside = _markers_inside(entries, marks, stale)
        if store_down not in ("load", "raise"):
            raise BadDeclaration(f'store_down must be "load" or "raise", not {store_down!r}')
        self._entries: Bound[Any] = entries
        self._marks = marks
        self._stale = stale
        self._loads_without_store = store_down == "load"
        self._wait = wait
        self._with_marks = entries.holding(EntriesWithMarks(entries)) if inside else None
        self._marks_inside = entries.holding(MarksInside(marks), marks.family.lifetime) if inside else None
        lifetime = entries.family.lifetime
        self._sliding = lifetime if isinstance(lifetime, Sliding) else None
        self._flights: dict[str, asyncio.Task[Any]] = {}  # by key: flights that accept callers
        self._refreshes: dict[str, asyncio.Task[Any]] = {}
        self._latest: dict[str, asyncio.Task[Any]] = {}  # by key: the latest flight
        self._running: set[asyncio.Task[Any]] = set()
        self._counts = CacheCounts()

    @property
    def longest_staleness(self) -> timedelta:
        """How old an answer may be, counted from the start of its load, without invalidation.

        It is the lifetime of the stale copy, or of the entry if there is none. They expire by the store's clock; the
        duration of a load follows the clock of its process, which can be wrong by `loading` at most. With a sliding
        lifetime only `invalidate` bounds the age: it is `timedelta.max`.
        """
        return self.longest_freshness if self._stale is None else self._longest(self._stale)

    @property
    def longest_freshness(self) -> timedelta:
        """The same while the provider answers, so that no stale copy is served."""
        return self._longest(self._entries)

    def _longest(self, bound: Bound[Any]) -> timedelta:
        if self._sliding is not None:
            return timedelta.max
        loading_ms: int = self._marks.family.marked.loading_ms  # a value that was just loaded is always returned
        return timedelta(milliseconds=max(loading_ms, bound.family.lifetime.longest_ms))

    @property
    def counts(self) -> CacheCounts:
        """The counts of this cache in this process so far: a copy."""
        return replace(self._counts)

    # --- reading -------------------------------------------------------------------------------------------

    async def get(self, key: Key[T], load: Load[T]) -> T | None:
        """The value. On a miss `load()` is called, by one caller at a time across all processes (single flight).

        None: the provider says that there is nothing. A hit is one round trip. Concurrent callers wait for the same
        load, which continues if a caller is cancelled. If the load fails, the stale copy is returned or LoadFailed is
        raised, and no process calls the provider again for `retry` of the markers. Raises the store's error during an
        outage if `store_down` is `raise`.
        """
        if key.bound is not self._entries:
            raise self._wrong_family(key)
        if self._sliding is not None:
            return (await self.answer(key, load)).value
        try:
            value: T | None = await self._entry(key).get()
        except (Unreadable, StoreError) as error:
            return (await self._handle_miss(key, load, error)).value
        if value is None:
            return (await self._handle_miss(key, load)).value
        self._counts.hits += 1
        return value

    async def answer(self, key: Key[T], load: Load[T]) -> CacheResult[T]:
        """As `get`, with how the value was found."""
        [look] = await self._look_up([key])
        return await self.answer_to(look, load)

    async def answer_soon(self, key: Key[T], load: Load[T], refresh: Load[T] | None = None) -> CacheResult[T]:
        """As `answer`, but an entry that has expired is answered by its stale copy at once, while one caller across
        all processes loads it anew (stale while revalidate).

        refresh   loads in the background, if not `load`. Its failure leaves the stale copy until it expires
        """
        [look] = await self._look_up([key])
        if look.value is not None or look.error is not None or self._stale is None:
            return await self.answer_to(look, load)
        try:
            copy: T | None = await self._stale(**key.values).get()
        except (StoreError, Unreadable):
            copy = None
        if copy is None:
            return await self.answer_to(look, load)
        if key.key not in self._flights:
            self._start_flight(self._flights, key, refresh or load)
        self._counts.misses += 1
        self._counts.stale += 1
        return CacheResult(copy, "stale")

    def look(self, key: Key[T]) -> Operation[CacheLookup[T]]:
        """A lookup of the entry as an operation, to share a round trip with others:

            look, is_revoked = await keys.run(cache.look(key), access.is_revoked(found))
            answer = await cache.answer_to(look, load)

        It only reads: it loads nothing, and does not count as a use.
        """
        if key.bound is not self._entries:
            raise self._wrong_family(key)
        read, *left = self._reads(key)
        return combine("look", [read.or_error(), *left], lambda *found: _lookup_result(key, *found), atomic=False)

    async def answer_to(self, look: CacheLookup[T], load: Load[T]) -> CacheResult[T]:
        """The result for a lookup. A hit costs nothing more, except a touch each `touch_every` if the lifetime is
        sliding; a miss continues as in `answer`.

        If the lookup itself failed, as in `keys.run`, pass the error: `CacheLookup(key, error=error)`.
        """
        if look.value is None or look.error is not None:
            return await self._handle_miss(look.key, load, look.error)
        self._counts.hits += 1
        if self._sliding is not None and look.left_ms is not None and self._sliding.is_due(look.left_ms):
            await self._touch(look.key)
        return CacheResult(look.value, "hit")

    async def get_many(self, keys: Iterable[Key[T]], load: Callable[[Key[T]], Awaitable[T | None]]) -> list[T | None]:
        """The values of several keys, in order: one round trip for all hits.

        For each miss `load(key)` is called, concurrently. If some fail, the first error is raised when all are done.
        """
        looks = await self._look_up(list(keys))

        async def resolve(look: CacheLookup[T]) -> T | None:
            return (await self.answer_to(look, lambda: load(look.key))).value

        ends = await asyncio.gather(*map(resolve, looks), return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException):
                raise end
        return [end for end in ends if not isinstance(end, BaseException)]

    async def refresh(self, key: Key[T], load: Load[T]) -> T | None:
        """Load now, whether there is an entry or not, and write the result.

        The value comes from a load that started after this call. Concurrent calls share one; a load already under way
        is waited for first. A failure gives the same as in `get`, and until `retry` of the markers is over
        there is no new load, not even by this method.
        """
        if key.bound is not self._entries:
            raise self._wrong_family(key)
        task = self._refreshes.get(key.key)
        if task is None:
            task = self._start_flight(self._refreshes, key, load, refreshes=True)
        else:
            self._counts.waits += 1
        return (await self._wait_for(task)).value

    # --- writing -------------------------------------------------------------------------------------------

    def put(self, key: Key[T], value: T) -> Operation[None]:
        """Write a known value, in one atomic step. Loads that started earlier write nothing.

        Await it, or give it to `atomically` together with the change it reflects.
        """
        return self._storage_of(key).put(value)

    async def change(self, key: Key[T], fields: Mapping[str, Any]) -> bool:
        """Change these fields of an existing entry, and no others; None removes a field. For hashes.

        False: there is no entry, and none is created. In either case no load
        that started earlier writes anything afterwards, and the stale copy is deleted. One round trip; two if there is
        no entry. As with `invalidate`, change the data that the loader reads first.
        """
        place = self._storage_of(key)
        if not isinstance(self._entries.family, Hash):
            raise BadDeclaration(f"{self._entries.family.place} is not a Hash, so it has no fields to change; use put")
        with suppress(WrongKind):  # the key holds another kind of value
            if await place.change(fields):
                return True
        # A load that read before the change may interleave and write now. So drop the entry and its marker.
        await place.drop()
        return False

    def invalidate(self, key: Key[T]) -> Operation[bool]:
        """Drop the entry, its stale copy and its marker, for all processes. False: there was no entry.

        No load that started earlier writes anything afterwards, and later reads get a value loaded afterwards. Await
        it, or give it to `atomically` together with the write that makes the entry wrong: then no reader sees one
        without the other. Deleting only the key of the entry does not do this.
        """
        return self._storage_of(key).drop()

    async def close(self) -> None:
        """Stop the loads in progress, so that other processes may load. Their callers get LoadFailed."""
        running = list(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- inside --------------------------------------------------------------------------------------------

    def _entry(self, key: Key[T]) -> Any:
        """The key as the cache reads it: a marker in its place counts as no entry."""
        return key if self._with_marks is None else type(key)(self._with_marks, key.key)

    def _reads(self, key: Key[T]) -> list[Operation[Any]]:
        """The operations that read an entry, and its TTL if the lifetime is sliding."""
        read = self._entry(key).get()
        return [read] if self._sliding is None else [read, key.left_ms()]

    async def _look_up(self, keys: Sequence[Key[T]]) -> list[CacheLookup[T]]:
        """Look up each key, in one round trip."""
        for key in keys:
            if key.bound is not self._entries:
                raise self._wrong_family(key)
        reads = [read for key in keys for read in self._reads(key)]
        try:
            found: Sequence[Any] = await self._entries.keyspace.run(*reads)
        except (StoreError, Unreadable) as error:
            found = error.results or [error] * len(reads)
        each = 1 if self._sliding is None else 2
        return [_lookup_result(key, *found[at * each : (at + 1) * each]) for at, key in enumerate(keys)]

    async def _touch(self, key: Key[T]) -> None:
        """Extend the TTL of an entry. A dropped entry stays dropped. Failure is only logged: the value was read."""
        try:
            await key.touch()
        except StoreError as error:
            _log.warning("%s was used, but its TTL could not be extended: %s", self._entries.family.place, error.code)

    async def _handle_miss(
        self, key: Key[T], load: Load[T], error: Unreadable | StoreError | None = None
    ) -> CacheResult[T]:
        """Handle a miss, an unreadable entry or a store outage."""
        is_unreadable = isinstance(error, Unreadable)
        if isinstance(error, Unreadable):
            log_unreadable(self._entries.store, error)
        away = error is not None and not is_unreadable
        if error is not None and away and (isinstance(error, CommandError) or not self._loads_without_store):
            raise error
        task = self._flights.get(key.key)
        if task is None:
            task = self._start_flight(self._flights, key, load, over=is_unreadable, away=away)
        else:
            self._counts.waits += 1
        return await self._wait_for(task, away=away)

    def _start_flight(
        self, flights: dict[str, asyncio.Task[Any]], key: Key[T], load: Load[T], **options: bool
    ) -> asyncio.Task[Any]:
        """Start a load that callers can join. It is a separate task, so cancelling a caller does not cancel it."""

        def close() -> None:
            if flights.get(name) is task:
                del flights[name]

        def finish(done: asyncio.Task[Any]) -> None:
            close()
            self._running.discard(done)
            if self._latest.get(name) is done:
                del self._latest[name]

        name, marks = key.key, self._marks.family
        flight = Flight(
            self._storage_of(key),
            marks,
            load,
            self._counts,
            self._wait,
            close,
            loads_anyway=self._loads_without_store,
            before=self._latest.get(name),
            **options,
        )
        task = asyncio.create_task(flight.fly(), name="keystead cache")
        flights[name] = self._latest[name] = task
        self._running.add(task)
        task.add_done_callback(finish)
        return task

    async def _wait_for(self, task: asyncio.Task[Any], *, away: bool = False) -> CacheResult[T]:
        """Wait for the result of a flight, and count it. Cancelling the caller does not cancel the flight."""
        await asyncio.wait((task,))
        counts = self._counts
        end = LoadFailure("LoadCancelled", 0) if task.cancelled() else task.result()
        if away:
            counts.away += 1
        elif isinstance(end, CacheResult) and end.how == "nothing":
            counts.nothings += 1
        else:
            counts.misses += 1
        match end:
            case CacheResult():
                counts.stale += end.how == "stale"
                return end
            case Raised(error):
                raise error
            case LoadFailure(why, retry_ms, cause):
                raise LoadFailed(self._entries.family.place, why, retry_ms) from cause
        raise AssertionError("a flight ends in one of these ways")  # pragma: no cover

    def _storage_of(self, key: Key[T]) -> EntryStorage:
        if key.bound is not self._entries:
            raise self._wrong_family(key)
        if self._marks_inside is not None:
            return EntryStorage(self._entry(key), ValueKey(self._marks_inside, key.key), None, self._marks.family)
        values = key.values
        stale = None if self._stale is None else self._stale(**values)
        return EntryStorage(key, self._marks(**values), stale, self._marks.family)

    def _wrong_family(self, key: Any) -> BadKey:
        place = self._entries.family.place
        return BadKey(f"this cache is for {place}; pass a key of that family, made by its keyspace")


def _lookup_result(key: Any, *found: Any) -> CacheLookup[Any]:
    """The lookup result from an entry, its TTL, or an error in place of either."""
    for one in found:
        if isinstance(one, StoreError | Unreadable):
            return CacheLookup(key, error=one)
    return CacheLookup(key, found[0], left_ms=found[1] if len(found) > 1 else None)


def _check_declared(entries: Any, marks: Any, stale: Any) -> Bound[ValueKey[Any]]:
    """The markers. Raises BadDeclaration if these families do not make a cache."""
    for bound, lifetimes in (
        (entries, After | Spread | Sliding),
        *(() if stale is None else ((stale, After | Spread),)),
    ):
        if (
            not isinstance(bound, Bound)
            or not isinstance(bound.family, Value | Hash)
            or isinstance(bound.family, LoadMarkers)
        ):
            raise BadDeclaration("a cache needs a family Value(…) or Hash(…), as in Cache(keys.membership, …)")
        if not isinstance(bound.family.lifetime, lifetimes):
            slides = "" if bound is stale else ', or a sliding one, as in sliding("30m", touch_every="1m")'
            raise BadDeclaration(
                f'{bound.family.place}: a cache entry needs a fixed lifetime, as in after("1h") or '
                f'after("1h", jitter="10%"){slides}'
            )
    if not isinstance(marks, Bound) or not isinstance(marks.family, LoadMarkers):
        raise BadDeclaration(
            'a cache needs a family LoadMarkers(…) for its markers, as in LoadMarkers("membership:{id}:mark", tag="id")'
        )
    own = set(entries.family.pattern.names)
    for bound in (marks, *(() if stale is None else (stale,))):
        if set(bound.family.pattern.names) != own:
            raise BadDeclaration(f"{bound.family.place} needs the same placeholders as {entries.family.place}")
    if stale is None:
        return marks
    if isinstance(entries.family.lifetime, Sliding):
        raise BadDeclaration(f"{entries.family.place} is sliding, so no stale copy can outlive it; leave stale= out")
    if stale.family.kind_name != entries.family.kind_name or _type_of(stale.family) != _type_of(entries.family):
        raise BadDeclaration(f"{stale.family.place} holds copies of {entries.family.place}, so it needs the same type")
    if stale.family.lifetime.longest_ms <= entries.family.lifetime.longest_ms:
        raise BadDeclaration(f"{stale.family.place} must live longer than an entry, to be served when it is gone")
    return marks


def _markers_inside(entries: Bound[Any], marks: Bound[Any], stale: Bound[Any] | None) -> bool:
    """Whether markers take the place of entries in this store. Raises DoesNotFit for an unsuitable store."""
    store, place = entries.store, entries.family.place
    families = [entries.family, marks.family, *(() if stale is None else (stale.family,))]
    if marks.store is not store or (stale is not None and stale.store is not store):
        raise DoesNotFit(f"the cache of {place} is written in one atomic step; give all its families one role")
    for why in marks.family.further_misfits(store.guarantees):
        raise DoesNotFit(f"{marks.family.place} does not fit {store.url}: {why}")
    if not spans_keys(store):
        if isinstance(entries.family.lifetime, Sliding):
            raise DoesNotFit(
                f"{place} does not fit {store.url}: markers take the place of entries there, and a touch could extend "
                "a marker; give it a fixed lifetime"
            )
        if stale is not None:
            raise DoesNotFit(
                f"{stale.family.place} does not fit {store.url}: an entry and its stale copy are dropped in one atomic "
                "step, and there a step covers one key; leave stale= out"
            )
        return True
    tags = {family.pattern.tag for family in families}
    if has_slots(store) and (len(tags) > 1 or tags == {None}):
        raise DoesNotFit(
            f"the cache of {place} does not fit {store.url}: its families are written in one step, so they need one "
            "slot; give all of them the same tag="
        )
    return False


def _type_of(family: Any) -> Any:
    return family.type if isinstance(family, Hash) else family.codec.type
