"""What the `limits` library counts, in one store: fixed windows, moving windows and sliding window counters."""

from __future__ import annotations

import math
import secrets
from collections.abc import AsyncIterator
from typing import Any, Final, NamedTuple

from keystead import Counter, Keyspace, SortedSet, Store, until
from keystead.errors import BadValue
from keystead.stores import store_ms

_AT_ONCE: Final = 500
_HITS_MOST: Final = 100_000
_PUT_AT_ONCE: Final = 3_000
_MARGIN_MS: Final = 60_000  # a set outlives its window by more than clocks differ


class LimitsKeys(Keyspace):
    """Rate limits of the `limits` library, by the name that it gives a limit and its client."""

    fixed = Counter("limits:fixed:{name<=200}", lifetime=until("window"), doc="hits in the current window")
    moving = SortedSet("limits:moving:{name<=200}", str, lifetime=until("window"), doc="the time of each hit")
    counted = Counter(
        "limits:counted:{name<=200}:{window:int}",
        lifetime=until("window"),
        tag="name",
        doc="hits in one of two adjoining windows, of which the older one counts by its part in the last window",
    )


class SlidingCounts(NamedTuple):
    """Hits in the previous and the current window, and for how long each counts, in seconds."""

    previous: int
    previous_ttl: float
    current: int
    current_ttl: float


class LimitsCounts:
    """The counts in one store. Times are in seconds, as in `limits`."""

    def __init__(self, store: Store) -> None:
        self.keys = LimitsKeys(store)

    # --- fixed windows ---------------------------------------------------------------------------------------

    async def increment(self, name: str, expiry: float, amount: int) -> int:
        """The new count. The first hit begins the window. Atomic, one round trip."""
        return await self.keys.fixed(name).lasting(_ms(expiry)).increment(amount)

    async def count(self, name: str) -> int:
        return await self.keys.fixed(name).get()

    async def ends_at(self, name: str) -> float:
        """When the window ends, in seconds since 1970; now, if there is none."""
        left_ms = await self.keys.fixed(name).left_ms()
        return (self.keys.now_ms() + max(0, left_ms)) / 1000

    # --- moving windows --------------------------------------------------------------------------------------

    async def acquire(self, name: str, limit: int, expiry: float, amount: int) -> bool:
        """Count `amount` hits, or none if the window has no room. Atomic, one round trip; by the store's clock."""
        if limit > _HITS_MOST:
            raise BadValue(
                f"a moving window keeps each hit, so the limit is at most {_HITS_MOST:,}; use a sliding window counter"
            )
        if amount > limit:
            return False
        key, window_ms, hit = self.keys.moving(name), _ms(expiry), secrets.token_hex(8)
        ends_at = self.keys.now_ms() + window_ms + _MARGIN_MS
        hits = [
            {f"{hit}:{number}": store_ms() for number in range(at, min(amount, at + _PUT_AT_ONCE))}
            for at in range(0, amount, _PUT_AT_ONCE)
        ]
        done = await self.keys.atomically(
            key.remove_between(-math.inf, store_ms(-window_ms - 1)),
            key.between_at_most(store_ms(-window_ms), math.inf, limit - amount),
            *(key.put(some, window=ends_at) for some in hits),
        )
        return bool(done)

    async def window(self, name: str, expiry: float) -> tuple[float, int]:
        """The time of the oldest hit in the window, or now, and the number of hits. One round trip."""
        key = self.keys.moving(name)
        now_ms, hits = await self.keys.run(key.clock(), key.between(-math.inf, math.inf))
        times = [at_ms for _, at_ms in hits if at_ms >= now_ms - _ms(expiry)]
        return (times[0] if times else now_ms) / 1000, len(times)

    # --- sliding window counters -------------------------------------------------------------------------------

    async def acquire_counted(self, name: str, limit: int, expiry: float, amount: int) -> bool:
        """Count `amount` hits, or none if the weighted count leaves no room. Two round trips; the second is atomic.

        Who may interleave: other hits. The current window has its own guard. The weight of the previous window only
        falls with time, and nobody adds to it any more.
        """
        counts = await self.counted(name, expiry)
        room = limit - amount - math.floor(counts.previous * counts.previous_ttl / expiry)
        if room < counts.current:
            return False
        _, current = self._windows(name, expiry)
        lasting = current.lasting(2 * _ms(expiry))
        return bool(await self.keys.atomically(current.at_most(room), lasting.increment(amount)))

    async def counted(self, name: str, expiry: float) -> SlidingCounts:
        """One round trip."""
        previous, current = self._windows(name, expiry)
        passed = self.keys.now_ms() / 1000 % expiry
        before, now = await self.keys.run(previous.get(), current.get())
        return SlidingCounts(before, expiry - passed if before else 0.0, now, 2 * expiry - passed)

    def _windows(self, name: str, expiry: float) -> tuple[Any, Any]:
        window = self.keys.now_ms() // _ms(expiry)
        return self.keys.counted(name, window - 1), self.keys.counted(name, window)

    # --- deleting --------------------------------------------------------------------------------------------

    async def clear(self, name: str) -> None:
        await self.keys.run(self.keys.fixed(name).delete(), self.keys.moving(name).delete())

    async def clear_counted(self, name: str, expiry: float) -> None:
        await self.keys.run(*(window.delete() for window in self._windows(name, expiry)))

    async def reset(self) -> int:
        """Delete all counts, and nothing else; returns how many. It scans the keys in small steps."""
        deleted, page = 0, []
        async for key in self._all():
            page.append(key)
            if len(page) == _AT_ONCE:
                deleted += await self._delete(page)
                page = []
        return deleted + await self._delete(page)

    async def _all(self) -> AsyncIterator[Any]:
        for bound in (self.keys.fixed, self.keys.moving, self.keys.counted):
            async for key in bound.scan(_AT_ONCE):
                yield key

    async def _delete(self, page: list[Any]) -> int:
        return sum(await self.keys.run(*(key.delete() for key in page))) if page else 0

    async def check(self) -> bool:
        """Raises StoreError if the store does not answer."""
        await self.keys.fixed("check").exists()
        return True


def _ms(seconds: float) -> int:
    return math.ceil(seconds * 1000)
