"""Rate limits during a store outage: deny, allow or raise."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import Final, Literal, TypeAlias

from keystead.errors import StoreError
from keystead.parts.limit.rate import Rate
from keystead.parts.limit.verdict import Verdict

# deny    refuse every request; safe for protecting secrets, and the default
# allow   each process applies the limit alone, counted in memory
# raise   raise the store's error
WhenDown: TypeAlias = Literal["deny", "allow", "raise"]

RETRY_MS: Final = 1_000
CLIENTS_MOST: Final = 10_000

_log = logging.getLogger("keystead.parts.limit")


class Outage:
    """The outage policy of one limit, and its local counters.

    The start and the end of an outage are logged once each, without client names.
    """

    def __init__(self, policy: WhenDown, name: str, rate: Rate, now_ms: Callable[[], int]) -> None:
        self.policy = policy
        self._name = name
        self._rate = rate
        self._now_ms = now_ms
        self._is_down = False
        self._local: dict[Hashable, tuple[int, int]] = {}  # the end of the window, and the hits in it

    def is_over(self) -> None:
        """The store has answered."""
        if self._is_down:
            self._is_down = False
            self._local.clear()
            _log.warning("limit %s: its store answers again", self._name)

    def verdict(self, error: StoreError, client: Hashable, by: int) -> Verdict:
        """The verdict for a request that could not be counted. Raises the store's error if the policy says so."""
        if not self._is_down:
            self._is_down = True
            _log.warning(
                "limit %s: its store does not answer (%s); requests meet %r", self._name, error.code, self.policy
            )
        if self.policy == "raise":
            raise error
        if self.policy == "deny":
            return self._verdict(False, 0, RETRY_MS, RETRY_MS)
        return self._count_locally(client, by)

    def _count_locally(self, client: Hashable, by: int) -> Verdict:
        now_ms, (amount, window_ms) = self._now_ms(), (self._rate.amount, self._rate.window_ms)
        ends_ms, count = self._local.pop(client, (0, 0))
        if not now_ms < ends_ms <= now_ms + window_ms:  # the window is over, or the clock was set back
            ends_ms, count = now_ms + window_ms, 0
        allowed = count + by <= amount
        if allowed:
            count += by
        if len(self._local) >= CLIENTS_MOST:  # evict the least recent client
            del self._local[next(iter(self._local))]
        self._local[client] = (ends_ms, count)
        wait_ms = 0 if allowed else None if by > amount else ends_ms - now_ms
        return self._verdict(allowed, amount - count, wait_ms, ends_ms - now_ms)

    def _verdict(self, allowed: bool, remaining: int, retry_after_ms: int | None, reset_ms: int) -> Verdict:
        amount, window_ms = self._rate.amount, self._rate.window_ms
        return Verdict(allowed, amount, remaining, retry_after_ms, reset_ms, window_ms, self._name, store_is_down=True)
