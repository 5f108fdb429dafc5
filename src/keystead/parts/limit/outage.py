"""What a limit says while its store does not answer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable
from typing import Final, Literal, TypeAlias

from keystead.errors import StoreError
from keystead.parts.limit.rate import Rate
from keystead.parts.limit.verdict import Verdict

# deny    nobody is let through; safe for what guards secrets, and the default
# allow   each process lets through what the limit allows, counted in its own memory
# raise   the error of the store is raised
WhenDown: TypeAlias = Literal["deny", "allow", "raise"]

RETRY_MS: Final = 1_000
CLIENTS_MOST: Final = 10_000

_log = logging.getLogger("keystead.parts.limit")


class Outage:
    """The policy of one limit, and what it counts by itself meanwhile.

    The beginning and the end of an outage are logged, once each, without the name of any client.
    """

    def __init__(self, policy: WhenDown, name: str, rate: Rate, now_ms: Callable[[], int]) -> None:
        self.policy = policy
        self._name = name
        self._rate = rate
        self._now_ms = now_ms
        self._is_down = False
        self._local: dict[Hashable, tuple[int, int]] = {}  # when the window ends, and how many came in it

    def is_over(self) -> None:
        """The store has answered."""
        if self._is_down:
            self._is_down = False
            self._local.clear()
            _log.warning("limit %s: its store answers again", self._name)

    def verdict(self, error: StoreError, client: Hashable, by: int) -> Verdict:
        """What is said of a request that could not be counted. Raises the error of the store where that is said."""
        if not self._is_down:
            self._is_down = True
            _log.warning(
                "limit %s: its store does not answer (%s); requests meet %r", self._name, error.code, self.policy
            )
        if self.policy == "raise":
            raise error
        if self.policy == "deny":
            return self._said(False, 0, RETRY_MS, RETRY_MS)
        return self._counted_here(client, by)

    def _counted_here(self, client: Hashable, by: int) -> Verdict:
        now_ms, (amount, window_ms) = self._now_ms(), (self._rate.amount, self._rate.window_ms)
        ends_ms, count = self._local.pop(client, (0, 0))
        if not now_ms < ends_ms <= now_ms + window_ms:  # over; or from before the clock was set back
            ends_ms, count = now_ms + window_ms, 0
        allowed = count + by <= amount
        if allowed:
            count += by
        if len(self._local) >= CLIENTS_MOST:  # the one that asked longest ago makes room
            del self._local[next(iter(self._local))]
        self._local[client] = (ends_ms, count)
        wait_ms = 0 if allowed else None if by > amount else ends_ms - now_ms
        return self._said(allowed, amount - count, wait_ms, ends_ms - now_ms)

    def _said(self, allowed: bool, remaining: int, retry_after_ms: int | None, reset_ms: int) -> Verdict:
        amount, window_ms = self._rate.amount, self._rate.window_ms
        return Verdict(allowed, amount, remaining, retry_after_ms, reset_ms, window_ms, self._name, store_is_down=True)
