"""Limits by name, as the kits have them: so many requests of one client in each minute, by what they ask for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from keystead.parts.limit.client_address import client_of
from keystead.parts.limit.verdict import LimitReached
from keystead.schema import Bound, Operation

_WINDOW_MS = 60_000


@dataclass(frozen=True)
class Counting:
    """A request that is to be counted. Each of its operations is made when it is asked for."""

    counter: Any
    by: int
    limit: int
    reached: LimitReached

    @property
    def count(self) -> Operation[int]:
        """Adds it; the result is how many there are."""
        added: Operation[int] = self.counter.increment(self.by)
        return added

    @property
    def within(self) -> Operation[bool]:
        """A guard for what the request asks for, in a step that leaves together with the count and after it.

        Of the requests of a minute no more than the limit pass it.
        """
        guard: Operation[bool] = self.counter.at_most(self.limit)
        return guard

    @property
    def room(self) -> Operation[bool]:
        """Whether fewer than the limit have been counted; it adds nothing."""
        guard: Operation[bool] = self.counter.at_most(self.limit - 1)
        return guard


class NamedLimits:
    """Counts the requests of each client in each minute of `now_ms`, by what they ask for.

    counters  a family of counters with `name`, `window` and `client` in its pattern, which live a little longer
              than a minute
    limits    how many requests of a name are let through; 0: any number
    """

    def __init__(self, counters: Bound[Any], limits: Mapping[str, int], now_ms: Callable[[], int]) -> None:
        self._counters = counters
        self._limits = limits
        self._now_ms = now_ms

    async def count(self, name: str, address: str, *, by: int = 1) -> None:
        """Count a request, or one that counts as several. Raises LimitReached beyond the limit.

        One round trip, in which the lifetime is set, too. Where the store is down, so is whatever the request is for:
        the error of the store is raised.
        """
        counting = self.counting(name, address, by=by)
        if counting is not None and await counting.count > counting.limit:
            raise counting.reached

    async def refuse_reached(self, name: str, address: str) -> None:
        """Raises LimitReached where so many requests were counted already; this one is not. One round trip.

        For what is counted only when it has gone wrong, as a guess has.
        """
        counting = self.counting(name, address)
        if counting is not None and not await counting.room:
            raise counting.reached

    def counting(self, name: str, address: str, *, by: int = 1) -> Counting | None:
        """The same in steps, for whoever shares a round trip with it; None: there is no limit."""
        limit = self._limits[name]
        if limit == 0:
            return None
        window, into_ms = divmod(self._now_ms(), _WINDOW_MS)
        counter = self._counters(name, window, client_of(address))
        wait_s = -((into_ms - _WINDOW_MS) // 1000)
        return Counting(counter, by, limit, LimitReached(wait_s))
