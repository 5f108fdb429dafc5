"""Named rate limits for kits: requests per client and minute, for each kind of request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from keystead.parts.limit.client_address import client_of
from keystead.parts.limit.limited_families import remember_limited
from keystead.parts.limit.verdict import LimitReached
from keystead.schema import Bound, Operation, Steps
from keystead.schema.prepared_steps import Prepared

_WINDOW_MS = 60_000
_CLIENTS_MAX = 1024  # whose keys a process remembers: most clients make several requests in a minute


@dataclass(slots=True)  # not frozen, which is slower to create
class Counting:
    """A request to be counted. `count`, `within` and `room` create a new operation each time."""

    counter: Any
    by: int
    limit: int
    wait_s: int
    prepared: Prepared[int]

    @property
    def count(self) -> Awaitable[int]:
        """Counts the request; the result is the total."""
        if self.by == 1:
            return self._count_one()
        added: Operation[int] = self.counter.increment(self.by)
        return added

    async def _count_one(self) -> int:
        return (await self.prepared(self.counter.key.encode())).values

    @property
    def reached(self) -> LimitReached:
        """The error to raise if the limit is reached."""
        return LimitReached(self.wait_s)

    @property
    def within(self) -> Operation[bool]:
        """A guard for the work of the request, in a step sent together with the count and after it.

        At most `limit` requests per minute pass it.
        """
        guard: Operation[bool] = self.counter.at_most(self.limit)
        return guard

    @property
    def room(self) -> Operation[bool]:
        """Whether fewer than the limit have been counted; it counts nothing."""
        guard: Operation[bool] = self.counter.at_most(self.limit - 1)
        return guard


class NamedLimits:
    """Counts the requests of each client per name and minute of `now_ms`.

    counters  a family of counters with `name`, `window` and `client` in its pattern, which live a little longer
              than a minute
    limits    the limit for each name; 0: unlimited
    """

    def __init__(self, counters: Bound[Any], limits: Mapping[str, int], now_ms: Callable[[], int]) -> None:
        remember_limited(counters)
        self._counter_of = lru_cache(_CLIENTS_MAX)(counters)
        self.limits = limits
        self._now_ms = now_ms
        self._prepared = Prepared([counters], lambda counter: Steps(one := counter.increment()).giving(one))

    async def count(self, name: str, address: str, *, by: int = 1) -> None:
        """Count a request at cost `by`. Raises LimitReached beyond the limit.

        One round trip, which also sets the lifetime. Raises the store's error during an outage: the work of the request
        needs the store too.
        """
        counting = self.counting(name, address, by=by)
        if counting is not None and await counting.count > counting.limit:
            raise counting.reached

    async def refuse_reached(self, name: str, address: str) -> None:
        """Raise LimitReached if the limit is used up, without counting this request. One round trip.

        For requests that are counted only when they fail, such as guesses.
        """
        counting = self.counting(name, address)
        if counting is not None and not await counting.room:
            raise counting.reached

    def counting(self, name: str, address: str, *, by: int = 1) -> Counting | None:
        """The same as operations, to share a round trip; None: there is no limit."""
        limit = self.limits[name]
        if limit == 0:
            return None
        window, into_ms = divmod(self._now_ms(), _WINDOW_MS)
        counter = self._counter_of(name, window, client_of(address))
        return Counting(counter, by, limit, -((into_ms - _WINDOW_MS) // 1000), self._prepared)
