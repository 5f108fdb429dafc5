"""What a cache answers, what it counts, and what it raises."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Generic, Literal, TypeVar

from keystead.errors import KeysteadError, StoreError, Unreadable
from keystead.schema.lifetime import duration_ms, in_words

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class CacheResult(Generic[T_co]):
    """What `answer` found.

    value   the value; None: the provider says that there is nothing
    how     `hit`: it was there; `loaded`: the provider was asked for this, by us or by another; `nothing`: it was
            remembered that there is nothing; `stale`: the provider could not be asked, and this is what it said last
    """

    value: T_co | None
    how: Literal["hit", "loaded", "nothing", "stale"]


@dataclass(frozen=True, slots=True)
class CacheLookup(Generic[T_co]):
    """What one look at an entry found, for `answer_to`.

    value     the value; None: there is none, or `error` says why it could not be read
    left_ms   how long it lives if nobody uses it, where its lifetime is sliding
    """

    key: Any
    value: T_co | None = None
    error: Unreadable | StoreError | None = None
    left_ms: int | None = None


@dataclass(slots=True)
class CacheCounts:
    """What a cache has done in this process since it was made. Of a question one of the first four counts one.

    hits         answers from the store
    nothings     answers that there is nothing, from the store
    misses       questions for which there was no entry
    away         questions for which the store could not be asked
    waits        how often somebody waited for a load that another had begun, here or in another process
    loads        how often the provider was asked
    failures     how often it did not answer, answered too late or with nonsense
    stale        answers from a stale copy
    refused      loads whose result was not written, because the entry was dropped or put meanwhile
    unreadable   entries that could not be read, and were loaded again
    unwritten    loads whose result could not be written, because the store was away
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
    """The provider could not be asked, and there is no stale copy. It is asked again in `retry_after` at the earliest.

    why           the name of the error's class. Where this process asked, the error itself is the `__cause__`
    retry_after   0 where the very next question asks again
    """

    code = "load-failed"

    def __init__(self, place: str, why: str, retry_ms: int) -> None:
        when = f"in {in_words(retry_ms)}" if retry_ms else "now"
        super().__init__(f"{place} could not be loaded ({why}), and there is no older copy; try again {when}")
        self.why = why
        self.retry_after = timedelta(milliseconds=retry_ms)


class TryLater(KeysteadError):
    """For a loader to raise: the provider says when to ask again, as with 429 and `Retry-After`.

    Nobody asks before that, as far as `retry_at_most` of the family of marks allows.
    """

    code = "try-later"

    def __init__(self, after: str | timedelta) -> None:
        super().__init__(f"the provider asks to be left alone for {after}")
        self.after_ms = duration_ms(after, "a pause")
