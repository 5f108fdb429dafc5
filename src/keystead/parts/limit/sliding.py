"""Sliding window rate limit: exact in any window."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any, Final

from keystead.parts.limit.limit import Limit, LimitCheck
from keystead.parts.limit.verdict import Verdict
from keystead.schema import Operation, SortedSet
from keystead.schema.lifetime import Sliding, in_words
from keystead.stores import store_ms

_ENTRIES_MOST: Final = 100_000
_ENTRIES_AT_ONCE: Final = 3_000


class SlidingWindow(Limit):
    """Sliding window: never more than the limit in any window, wherever it starts. The time of each hit is stored.

        log = SortedSet("limit:{client}", str, lifetime=sliding("2m", touch_every="1s"))    # longer than the window
        limit = SlidingWindow(keys.log, "10/minute")

    Times are the store's clock. It costs one entry for each allowed hit in the last window, so at most the limit; above
    100,000 use a FixedWindow or a TokenBucket.
    """

    keeps_hits = True

    def _check_family(self) -> None:
        family, window_ms = self.family.family, self.rate.window_ms
        if not isinstance(family, SortedSet) or family.member.type is not str:
            self._refuse("a sliding window keeps the times of hits in a SortedSet(…) of texts")
        if not isinstance(family.lifetime, Sliding) or family.lifetime.ms <= window_ms:
            self._refuse(
                f"it outlives its window, {in_words(window_ms)}, since the last hit, as in "
                f'sliding("{2 * window_ms}ms", touch_every="{window_ms}ms")'
            )
        if self.rate.amount > _ENTRIES_MOST:
            self._refuse(f"a sliding window keeps each hit, so at most {_ENTRIES_MOST:,}; take a TokenBucket")

    def _check_for(self, key: Any, by: int, hit: str) -> LimitCheck:
        limit, begin = self.rate.amount, store_ms(-self.rate.window_ms)
        return LimitCheck(
            # So many of the newest may stay for this hit to fit; the next older one has to go first.
            (key.clock(), key.count_between(begin, inf), key.highest(1, skip=max(0, limit - by))),
            key.between_at_most(begin, inf, limit - by),
            self._writes(key, by, hit) if by <= limit else (),
            self._judge,
        )

    def _judge(self, found: Sequence[Any], by: int, counted: bool) -> Verdict:
        limit, window_ms = self.rate.amount, self.rate.window_ms
        now_ms, held, blocking = found[0], found[1], found[2]
        allowed = held <= limit - by
        # A hit counts up to the last millisecond of the window it starts.
        wait_ms = max(1, int(blocking[0][1]) + window_ms + 1 - now_ms) if blocking and by <= limit else None
        # Finding the newest hit would cost one more read; it counts for a window at most.
        reset_ms = window_ms + 1 if held or (allowed and counted) else 0
        return self._verdict(allowed, limit, limit - held - (by if allowed and counted else 0), wait_ms, reset_ms)

    def _writes(self, key: Any, by: int, hit: str) -> list[Operation[Any]]:
        # Several hits in one millisecond need different members.
        members = [hit] if by == 1 else [f"{hit}:{number}" for number in range(by)]
        added = [
            key.put(dict.fromkeys(members[at : at + _ENTRIES_AT_ONCE], store_ms()))
            for at in range(0, by, _ENTRIES_AT_ONCE)
        ]
        return [key.remove_between(-inf, store_ms(-self.rate.window_ms - 1)), *added]
