"""Shared by the cache tests: caches on every kind of store, and a scripted provider."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from keystead import Hash, Keyspace, Store, Value, after, never
from keystead.parts.cache import Cache, LoadMarkers
from keystead.stores.sqlite.sqlite_store import MEMORY, SqliteStore
from tests.every_store import EVERY, mariadb_server, on, postgres_server, redis_server, store, stores, valkey_cluster
from tests.real_servers import memcached_server

__all__ = [
    "mariadb_server",
    "memcached_server",
    "on",
    "postgres_server",
    "redis_server",
    "store",
    "stores",
    "valkey_cluster",
]

atomic = (*EVERY, "cluster")
everywhere = on(*atomic)
in_every_store = on(*atomic, "memcached")
here = on("memory")
on_memcached = on("memcached")

MINUTE, HOUR = 60_000, 3_600_000


class Membership(BaseModel):
    """The plan of a user, and when it was loaded."""

    plan: str
    cachedAt: int = 0  # noqa: N815 - as it is stored


class Summary(BaseModel):
    """What is counted for a page."""

    open: int
    done: int


class CacheKeys(Keyspace):
    """Memberships and their markers. `truth` is the provider's current value."""

    membership = Value("membership:{id}", Membership, lifetime=after("1h", jitter="10%"), role="cache", tag="id")
    mark = LoadMarkers("membership:{id}:mark", loading="10s", retry="5s", retry_at_most="1m", nothing="2m", tag="id")
    truth = Value("truth:{id}", Membership, lifetime=never("the tests delete it"), role="cache", tag="id")


class StaleKeys(CacheKeys):
    """The same with stale copies, and with hashes."""

    stale = Value("membership:{id}:stale", Membership, lifetime=after("1d"), role="cache", tag="id")
    summary = Hash("summary:{id}", Summary, lifetime=after("300s"), role="cache", tag="id")
    summary_mark = LoadMarkers("summary:{id}:mark", tag="id")
    summary_stale = Hash("summary:{id}:stale", Summary, lifetime=after("1h"), role="cache", tag="id")


class Provider:
    """A scripted provider that counts its calls."""

    def __init__(self, says: Any = None) -> None:
        self.says = Membership(plan="Pro") if says is None else says
        self.raises: BaseException | None = None
        self.calls = 0
        self.was_asked = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def __call__(self) -> Any:
        self.calls += 1
        # The value at the time of the call, however long the response takes.
        said, raised = self.says, self.raises
        self.was_asked.set()
        await self.may_answer.wait()
        if raised is not None:
            raise raised
        return said


def cache_of(keys: CacheKeys, **options: Any) -> Cache[Membership]:
    """A cache as in another process, with stale copies if the store supports them."""
    stale = keys.stale if isinstance(keys, StaleKeys) else None
    return Cache(keys.membership, keys.mark, stale=stale, **options)


@pytest.fixture
def keys(store: Store) -> CacheKeys:
    return CacheKeys(store) if store.guarantees.atomic == "one key" else StaleKeys(store)


@pytest.fixture
def cache(keys: CacheKeys) -> Cache[Membership]:
    return cache_of(keys)


@pytest.fixture
def provider() -> Provider:
    return Provider()


class Time:
    """A frozen clock, moved by tests."""

    def __init__(self) -> None:
        self.ms = 1_800_000_000_000

    def __call__(self) -> int:
        return self.ms


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
async def timed(time: Time, tmp_path: Path) -> AsyncIterator[StaleKeys]:
    """Keys in a store in memory with a frozen clock."""
    async with SqliteStore(MEMORY, clock=time) as opened:
        yield StaleKeys(opened, now_ms=time)


async def let_it_run_out(key: Any) -> None:
    """Simulate the expiry of a key."""
    await key.bound.store.run([("PEXPIRE", key.key, 1)])
    await until(key.exists, lambda there: not there)


async def until(ask: Callable[[], Awaitable[Any]], is_so: Callable[[Any], bool]) -> None:
    """Poll until the result is as expected."""
    async with asyncio.timeout(60):
        while True:
            if is_so(await ask()):
                return
            await asyncio.sleep(0.001)
