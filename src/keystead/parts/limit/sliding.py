"""Sliding window: never more than so many in any stretch of time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from keystead.parts.limit.limit import Asked, Limit
from keystead.parts.limit.verdict import Verdict
from keystead.schema import SortedSet
from keystead.schema.lifetime import Sliding, in_words
from keystead.stores import Reply, TimedCommand, at_most, store_ms

_ENTRIES_MOST: Final = 100_000
_ENTRIES_AT_ONCE: Final = 3_000


class SlidingWindow(Limit):
    """Never more than the limit in any window, wherever it begins: the time of each hit is kept, exactly.

        log = SortedSet("limit:{client}", str, lifetime=sliding("2m", touch_every="1s"))    # longer than the window
        limit = SlidingWindow(keys.log, "10/minute")

    All times are the store's. It costs an entry for each hit that was let through in the last window, so never more
    than the limit; for more than 100,000 a FixedWindow or a TokenBucket is the better choice.
    """

    def _checked(self) -> None:
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
        self._lifetime_ms = family.lifetime.ms

    def _asked_of(self, key: bytes, by: int, hit: bytes) -> Asked:
        limit, window_ms = self.rate.amount, self.rate.window_ms
        count: TimedCommand = ("ZCOUNT", key, store_ms(-window_ms), "+inf")
        # So many of the newest may stay for this hit to fit; the next older one has to go first.
        in_the_way = max(0, limit - by)
        reads: list[TimedCommand] = [
            ("TIME",),
            count,
            ("ZRANGE", key, in_the_way, in_the_way, "REV", "WITHSCORES"),
        ]

        def judge(replies: Sequence[Reply], counted: bool) -> Verdict:
            (seconds, micros), held, blocking = replies
            now_ms = int(seconds) * 1000 + int(micros) // 1000
            allowed = held <= limit - by
            # A hit counts up to the last millisecond of the window that it begins.
            wait_ms = None if by > limit or not blocking else _left_ms(blocking, now_ms, window_ms)
            # Which hit is the newest costs one more look in the store; it counts for a window at most.
            reset_ms = window_ms + 1 if held or (allowed and counted) else 0
            return self._verdict(allowed, limit, limit - held - (by if allowed and counted else 0), wait_ms, reset_ms)

        return Asked(reads, at_most(count, limit - by), self._writes(key, by, hit) if by <= limit else (), judge)

    def _writes(self, key: bytes, by: int, hit: bytes) -> list[TimedCommand]:
        # Hits of one millisecond are still several.
        members = [hit] if by == 1 else [b"%b:%d" % (hit, number) for number in range(by)]
        writes: list[TimedCommand] = [("ZREMRANGEBYSCORE", key, "-inf", store_ms(-self.rate.window_ms - 1))]
        for at in range(0, by, _ENTRIES_AT_ONCE):
            pairs = [part for member in members[at : at + _ENTRIES_AT_ONCE] for part in (store_ms(), member)]
            writes.append(("ZADD", key, *pairs))
        return [*writes, ("PEXPIRE", key, self._lifetime_ms)]


def _left_ms(entries: Reply, now_ms: int, window_ms: int) -> int:
    [[_, score]] = entries
    return max(1, int(score) + window_ms + 1 - now_ms)
