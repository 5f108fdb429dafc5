"""Cache, as a part: what a provider said, for a while, and one question to it at a time."""

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
    """One cache: `Cache(keys.membership, keys.membership_mark, stale=keys.membership_stale)`.

        class AppKeys(Keyspace):
            membership = Value("membership:{id}", Membership, lifetime=after("1h", jitter="10%"), role="cache", …)
            membership_mark = LoadMarkers("membership:{id}:mark", loading="10s", retry="5s", nothing="1m", …)
            membership_stale = Value("membership:{id}:stale", Membership, lifetime=after("1d"), role="cache", …)

    entries      a family of values or of hashes. It says how long an entry counts: a fixed time, or with `sliding` as
                 long as it is used
    marks        its marks, which say who loads and how long that may take
    stale        a family of the same values that live longer: what is answered when the provider cannot be asked
    store_down   when the store cannot be asked: `load` asks the provider, once at a time for each key in this process;
                 `raise` raises the error of the store

    An entry that is dropped (`invalidate`) is gone for all processes at once, and no load that began before writes it
    again. `longest_staleness` is how old an answer may be where nobody drops anything.

    Raises BadDeclaration for families of another shape, and DoesNotFit for a store that has no atomic steps. On a
    cluster all families need one slot: give them one `tag`. On Memcached, where an atomic step is about one key, marks
    stand in the place of the entries, and there are no stale copies. `wait` is for tests.
    """

    def __init__(
        self,
        entries: Bound[ValueKey[T]] | Bound[HashKey[T, Any, Any]],
        marks: Bound[ValueKey[Any]],
        *,
        stale: Bound[ValueKey[T]] | Bound[HashKey[T, Any, Any]] | None = None,
        store_down: Literal["load", "raise"] = "load",
        wait: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        _check_declared(entries, marks, stale)
        inside = _stand_inside(entries, marks, stale)
        if store_down not in ("load", "raise"):
            raise BadDeclaration(f'store_down is "load" or "raise", not {store_down!r}')
        self._entries: Bound[Any] = entries
        self._marks = marks
        self._stale = stale
        self._loads_anyway = store_down == "load"
        self._wait = wait
        self._with_marks = entries.holding(EntriesWithMarks(entries)) if inside else None
        self._marks_inside = entries.holding(MarksInside(marks), marks.family.lifetime) if inside else None
        lifetime = entries.family.lifetime
        self._sliding = lifetime if isinstance(lifetime, Sliding) else None
        self._flights: dict[str, asyncio.Task[Any]] = {}  # by key: those that may be joined
        self._refreshes: dict[str, asyncio.Task[Any]] = {}
        self._latest: dict[str, asyncio.Task[Any]] = {}  # those that were started last
        self._running: set[asyncio.Task[Any]] = set()
        self._counts = CacheCounts()

    @property
    def longest_staleness(self) -> timedelta:
        """How old an answer may be, counted from when the provider was asked, where nobody drops the entry.

        It is the lifetime of the stale copy, or of the entry where there is none. When they end is decided by the clock
        of the store; how long a load took by that of the process that loaded, which can be wrong by `loading` at most.
        An entry that lives on by use is dropped by `invalidate` and by nothing else: it is `timedelta.max`.
        """
        return self.longest_freshness if self._stale is None else self._longest(self._stale)

    @property
    def longest_freshness(self) -> timedelta:
        """The same while the provider answers: then no answer comes from a stale copy."""
        return self._longest(self._entries)

    def _longest(self, bound: Bound[Any]) -> timedelta:
        if self._sliding is not None:
            return timedelta.max
        loading_ms: int = self._marks.family.marked.loading_ms  # what was just loaded is answered in any case
        return timedelta(milliseconds=max(loading_ms, bound.family.lifetime.longest_ms))

    @property
    def counts(self) -> CacheCounts:
        """What this cache has done in this process so far: a copy."""
        return replace(self._counts)

    # --- asking --------------------------------------------------------------------------------------------

    async def get(self, key: Key[T], load: Load[T]) -> T | None:
        """The value; where there is no entry, `load()` is asked, by one caller at a time across all processes.

        None: the provider says that there is nothing. A hit is one round trip. Whoever comes while it is loaded waits
        for that load, and where that caller is cancelled, the load goes on. Where the load fails, the stale copy is
        answered, or LoadFailed raised; then nobody asks the provider for as long as the marks say (`retry`). Raises
        the error of the store where that is away and `store_down` is `raise`.
        """
        if key.bound is not self._entries:
            raise self._stranger(key)
        if self._sliding is not None:
            return (await self.answer(key, load)).value
        try:
            value: T | None = await self._entry(key).get()
        except (Unreadable, StoreError) as error:
            return (await self._missed(key, load, error)).value
        if value is None:
            return (await self._missed(key, load)).value
        self._counts.hits += 1
        return value

    async def answer(self, key: Key[T], load: Load[T]) -> CacheResult[T]:
        """As `get`, and how the answer was found."""
        [look] = await self._looks([key])
        return await self.answer_to(look, load)

    def look(self, key: Key[T]) -> Operation[CacheLookup[T]]:
        """A look at the entry as an operation, so that it leaves in one round trip with others:

            look, is_revoked = await keys.run(cache.look(key), access.is_revoked(found))
            answer = await cache.answer_to(look, load)

        It says whether there is an entry, loads nothing, and does not count as a use.
        """
        if key.bound is not self._entries:
            raise self._stranger(key)
        read, *left = self._reads(key)
        return combine("look", [read.or_error(), *left], lambda *found: _look_of(key, *found), atomic=False)

    async def answer_to(self, look: CacheLookup[T], load: Load[T]) -> CacheResult[T]:
        """The answer to a look. Where it found an entry this costs nothing, but for a touch each `touch_every` where
        the lifetime is sliding; where it did not, this is what `answer` does then.

        Where the look itself failed, as in `keys.run`, give it the error: `CacheLookup(key, error=error)`.
        """
        if look.value is None or look.error is not None:
            return await self._missed(look.key, load, look.error)
        self._counts.hits += 1
        if self._sliding is not None and look.left_ms is not None and self._sliding.is_due(look.left_ms):
            await self._touch(look.key)
        return CacheResult(look.value, "hit")

    async def get_many(self, keys: Iterable[Key[T]], load: Callable[[Key[T]], Awaitable[T | None]]) -> list[T | None]:
        """The values of several keys in their order: one round trip for all that are there.

        For each other `load(key)` is asked, all at once. Where some fail, the first error is raised when all are done.
        """
        looks = await self._looks(list(keys))

        async def one(look: CacheLookup[T]) -> T | None:
            return (await self.answer_to(look, lambda: load(look.key))).value

        ends = await asyncio.gather(*map(one, looks), return_exceptions=True)
        for end in ends:
            if isinstance(end, BaseException):
                raise end
        return [end for end in ends if not isinstance(end, BaseException)]

    async def refresh(self, key: Key[T], load: Load[T]) -> T | None:
        """Ask the provider now, whether there is an entry or not, and write what it says.

        The answer comes from a load that began after this call. Callers at the same time share one; where a load is
        under way already, it is waited for first. After a failure the same is answered as by `get`, and for as long
        as the marks say nobody asks again, not even this.
        """
        if key.bound is not self._entries:
            raise self._stranger(key)
        task = self._refreshes.get(key.key)
        if task is None:
            task = self._started(self._refreshes, key, load, refreshes=True)
        else:
            self._counts.waits += 1
        return (await self._landed(task)).value

    # --- changing ------------------------------------------------------------------------------------------

    def put(self, key: Key[T], value: T) -> Operation[None]:
        """Write a value that is known, in one atomic step. Loads that began before write nothing any more.

        Await it, or give it to `atomically` together with what it tells of.
        """
        return self._place_of(key).put(value)

    async def change(self, key: Key[T], fields: Mapping[str, Any]) -> bool:
        """Change these fields of an entry that is there, and no others; None takes a field out. For hashes.

        False: there is no entry, and none is made: what was dropped or has expired stays so. In either case no load
        that began before writes anything after this, and a stale copy is gone. One round trip; two where there is
        no entry. As with `invalidate`, change first what the loader reads.
        """
        place = self._place_of(key)
        if not isinstance(self._entries.family, Hash):
            raise BadDeclaration(f"{self._entries.family.place} is no Hash, so it has no fields to change; use put")
        with suppress(WrongKind):  # the key of the entry holds something else altogether
            if await place.change(fields):
                return True
        # Who may come between: a load that read before the change, and writes now. So it is dropped with its mark.
        await place.drop()
        return False

    def invalidate(self, key: Key[T]) -> Operation[bool]:
        """Drop the entry, its stale copy and its mark, for all processes at once. False: there was no entry.

        No load that began before writes anything after this, and whoever asks after this gets what is loaded after
        this. Await it, or give it to `atomically` together with the write that makes the entry wrong: then nobody sees
        one without the other. To delete the key of the entry alone does not do this.
        """
        return self._place_of(key).drop()

    async def close(self) -> None:
        """Stop the loads that are under way, so that others may load at once. Whoever waits for one gets LoadFailed."""
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
        """The key as it is read here: for a mark that stands in its place there is no entry."""
        return key if self._with_marks is None else type(key)(self._with_marks, key.key)

    def _reads(self, key: Key[T]) -> list[Operation[Any]]:
        """What reads an entry, and how long it lives where that is to be known."""
        read = self._entry(key).get()
        return [read] if self._sliding is None else [read, key.left_ms()]

    async def _looks(self, keys: Sequence[Key[T]]) -> list[CacheLookup[T]]:
        """A look at each key, in one round trip."""
        for key in keys:
            if key.bound is not self._entries:
                raise self._stranger(key)
        reads = [read for key in keys for read in self._reads(key)]
        try:
            found: Sequence[Any] = await self._entries.keyspace.run(*reads)
        except (StoreError, Unreadable) as error:
            found = error.results or [error] * len(reads)
        each = 1 if self._sliding is None else 2
        return [_look_of(key, *found[at * each : (at + 1) * each]) for at, key in enumerate(keys)]

    async def _touch(self, key: Key[T]) -> None:
        """Let an entry live on. What was dropped meanwhile stays so; and it was read, whether this succeeds or not."""
        try:
            await key.touch()
        except StoreError as error:
            _log.warning("%s was used, and could not be touched: %s", self._entries.family.place, error.code)

    async def _missed(self, key: Key[T], load: Load[T], error: Unreadable | StoreError | None = None) -> CacheResult[T]:
        """There is no entry, or it could not be read."""
        over = isinstance(error, Unreadable)
        if isinstance(error, Unreadable):
            log_unreadable(self._entries.store, error)
        away = error is not None and not over
        if error is not None and away and (isinstance(error, CommandError) or not self._loads_anyway):
            raise error
        task = self._flights.get(key.key)
        if task is None:
            task = self._started(self._flights, key, load, over=over, away=away)
        else:
            self._counts.waits += 1
        return await self._landed(task, away=away)

    def _started(
        self, flights: dict[str, asyncio.Task[Any]], key: Key[T], load: Load[T], **options: bool
    ) -> asyncio.Task[Any]:
        """A load for all who join. It is a task of its own, so that no caller who is cancelled takes it along."""

        def close() -> None:
            if flights.get(name) is task:
                del flights[name]

        def landed(done: asyncio.Task[Any]) -> None:
            close()
            self._running.discard(done)
            if self._latest.get(name) is done:
                del self._latest[name]

        name, marks = key.key, self._marks.family
        flight = Flight(
            self._place_of(key),
            marks,
            load,
            self._counts,
            self._wait,
            close,
            loads_anyway=self._loads_anyway,
            before=self._latest.get(name),
            **options,
        )
        task = asyncio.create_task(flight.fly(), name="keystead cache")
        flights[name] = self._latest[name] = task
        self._running.add(task)
        task.add_done_callback(landed)
        return task

    async def _landed(self, task: asyncio.Task[Any], *, away: bool = False) -> CacheResult[T]:
        """The answer of a flight, counted. It does not end with whoever waits for it."""
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

    def _place_of(self, key: Key[T]) -> EntryStorage:
        if key.bound is not self._entries:
            raise self._stranger(key)
        if self._marks_inside is not None:
            return EntryStorage(self._entry(key), ValueKey(self._marks_inside, key.key), None, self._marks.family)
        values = key.values
        stale = None if self._stale is None else self._stale(**values)
        return EntryStorage(key, self._marks(**values), stale, self._marks.family)

    def _stranger(self, key: Any) -> BadKey:
        place = self._entries.family.place
        return BadKey(f"this is a cache of {place}, and takes keys of that family as its keyspace makes them")


def _look_of(key: Any, *found: Any) -> CacheLookup[Any]:
    """A look that found this: an entry, how long it lives, or an error in the place of either."""
    for one in found:
        if isinstance(one, StoreError | Unreadable):
            return CacheLookup(key, error=one)
    return CacheLookup(key, found[0], left_ms=found[1] if len(found) > 1 else None)


def _check_declared(entries: Any, marks: Any, stale: Any) -> None:
    """Raises BadDeclaration where a cache cannot be made of these families."""
    for bound, lifetimes in (
        (entries, After | Spread | Sliding),
        *(() if stale is None else ((stale, After | Spread),)),
    ):
        if (
            not isinstance(bound, Bound)
            or not isinstance(bound.family, Value | Hash)
            or isinstance(bound.family, LoadMarkers)
        ):
            raise BadDeclaration("a cache is made of a family Value(…) or Hash(…), as in Cache(keys.membership, …)")
        if not isinstance(bound.family.lifetime, lifetimes):
            slides = "" if bound is stale else ', or as long as it is used, as in sliding("30m", touch_every="1m")'
            raise BadDeclaration(
                f'{bound.family.place}: what is cached lives for a fixed time, as in after("1h") or '
                f'after("1h", jitter="10%"){slides}'
            )
    if not isinstance(marks, Bound) or not isinstance(marks.family, LoadMarkers):
        raise BadDeclaration(
            'the marks of a cache are a family LoadMarkers(…), as in LoadMarkers("membership:{id}:mark", tag="id")'
        )
    own = set(entries.family.pattern.names)
    for bound in (marks, *(() if stale is None else (stale,))):
        if set(bound.family.pattern.names) != own:
            raise BadDeclaration(
                f"{bound.family.place} stands beside {entries.family.place}, so it has the same placeholders"
            )
    if stale is None:
        return
    if isinstance(entries.family.lifetime, Sliding):
        raise BadDeclaration(
            f"{entries.family.place} lives as long as it is used, so no stale copy outlives it; leave stale= out"
        )
    if type(stale.family) is not type(entries.family) or _type_of(stale.family) != _type_of(entries.family):
        raise BadDeclaration(f"{stale.family.place} holds copies of {entries.family.place}, so it has the same type")
    if stale.family.lifetime.longest_ms <= entries.family.lifetime.longest_ms:
        raise BadDeclaration(f"{stale.family.place} is for when an entry is gone, so it lives longer than one")


def _stand_inside(entries: Bound[Any], marks: Bound[Any], stale: Bound[Any] | None) -> bool:
    """Whether marks stand in the place of entries in this store. Raises DoesNotFit where neither can be done."""
    store, place = entries.store, entries.family.place
    families = [entries.family, marks.family, *(() if stale is None else (stale.family,))]
    if marks.store is not store or (stale is not None and stale.store is not store):
        raise DoesNotFit(f"the cache of {place} is written in one atomic step; give all its families one role")
    for why in marks.family.further_misfits(store.guarantees):
        raise DoesNotFit(f"{marks.family.place} does not fit {store.url}: {why}")
    if not spans_keys(store):
        if isinstance(entries.family.lifetime, Sliding):
            raise DoesNotFit(
                f"{place} does not fit {store.url}: a mark stands in the place of an entry there, and a use could let "
                "the mark live on; give it a fixed lifetime"
            )
        if stale is not None:
            raise DoesNotFit(
                f"{stale.family.place} does not fit {store.url}: an entry and its stale copy are dropped in one atomic "
                "step, and there such a step is about one key; make the cache without stale="
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
