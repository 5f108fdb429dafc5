"""The verdict of a rate limit, and its HTTP headers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from keystead.errors import KeysteadError

_TELLS: Final = "too many requests; wait a minute"


@dataclass(slots=True)  # not frozen: that would cost more than all other work on a reply
class Verdict:
    """Whether a request is allowed, and what is left. It is truthy if the request is allowed.

    limit            the number of requests allowed per window
    remaining        how many more are allowed now
    retry_after_ms   how long to wait before the same request is allowed; 0: it is allowed; None: never, because it
                     costs more than the limit
    reset_ms         how long until the limit is fully reset without further requests; for a sliding window, at most
    window_ms        the window of the limit
    name             of the limit, for `RateLimit-Policy`
    store_is_down    the store did not answer, and this is the outage policy
    each             for a CombinedLimit, the verdict of each limit; this one is the strictest
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
    """The verdict of several limits: that of the strictest."""
    return verdicts[0] if len(verdicts) == 1 else replace(min(verdicts, key=_room), each=tuple(verdicts))


def _room(verdict: Verdict) -> tuple[bool, float, float]:
    """Sort key: refusals first, the longest wait first; then the least remaining."""
    wait_ms = math.inf if verdict.retry_after_ms is None else verdict.retry_after_ms
    return verdict.allowed, -wait_ms, verdict.remaining / verdict.limit


class LimitReached(KeysteadError):
    """The rate limit is reached. Retry after `retry_after_s`; `verdict` has the details, if there is one.

    A request that costs more than the limit is never allowed; then `retry_after_s` is the window.
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
        return "the rate limit cannot be checked at the moment; try again"
    after = verdict.retry_after
    if after is None:
        return f"this asks for more than the {verdict.limit} that are allowed at once; ask for less"
    return f"too many requests; wait {max(1, after)} s"


def _seconds(ms: int) -> int:
    return -(-ms // 1000)
