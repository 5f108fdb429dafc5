"""Results, counts and errors of a cache."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Literal, TypeVar

from keystead.errors import KeysteadError, StoreError, Unreadable
from keystead.schema.lifetime import duration_ms, in_words

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class CacheResult(Generic[T_co]):
    """The result of `answer`.

    value   the value; None: the provider says that there is nothing
    how     `hit`: from the cache; `loaded`: just loaded, here or in another process; `nothing`: a cached "there is
            nothing"; `stale`: the provider failed, and this is its last value
    """

    value: T_co | None
    how: Literal["hit", "loaded", "nothing", "stale"]


@dataclass(frozen=True, slots=True)
class CacheLookup(Generic[T_co]):
    """The result of looking up an entry, for `answer_to`.

    value     the value; None: there is none, or `error` says why it could not be read
    left_ms   its TTL, if the lifetime is sliding
    """

    key: Any
    value: T_co | None = None
    error: Unreadable | StoreError | None = None
    left_ms: int | None = None


@dataclass(slots=True)
class CacheCounts:
    """Counts of a cache in this process. Each request counts as one of the first four.

    hits         values from the cache
    nothings     cached answers that there is nothing
    misses       requests without an entry
    away         requests during a store outage
    waits        requests that waited for a load of another caller, here or in another process
    loads        calls of the provider
    failures     calls that failed, timed out or returned nonsense
    stale        stale copies that were served
    refused      loads that were not written, because the entry was dropped or put meanwhile
    unreadable   unreadable entries that were loaded again
    unwritten    loads that could not be written, because of a store outage
    """

    hits: int = 0
    nothings: int = 0
    misses: int = 0
    away: int = 0
    waits: int = 0
    loads: int = 0
    failures: int = 0
    stale: int = 0
    refused: int = 0
    unreadable: int = 0
    unwritten: int = 0


class LoadFailed(KeysteadError):
    """The load failed, and there is no stale copy. The next load happens after `retry_after` at the earliest.

    why           the name of the exception class. In the process that ran the load, the exception is the `__cause__`
    retry_after   0 if the next request loads again
    """

    code = "load-failed"

    def __init__(self, place: str, why: str, retry_ms: int) -> None:
        when = f"in {in_words(retry_ms)}" if retry_ms else "now"
        super().__init__(f"{place} could not be loaded ({why}), and there is no older copy; try again {when}")
        self.why = why
        self.retry_after = timedelta(milliseconds=retry_ms)


class TryLater(KeysteadError):
    """Raised by a loader when the provider says when to retry, as with 429 and `Retry-After`.

    No process loads before that, up to `retry_at_most` of the markers.
    """

    code = "try-later"

    def __init__(self, after: str | timedelta) -> None:
        super().__init__(f"the provider asks to retry after {after}")
        self.after_ms = duration_ms(after, "a pause")
