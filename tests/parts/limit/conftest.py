"""Shared by the rate limit tests: limits of each kind on stores of each kind, and a clock that a test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from keystead import Counter, Hash, Keyspace, SortedSet, Store, after, connect, sliding
from keystead.parts.limit import AlignedWindow, FixedWindow, Limit, SlidingWindow, TokenBucket
from keystead.schema import EpochMs
from keystead.stores.sqlite.sqlite_store import SqliteStore
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
from tests.real_servers import memcached_server
from tests.servers import MemcachedServer

__all__ = [
    "mariadb_server",
    "memcached_server",
    "postgres_server",
    "redis_server",
    "store",
    "stores",
    "valkey_cluster",
]

everywhere = on(*EVERY, "cluster")
here = on("memory")
NOW_MS = 1_790_000_025_000


class Window(BaseModel):
    count: int
    windowStart: EpochMs  # noqa: N815 - as the document has it


class LimitKeys(Keyspace):
    """Limits of each kind."""

    fixed = Counter("limit:fixed:{client}", lifetime=after("1m"), tag="client", doc="hits of a minute")
    record = Hash("limit:record:{client}", Window, lifetime=after("1m"), tag="client", doc="the same as a hash")
    aligned = Counter("limit:aligned:{client}:{windowStart:int}", lifetime=after("2d"), doc="hits of a day")
    log = SortedSet("limit:log:{client}", str, lifetime=sliding("2m", touch_every="1s"), tag="client", doc="hits")
    bucket = SortedSet("limit:bucket:{client}", str, lifetime=sliding("1h", touch_every="1s"), tag="client", doc="full")
    orders = Counter("orders:{client}", lifetime=after("1h"), tag="client", doc="what is limited")


@dataclass(frozen=True)
class Kind:
    """A kind of limit, and how to end its window on a store with a real clock."""

    name: str
    make: Callable[..., Limit]
    pass_window: Callable[[LimitKeys, str], Awaitable[Any]]


async def _run_out(keys: LimitKeys, key: str) -> None:
    store = keys.fixed.store
    await store.run([("PEXPIREAT", key, 1)])


async def _move_back(keys: LimitKeys, key: str) -> None:
    """Simulate that a minute and a millisecond have passed since all hits of a sorted set."""
    store = keys.log.store
    [held] = await store.run([("ZRANGE", key, 0, -1, "WITHSCORES")])
    pairs = [part for member, score in held for part in (score - 60_001, member)]
    await store.run([("ZADD", key, "XX", *pairs)])


KINDS = (
    Kind(
        "fixed",
        lambda keys, rate="10/minute", **more: FixedWindow(keys.fixed, rate, **more),
        lambda keys, client: _run_out(keys, keys.fixed(client).key),
    ),
    Kind(
        "record",
        lambda keys, rate="10/minute", **more: FixedWindow(keys.record, rate, **more),
        lambda keys, client: _run_out(keys, keys.record(client).key),
    ),
    Kind(
        "sliding",
        lambda keys, rate="10/minute", **more: SlidingWindow(keys.log, rate, **more),
        lambda keys, client: _move_back(keys, keys.log(client).key),
    ),
    Kind(
        "bucket",
        lambda keys, rate="10/minute", **more: TokenBucket(keys.bucket, rate, **more),
        lambda keys, client: _move_back(keys, keys.bucket(client).key),
    ),
)
each_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)


@pytest.fixture
def keys(store: Store) -> LimitKeys:
    return LimitKeys(store)


class Clock:
    """A frozen clock, moved by tests."""

    def __init__(self, ms: int = NOW_MS) -> None:
        self.ms = ms

    def __call__(self) -> int:
        return self.ms


@asynccontextmanager
async def at_a_clock(clock: Clock) -> AsyncIterator[LimitKeys]:
    """A store in memory with this clock."""
    async with SqliteStore(":memory:", clock=clock) as opened:
        yield LimitKeys(opened, now_ms=clock)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def timed(clock: Clock) -> AsyncIterator[LimitKeys]:
    async with at_a_clock(clock) as keys:
        yield keys


@pytest.fixture
async def memcached(memcached_server: MemcachedServer) -> AsyncIterator[Store]:
    memcached_server.empty()
    async with connect(memcached_server.url) as opened:
        yield opened


def limit_of(keys: LimitKeys, name: str) -> Limit:
    """A limit of each kind, for a worker process."""
    if name == "aligned":
        return AlignedWindow(keys.aligned, "10/day")
    return next(kind for kind in KINDS if kind.name == name).make(keys)
