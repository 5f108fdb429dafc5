"""The rate limit that most applications need, chosen by the kind of its family."""

from __future__ import annotations

from typing import Any

from keystead.parts.limit.limit import Limits
from keystead.parts.limit.outage import WhenDown
from keystead.parts.limit.rate import Rate
from keystead.parts.limit.sliding import SlidingWindow
from keystead.parts.limit.windows import FixedWindow
from keystead.schema import Bound, SortedSet


class RateLimit(Limits):
    """At most `rate` requests of a client succeed per window, however many arrive at once.

        class AppKeys(Keyspace):
            hits = Counter("limit:{client}", lifetime=after("1m"))

        limit = RateLimit(keys.hits, "10/minute")
        if not await limit.hit("203.0.113.7"): ...

    The family decides how it counts: a Counter is a fixed window, which costs one number per client; a SortedSet is a
    sliding window, which is exact and keeps each hit. `TokenBucket`, `AlignedWindow` and `CombinedLimit` are in
    `keystead.parts.limit`. Arguments and errors are those of `Limit`.
    """

    def __init__(
        self, family: Bound[Any], rate: str | Rate, *, when_down: WhenDown = "deny", name: str | None = None
    ) -> None:
        is_sorted = isinstance(getattr(family, "family", None), SortedSet)
        super().__init__((SlidingWindow if is_sorted else FixedWindow)(family, rate, when_down=when_down, name=name))
