"""The rate limit that most applications need, chosen by the kind of its family."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from keystead.errors import BadDeclaration
from keystead.parts.limit.limit import Limits
from keystead.parts.limit.outage import WhenDown
from keystead.parts.limit.rate import Rate
from keystead.parts.limit.sliding import SlidingWindow
from keystead.parts.limit.windows import FixedWindow
from keystead.schema import Bound, Counter, SortedSet, after


class Limited(Counter):
    """A family of rate limits, in one declaration: `logins = Limited("limit:login:{client}", "10/minute")`.

    rate   how many requests of a client are allowed in a window, which starts with the first of them. The window is
           the lifetime of the keys
    """

    def __init__(
        self,
        pattern: str,
        rate: str | Rate,
        *,
        role: str = "default",
        tag: str | None = None,
        member_of: str | None = None,
        doc: str = "",
        used_by: Sequence[str] = (),
        naming_exempt: str | None = None,
    ) -> None:
        self.rate = Rate.of(rate)
        exempt: dict[str, Any] = {} if naming_exempt is None else {"naming_exempt": naming_exempt}
        super().__init__(
            pattern,
            lifetime=after(timedelta(milliseconds=self.rate.window_ms)),
            role=role,
            tag=tag,
            member_of=member_of,
            doc=doc or f"Requests of a client; {self.rate} are allowed.",
            used_by=used_by,
            **exempt,
        )


class RateLimit(Limits):
    """At most `rate` requests of a client succeed per window, however many arrive at once.

        class AppKeys(Keyspace):
            hits = Counter("limit:{client}", lifetime=after("1m"))

        limit = RateLimit(keys.hits, "10/minute")
        if not await limit.hit("203.0.113.7"): ...

    A family `Limited("limit:{client}", "10/minute")` has the rate: `RateLimit(keys.hits)`.

    The family decides how it counts: a Counter is a fixed window, which costs one number per client; a SortedSet is a
    sliding window, which is exact and keeps each hit. `TokenBucket`, `AlignedWindow` and `CombinedLimit` are in
    `keystead.parts.limit`. Arguments and errors are those of `Limit`.
    """

    def __init__(
        self,
        family: Bound[Any],
        rate: str | Rate | None = None,
        *,
        when_down: WhenDown = "deny",
        name: str | None = None,
    ) -> None:
        declared = getattr(family, "family", None)
        if rate is None:
            if not isinstance(declared, Limited):
                raise BadDeclaration('a limit needs a rate, as in RateLimit(keys.hits, "10/minute")')
            rate = declared.rate
        is_sorted = isinstance(declared, SortedSet)
        super().__init__((SlidingWindow if is_sorted else FixedWindow)(family, rate, when_down=when_down, name=name))
