"""Token bucket rate limit: a steady rate, with bursts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from keystead.errors import BadDeclaration
from keystead.parts.limit.limit import Limit, LimitCheck
from keystead.parts.limit.outage import WhenDown
from keystead.parts.limit.rate import MOST, Rate
from keystead.parts.limit.verdict import Verdict
from keystead.schema import Bound, SortedSet
from keystead.schema.lifetime import Sliding, in_words
from keystead.stores import store_ms

_FULL_AT: Final = "full_at"
# A score has 53 bits and the time in ms has 41, so sums of this size are exact until the year 2109.
_GRAIN_MS: Final = 1 / 2048
_SHORTEST_MS: Final = 0.01
_LONGEST_MS: Final = 366 * 86_400_000


class TokenBucket(Limit):
    """Token bucket: it refills at a steady rate; a hit takes one token, or `by` tokens.

        bucket = SortedSet("limit:{client}", str, lifetime=sliding("2m", touch_every="1s"))  # at least until it is full
        limit = TokenBucket(keys.bucket, "10/minute", burst=20)

    burst   the size of the bucket; by default the amount of the rate

    Only the time when the bucket will be full is stored, as the score of one member, by the store's clock (the generic
    cell rate algorithm, GCRA). So it costs one number per client, whatever the limit. A token may take as little as
    0.01 ms; its time is rounded up to 1/2048 ms, and sums of it are exact.
    """

    def __init__(
        self,
        family: Bound[Any],
        rate: str | Rate,
        *,
        burst: int | None = None,
        when_down: WhenDown = "deny",
        name: str | None = None,
    ) -> None:
        rate = Rate.of(rate)
        self.burst = rate.amount if burst is None else burst
        if type(self.burst) is not int or not 1 <= self.burst <= MOST:
            raise BadDeclaration(f"a burst is a whole number from 1 on, not {burst!r:.40}")
        exact_ms = rate.window_ms / rate.amount
        if exact_ms < _SHORTEST_MS:
            raise BadDeclaration(f"a token takes at least {_SHORTEST_MS} ms; {rate} is faster than that")
        self._token_ms = math.ceil(exact_ms / _GRAIN_MS) * _GRAIN_MS
        self._fills_ms = math.ceil(self.burst * self._token_ms)
        super().__init__(family, rate, when_down=when_down, name=name)

    def _local_rate(self) -> Rate:
        return Rate(self.burst, self._fills_ms)

    def _check_family(self) -> None:
        family = self.family.family
        if not isinstance(family, SortedSet) or family.member.type is not str:
            self._refuse("a token bucket needs a SortedSet(…) of texts, where it is the score of one member")
        if self._fills_ms > _LONGEST_MS:
            self._refuse(f"its bucket is full after {in_words(self._fills_ms)}; a year is the longest")
        if not isinstance(family.lifetime, Sliding) or family.lifetime.ms < self._fills_ms:
            self._refuse(
                f"it lives until its bucket is full, {in_words(self._fills_ms)} after the last hit, or longer, as in "
                f'sliding("{2 * self._fills_ms}ms", touch_every="{self._fills_ms}ms")'
            )

    def _check_for(self, key: Any, by: int, hit: str) -> LimitCheck:
        # -1: a hit larger than the bucket never fits.
        latest = store_ms(self._room_ms(by)) if by <= self.burst else -1
        return LimitCheck(
            (key.clock(), key.score(_FULL_AT)),
            key.score_at_most(_FULL_AT, latest),
            # A bucket that is already full counts as full from now.
            (key.raise_to(_FULL_AT, store_ms()), key.increment(_FULL_AT, by * self._token_ms)),
            self._judge,
        )

    def _room_ms(self, by: int) -> float:
        """How far from full, in ms of refill, the bucket may be before a hit."""
        return (self.burst - by) * self._token_ms

    def _judge(self, found: Sequence[Any], by: int, counted: bool) -> Verdict:
        now_ms, held = found[0], found[1]
        token_ms, room_ms = self._token_ms, self._room_ms(by)
        missing_ms = max(0.0, (held or 0) - now_ms)
        allowed = missing_ms <= room_ms
        wait_ms = None if by > self.burst else math.ceil(missing_ms - room_ms)
        if allowed and counted:
            missing_ms += by * token_ms
        left = math.floor(self.burst - missing_ms / token_ms)
        return self._verdict(allowed, self.burst, left, wait_ms, math.ceil(missing_ms))
