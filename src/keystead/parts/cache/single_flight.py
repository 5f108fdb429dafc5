"""Single flight: one load of a key, shared by all callers in this process that wait for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from keystead.errors import CommandError, KeysteadError, StoreError, Unreadable, WrongKind
from keystead.parts.cache.load_markers import LoadMarker, LoadMarkers
from keystead.parts.cache.load_results import CacheCounts, CacheResult, TryLater
from keystead.parts.cache.storage import EntryStorage, StoredEntry
from keystead.schema import Bound, Operation
from keystead.schema.kinds import Seen
from keystead.schema.unreadable import log_unreadable

_log = logging.getLogger("keystead.cache")

# The pause between polls for a load of another process: a quarter of the time waited so far, within these bounds.
_FIRST_PAUSE_MS: Final = 4
_LONGEST_PAUSE_MS: Final = 128


@dataclass(frozen=True, slots=True)
class LoadFailure:
    """The end of a flight without a value."""

    why: str
    retry_ms: int
    cause: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Raised:
    """The end of a flight by an error that is not the provider's."""

    error: Exception


@dataclass(frozen=True, slots=True)
class _Replace:
    """Replace what was read by our marker."""

    seen: Seen[Any] | None


@dataclass(frozen=True, slots=True)
class _Wait:
    """Another process is loading."""


End: TypeAlias = CacheResult[Any] | LoadFailure


class Flight:
    """Looks up, loads and writes, once for all callers that join.

    place          the storage of the entry
    load           calls the provider
    close          called when no more callers may join
    loads_anyway   whether to load during a store outage
    before         the previous flight for the same key, which may still be running
    refreshes      load even if there is an entry
    over           the existing entry is unreadable
    away           the store is known to be down
    """

    def __init__(
        self,
        place: EntryStorage,
        marks: LoadMarkers,
        load: Callable[[], Awaitable[Any]],
        counts: CacheCounts,
        wait: Callable[[float], Awaitable[Any]],
        close: Callable[[], object],
        *,
        loads_anyway: bool,
        before: asyncio.Task[Any] | None = None,
        refreshes: bool = False,
        over: bool = False,
        away: bool = False,
    ) -> None:
        self._place = place
        bound: Bound[Any] = place.entry.bound
        self._name: str = bound.family.place
        self._now_ms = bound.now_ms
        self._store = bound.store
        self._started_ms = 0
        self._times = marks.marked
        self._load = load
        self._counts = counts
        self._wait = wait
        self._close = close
        self._loads_without_store = loads_anyway
        self._before = before
        self._refreshes = refreshes
        self._over = over or refreshes
        self._away = away

    async def fly(self) -> End | Raised:
        """Run the flight. It raises nothing, because its end is shared by many callers."""
        try:
            return await self._run()
        except Exception as error:
            return Raised(error)

    async def _run(self) -> End:
        if self._away:
            return await self._load_without_store()
        # An invalidation may overtake the first load: callers that joined after it must not get the older value. Then
        # load again, and let no one join once that has started: its value is new enough for all who wait.
        end = None if self._refreshes else await self._attempt(last=False)
        return end or await self._attempt(last=True) or LoadFailure("Contended", 0)

    async def _attempt(self, *, last: bool) -> End | None:
        """One attempt. None: the loaded value may be too old for some callers."""
        try:
            end = await self._wait_for_turn()
        except Unreadable as error:  # the marker key holds another kind, so it cannot mark anything
            log_unreadable(self._store, error)
            return await self._load_without_store()
        except StoreError as error:
            if isinstance(error, CommandError) or not self._loads_without_store:
                raise
            return await self._load_without_store()
        if end is not None:
            return end
        if last:
            self._close()
        if self._over and not self._refreshes:
            self._counts.unreadable += 1
        try:
            return await self._load_and_write(last=last)
        except asyncio.CancelledError:
            with suppress(KeysteadError):  # otherwise the marker expires
                await self._place.give_back()
            raise

    # --- whose turn it is ----------------------------------------------------------------------------------

    async def _wait_for_turn(self) -> End | None:
        """Wait until there is a result, or (None) until it is our turn to load."""
        waited_ms = 0
        instead_of: Seen[Any] | None = None
        waits = False
        while True:
            stored = await self._look_up(instead_of)
            if stored.taken:
                return None
            if waited_ms >= 2 * self._times.loading_ms:
                return self._stale_or(LoadFailure("TimeoutError", 0), stored)
            instead_of = None
            pause_ms = min(max(_FIRST_PAUSE_MS, waited_ms // 4), _LONGEST_PAUSE_MS)
            match self._decide(stored):
                case _Replace(seen):
                    instead_of = seen
                case _Wait():
                    self._counts.waits += not waits
                    waits = True
                    await self._wait(pause_ms / 1000)
                    self._over = self._refreshes  # the unreadable entry may have been replaced meanwhile
                case end:
                    return end
            waited_ms += pause_ms

    async def _look_up(self, instead_of: Seen[Any] | None) -> StoredEntry:
        try:
            return await self._place.look(over=self._over, instead_of=instead_of)
        except WrongKind as error:
            log_unreadable(self._store, error)
            self._over = True  # the key holds another kind of value
            return await self._place.look(over=True, instead_of=instead_of)

    def _decide(self, stored: StoredEntry) -> End | _Replace | _Wait:
        """Decide what to do after a lookup that did not write our marker."""
        entry, seen = stored.entry, stored.mark
        if isinstance(entry, Unreadable):
            log_unreadable(self._store, entry)
            self._over = True
            return _Replace(None)
        if entry is not None:
            return CacheResult(entry, "hit")
        if seen is None or not seen.value:  # the marker has just gone, or is unreadable
            return _Replace(seen)
        mark: LoadMarker = seen.value
        match mark.state:
            case "loading":
                return _Wait()
            case "nothing":
                return _Replace(seen) if self._refreshes else CacheResult(None, "nothing")
            case "failed":
                return self._stale_or(LoadFailure(mark.why or "Exception", mark.retry_ms or 0), stored)

    def _stale_or(self, failed: LoadFailure, stored: StoredEntry) -> End:
        if isinstance(stored.stale, Unreadable):
            log_unreadable(self._store, stored.stale)
            self._counts.unreadable += 1
            return failed
        return failed if stored.stale is None else CacheResult(stored.stale, "stale")

    # --- calling the provider -----------------------------------------------------------------------------

    async def _load_and_write(self, *, last: bool) -> End | None:
        try:
            value = await self._call_provider()
            operations = self._write_operations(value)
        except Exception as error:
            return await self._record_failure(error, last=last)
        try:
            written = await self._place.run_guarded(operations)
        except StoreError as error:
            if isinstance(error, CommandError) and not isinstance(error, Unreadable):
                raise
            self._counts.unwritten += 1
            _log.warning("%s was loaded and could not be written: %s", self._name, error.code)
            # It may have been dropped meanwhile. So load again if callers may have joined.
            return (
                CacheResult(value, "loaded")
                if last or not self._loads_without_store
                else await self._load_without_store()
            )
        if not written:
            # A drop, a put, or the expiry of our marker came first. The loaded value is older than that.
            self._counts.refused += 1
        return CacheResult(value, "loaded") if written or last else None

    async def _record_failure(self, error: Exception, *, last: bool) -> End | None:
        why, retry_ms = self._count_failure(error), self._times.retry_ms
        if isinstance(error, TryLater):
            retry_ms = min(max(error.after_ms, retry_ms), self._times.retry_at_most_ms)
        try:
            stored = await self._place.record_failure(why, retry_ms)
        except StoreError as store_error:
            if isinstance(store_error, CommandError) and not isinstance(store_error, Unreadable):
                raise
            return LoadFailure(why, 0, error)
        if not stored.taken and not last:
            return None
        return self._stale_or(LoadFailure(why, retry_ms if stored.taken else 0, error), stored)

    async def _load_without_store(self) -> End:
        """Load without the store: one load at a time for each key in this process, for all earlier callers.

        No marker tells whether the entry was dropped meanwhile, so no caller joins a load that has started.
        """
        if self._before is not None:
            await asyncio.wait((self._before,))
        self._close()
        try:
            value = await self._call_provider()
            if value is not None:
                self._place.check(value)
        except Exception as error:
            return LoadFailure(self._count_failure(error), 0, error)
        return CacheResult(value, "loaded")

    def _write_operations(self, value: Any) -> list[Operation[Any]]:
        """The operations that write the loaded value."""
        if value is None:
            return self._place.nothing_operations(self._times.nothing_ms)
        return self._place.fill_operations(value, self._now_ms() - self._started_ms)

    async def _call_provider(self) -> Any:
        """Call the provider. Raises its error, or TimeoutError if it takes too long."""
        self._counts.loads += 1
        self._started_ms = self._now_ms()
        try:
            async with asyncio.timeout(self._times.load_s):
                return await self._load()
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # The loader cancelled itself, which must not cancel the callers.
            raise LoadCancelled("the loader was cancelled from within") from error

    def _count_failure(self, error: Exception) -> str:
        why = type(error).__name__
        self._counts.failures += 1
        _log.warning("%s could not be loaded: %s", self._name, why)
        return why


class LoadCancelled(Exception):
    """The loader cancelled itself."""
