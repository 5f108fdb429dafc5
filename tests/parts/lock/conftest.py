"""Shared by the lock tests: locks on every kind of store, and a frozen clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from keystead import Counter, Keyspace, Store, Value, sliding
from keystead.parts.lock import Hold, Holder, Lock
from tests.every_store import (
    EVERY,
    mariadb_server,
    on,
    postgres_server,
    redis_server,
    store,
    stores,
    valkey_cluster,
)
from tests.kits.sharing.visiting import Clock

__all__ = ["mariadb_server", "postgres_server", "redis_server", "store", "stores", "valkey_cluster"]

everywhere = on(*EVERY, "cluster")
here = on("memory")


class LockKeys(Keyspace):
    """Sites that one person at a time changes."""

    lock = Value("lock:{site:int}", Holder, lifetime=sliding("120s", touch_every="30s"), tag="site", doc="who has it")
    fence = Counter("lock:{site:int}:fence", lifetime=sliding("400d", touch_every="1d"), tag="site", doc="its number")
    change = Value("site:{site:int}:change", int, lifetime=sliding("1h", touch_every="1m"), tag="site", doc="a change")


class Waits:
    """Waits that a test ends."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[tuple[float, asyncio.Future[None]]] = asyncio.Queue()

    async def __call__(self, seconds: float) -> None:
        ended = asyncio.get_running_loop().create_future()
        self.asked.put_nowait((seconds, ended))
        await ended

    async def end_next(self, first: Callable[[], object] = lambda: None) -> float:
        """End the next wait as soon as it starts; returns its length."""
        async with asyncio.timeout(60):
            seconds, ended = await self.asked.get()
        first()
        ended.set_result(None)
        return seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keys(store: Store, clock: Clock) -> LockKeys:
    return LockKeys(store, now_ms=clock)


def lock_of(keys: LockKeys, site: int = 7, **options: Any) -> Lock:
    return Lock(keys.lock(site), keys.fence(site), **options)


async def held(lock: Lock, by: str = "user:1", comment: str = "") -> Hold:
    hold = await lock.acquire(by, comment)
    assert isinstance(hold, Hold)
    return hold


async def let_it_run_out(keys: LockKeys, site: int = 7) -> None:
    """Simulate the expiry 120 s after the last refresh."""
    await keys.lock(site).bound.store.run([("PEXPIRE", keys.lock(site).key, 1)])
    await until(lambda: keys.lock(site).remaining(), lambda left: left is None)


async def until(ask: Callable[[], Awaitable[Any]], is_so: Callable[[Any], bool]) -> None:
    """Poll until the result is as expected."""
    async with asyncio.timeout(60):
        while True:
            if is_so(await ask()):
                return
            await asyncio.sleep(0.001)
