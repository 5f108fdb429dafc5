"""What a limit says of a request."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from keystead.errors import KeysteadError

_TELLS: Final = "too many requests; wait a minute"


@dataclass(slots=True)  # to freeze it would take longer than all else that is done with the answer of the store
class Verdict:
    """Whether a request is let through, and what is left. It is true where it is.

    limit            how many are let through in a window
    remaining        how many more would be let through now
    retry_after_ms   how long to wait until the same request would be; 0: it is let through; None: it never will be,
                     because it asks for more than the limit
    reset_ms         how long until nothing is used up any more, if nobody asks; of a sliding window, at most
    window_ms        the window of the limit
    name             of the limit, for `RateLimit-Policy`
    store_is_down    the store did not answer, and this is what the limit says then
    each             of several limits, what each of them says; it is the one that lets the least through
    """

    allowed: bool
    limit: int
    remaining: int
    retry_after_ms: int | None
    reset_ms: int
    window_ms: int
    name: str = "default"
    store_is_down: bool = False
    each: tuple[Verdict, ...] = ()

    def __bool__(self) -> bool:
        return self.allowed

    @property
    def retry_after(self) -> int | None:
        """`retry_after_ms` in whole seconds, never too early."""
        return None if self.retry_after_ms is None else _seconds(self.retry_after_ms)

    @property
    def reset(self) -> int:
        """`reset_ms` in whole seconds, never too early."""
        return _seconds(self.reset_ms)

    @property
    def window(self) -> int:
        """`window_ms` in whole seconds."""
        return _seconds(self.window_ms)


def least_of(verdicts: Sequence[Verdict]) -> Verdict:
    """What several limits say together: what the one says that lets the least through."""
    return verdicts[0] if len(verdicts) == 1 else replace(min(verdicts, key=_room), each=tuple(verdicts))


def _room(verdict: Verdict) -> tuple[bool, float, float]:
    """Refusals first, of these the one that lasts longest; else the one of which the least is left."""
    wait_ms = math.inf if verdict.retry_after_ms is None else verdict.retry_after_ms
    return verdict.allowed, -wait_ms, verdict.remaining / verdict.limit


class LimitReached(KeysteadError):
    """A client has asked too often. `retry_after_s` says when it may ask again; `verdict` says all, where there is one.

    Where it asks for more than the limit at once it may never, and `retry_after_s` is the window.
    """

    code = "limit-reached"

    def __init__(self, retry_after_s: int, verdict: Verdict | None = None) -> None:
        super().__init__(_TELLS if verdict is None else _sentence(verdict))
        self.retry_after_s = retry_after_s
        self.verdict = verdict

    @classmethod
    def of(cls, verdict: Verdict) -> LimitReached:
        after = verdict.retry_after
        return cls(verdict.window if after is None else max(1, after), verdict)


def _sentence(verdict: Verdict) -> str:
    if verdict.store_is_down:
        return "how often you may ask is not known at the moment; try again"
    after = verdict.retry_after
    if after is None:
        return f"this asks for more than the {verdict.limit} that are let through at once; ask for less"
    return f"too many requests; wait {max(1, after)} s"


def _seconds(ms: int) -> int:
    return -(-ms // 1000)
