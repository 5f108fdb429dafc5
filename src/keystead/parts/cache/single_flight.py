"""A flight: one question to the provider, and all in this process who wait for its answer."""

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

# Between two looks at what another process loads: a quarter of the time that was waited so far, within these bounds. So
# its answer is seen at most so much later than it came.
_FIRST_PAUSE_MS: Final = 4
_LONGEST_PAUSE_MS: Final = 128


@dataclass(frozen=True, slots=True)
class LoadFailure:
    """How a flight ends that has no answer."""

    why: str
    retry_ms: int
    cause: BaseException | None = None


@dataclass(frozen=True, slots=True)
class Raised:
    """How a flight ends on an error that is not the provider's."""

    error: Exception


@dataclass(frozen=True, slots=True)
class _Replace:
    """What was seen is to be replaced by our mark."""

    seen: Seen[Any] | None


@dataclass(frozen=True, slots=True)
class _Wait:
    """Somebody else loads it."""


End: TypeAlias = CacheResult[Any] | LoadFailure


class Flight:
    """Looks, loads and writes, once for all who join.

    place          where the entry is
    load           asks the provider
    close          called when nobody may join any more
    loads_anyway   whether the provider is asked where the store is away
    before         the flight for the same key before this one, where it may not have landed
    refreshes      whether it is asked although there is an entry
    over           whether the entry that is there cannot be read
    away           whether the store was found to be away already
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
        self._asked_ms = 0
        self._times = marks.marked
        self._load = load
        self._counts = counts
        self._wait = wait
        self._close = close
        self._loads_anyway = loads_anyway
        self._before = before
        self._refreshes = refreshes
        self._over = over or refreshes
        self._away = away

    async def fly(self) -> End | Raised:
        """How it ends. It raises nothing, because it ends for many."""
        try:
            return await self._flown()
        except Exception as error:
            return Raised(error)

    async def _flown(self) -> End:
        if self._away:
            return await self._loaded_anyway()
        # The first load may be overtaken: whoever joined after a drop must not get what was read before it. Then it
        # loads again, and nobody may join once that has begun: what it reads is new enough for all who wait.
        end = None if self._refreshes else await self._tried(last=False)
        return end or await self._tried(last=True) or LoadFailure("Contended", 0)

    async def _tried(self, *, last: bool) -> End | None:
        """How it ends; None: what was loaded may be too old for some of those who wait."""
        try:
            end = await self._turn()
        except Unreadable as error:  # what stands beside the entry is of another kind: it can mark nothing
            log_unreadable(self._store, error)
            return await self._loaded_anyway()
        except StoreError as error:
            if isinstance(error, CommandError) or not self._loads_anyway:
                raise
            return await self._loaded_anyway()
        if end is not None:
            return end
        if last:
            self._close()
        if self._over and not self._refreshes:
            self._counts.unreadable += 1
        try:
            return await self._loaded(last=last)
        except asyncio.CancelledError:
            with suppress(KeysteadError):  # else it ends by itself
                await self._place.give_back()
            raise

    # --- whose turn it is ----------------------------------------------------------------------------------

    async def _turn(self) -> End | None:
        """Wait until there is an answer, or (None) until it is our turn to load."""
        waited_ms = 0
        instead_of: Seen[Any] | None = None
        waits = False
        while True:
            looked = await self._looked(instead_of)
            if looked.taken:
                return None
            if waited_ms >= 2 * self._times.loading_ms:
                return self._stale_or(LoadFailure("TimeoutError", 0), looked)
            instead_of = None
            pause_ms = min(max(_FIRST_PAUSE_MS, waited_ms // 4), _LONGEST_PAUSE_MS)
            match self._read(looked):
                case _Replace(seen):
                    instead_of = seen
                case _Wait():
                    self._counts.waits += not waits
                    waits = True
                    await self._wait(pause_ms / 1000)
                    self._over = self._refreshes  # what cannot be read may have been replaced meanwhile
                case end:
                    return end
            waited_ms += pause_ms

    async def _looked(self, instead_of: Seen[Any] | None) -> StoredEntry:
        try:
            return await self._place.look(over=self._over, instead_of=instead_of)
        except WrongKind as error:
            log_unreadable(self._store, error)
            self._over = True  # the key of the entry holds something else altogether
            return await self._place.look(over=True, instead_of=instead_of)

    def _read(self, looked: StoredEntry) -> End | _Replace | _Wait:
        """What follows from a look that did not put up our mark."""
        entry, seen = looked.entry, looked.mark
        if isinstance(entry, Unreadable):
            log_unreadable(self._store, entry)
            self._over = True
            return _Replace(None)
        if entry is not None:
            return CacheResult(entry, "hit")
        if seen is None or not seen.value:  # it was there a moment ago; or it is no mark that can be read
            return _Replace(seen)
        mark: LoadMarker = seen.value
        match mark.state:
            case "loading":
                return _Wait()
            case "nothing":
                return _Replace(seen) if self._refreshes else CacheResult(None, "nothing")
            case "failed":
                return self._stale_or(LoadFailure(mark.why or "Exception", mark.retry_ms or 0), looked)

    def _stale_or(self, failed: LoadFailure, looked: StoredEntry) -> End:
        if isinstance(looked.stale, Unreadable):
            log_unreadable(self._store, looked.stale)
            self._counts.unreadable += 1
            return failed
        return failed if looked.stale is None else CacheResult(looked.stale, "stale")

    # --- asking the provider -------------------------------------------------------------------------------

    async def _loaded(self, *, last: bool) -> End | None:
        try:
            value = await self._asked()
            operations = self._writing(value)
        except Exception as error:
            return await self._failed(error, last=last)
        try:
            written = await self._place.written(operations)
        except StoreError as error:
            if isinstance(error, CommandError) and not isinstance(error, Unreadable):
                raise
            self._counts.unwritten += 1
            _log.warning("%s was loaded and could not be written: %s", self._name, error.code)
            # Nobody can say whether it was dropped meanwhile. So it is loaded again where somebody may have joined.
            return CacheResult(value, "loaded") if last or not self._loads_anyway else await self._loaded_anyway()
        if not written:
            # Who may come between: a drop, a put, or the end of our mark. What was loaded is older than that.
            self._counts.refused += 1
        return CacheResult(value, "loaded") if written or last else None

    async def _failed(self, error: Exception, *, last: bool) -> End | None:
        why, retry_ms = self._note(error), self._times.retry_ms
        if isinstance(error, TryLater):
            retry_ms = min(max(error.after_ms, retry_ms), self._times.retry_at_most_ms)
        try:
            looked = await self._place.failed(why, retry_ms)
        except StoreError as store_error:
            if isinstance(store_error, CommandError) and not isinstance(store_error, Unreadable):
                raise
            return LoadFailure(why, 0, error)
        if not looked.taken and not last:
            return None
        return self._stale_or(LoadFailure(why, retry_ms if looked.taken else 0, error), looked)

    async def _loaded_anyway(self) -> End:
        """Without the store: one load at a time for each key in this process, for all who asked before it began.

        No mark tells whether the entry was dropped meanwhile, so nobody joins a load that has begun.
        """
        if self._before is not None:
            await asyncio.wait((self._before,))
        self._close()
        try:
            value = await self._asked()
            if value is not None:
                self._place.check(value)
        except Exception as error:
            return LoadFailure(self._note(error), 0, error)
        return CacheResult(value, "loaded")

    def _writing(self, value: Any) -> list[Operation[Any]]:
        """What writes down what the provider said."""
        if value is None:
            return self._place.nothing(self._times.nothing_ms)
        return self._place.filled(value, self._now_ms() - self._asked_ms)

    async def _asked(self) -> Any:
        """What the provider says. Raises whatever goes wrong, TimeoutError where it takes too long."""
        self._counts.loads += 1
        self._asked_ms = self._now_ms()
        try:
            async with asyncio.timeout(self._times.load_s):
                return await self._load()
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # By the loader itself, which must not cancel those who wait.
            raise LoadCancelled("the loader was cancelled from within") from error

    def _note(self, error: Exception) -> str:
        why = type(error).__name__
        self._counts.failures += 1
        _log.warning("%s could not be loaded: %s", self._name, why)
        return why


class LoadCancelled(Exception):
    """A loader that ended by a cancellation of its own."""
