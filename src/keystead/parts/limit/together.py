"""Several limits at once: ten a second and a hundred a minute."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any

from keystead.errors import BadDeclaration, DoesNotFit, StoreError
from keystead.parts.limit.limit import Asked, Limit, Limits
from keystead.parts.limit.verdict import Verdict
from keystead.parts.limit.windows import AlignedWindow


class Together(Limits):
    """Limits that a request has to meet all, counted in all of them or in none. One atomic step, one round trip.

        limit = Together(FixedWindow(keys.seconds, "10/second"), SlidingWindow(keys.minutes, "100/minute"))

    The verdict is that of the limit that lets the least through; `each` holds all of them, and the headers name them.
    While the store is down, each says what its own `when_down` says. On a cluster the families need one `tag`. Raises
    DoesNotFit for limits in different stores, or in one whose atomic steps are about one key.
    """

    def __init__(self, *limits: Limit) -> None:
        if len(limits) < 2 or not all(isinstance(limit, Limit) for limit in limits):
            raise BadDeclaration("several limits are two or more, as in Together(FixedWindow(…), SlidingWindow(…))")
        if len({limit.family.family for limit in limits}) < len(limits):
            raise BadDeclaration("each of several limits counts in a family of its own")
        if len({limit.name for limit in limits}) < len(limits):
            raise BadDeclaration("each of several limits has a name of its own, because the headers name them")
        self.store, self.family = limits[0].store, limits[0].family
        if any(limit.store is not self.store for limit in limits):
            raise DoesNotFit("several limits live in one store; give their families one role")
        if self.store.guarantees.atomic not in ("any keys", "one slot"):
            raise DoesNotFit(f"{self.store.url} counts one limit at a time, because its atomic steps are about one key")
        if any(isinstance(limit, AlignedWindow) for limit in limits):
            raise BadDeclaration(
                "an AlignedWindow may have to be counted again, so it stands alone; take a FixedWindow"
            )
        self.limits = limits

    def _asked(self, keys: Sequence[bytes], by: int, hit: bytes) -> Sequence[Asked]:
        return [limit._asked_of(key, by, hit) for limit, key in zip(self.limits, keys, strict=True)]

    def _judged(self, verdicts: list[Verdict]) -> Verdict:
        return replace(min(verdicts, key=_least), each=tuple(verdicts))

    def _keys(self, client: tuple[Any, ...]) -> list[str]:
        return [key for limit in self.limits for key in limit._keys(client)]

    def _when_down(self, error: StoreError, client: Hashable, by: int) -> Verdict:
        verdicts = [limit._when_down(error, client, by) for limit in self.limits]
        return replace(min(verdicts, key=_least), each=tuple(verdicts))

    def _answered(self) -> None:
        for limit in self.limits:
            limit._answered()


def _least(verdict: Verdict) -> tuple[bool, float, float]:
    """Refusals first, of these the one that lasts longest; else the one of which the least is left."""
    wait_ms = math.inf if verdict.retry_after_ms is None else verdict.retry_after_ms
    return verdict.allowed, -wait_ms, verdict.remaining / verdict.limit
