"""Near reads when a key moves to another server: by a slot that moves, or by a fail-over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

import keystead
from keystead import Keyspace, Value, never
from keystead.errors import StoreUnavailable
from keystead.stores.redis.redis_near_reads import RedisNearReads
from tests import servers
from tests.servers import Cluster, Sentinels
from tests.stores.redis.slot_move import Move
from tests.stores.redis.waits import until

BOUND_S = 0.3
FAST = "?timeout=1s&connect_timeout=1s"


class Keys(Keyspace):
    name = Value("name:{id}", str, lifetime=never("test"), near="300ms")


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with servers.cluster() as running:
        yield running


@pytest.fixture
def watched() -> Iterator[Sentinels]:
    with servers.sentinel() as running:
        yield running


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(120):
        while True:
            try:
                if await holds():
                    return
            except StoreUnavailable:
                pass
            await asyncio.sleep(0.001)


async def warm(keys: Keys, id: str) -> None:
    near = keys.name.store.near
    assert near is not None

    async def is_hit() -> bool:
        before = near.hits
        await keys.name(id).get()
        return near.hits > before

    await eventually(is_hit)


async def stale_for_s(keys: Keys, id: str, old: str, since: float) -> float:
    """Read until the new value comes; how long after `since` a read that gave the old one was begun."""
    loop, stale_s = asyncio.get_running_loop(), 0.0
    async with asyncio.timeout(120):
        while True:
            began = loop.time()
            try:
                if await keys.name(id).get() != old:
                    return stale_s
                stale_s = began - since
            except StoreUnavailable:
                pass
            await asyncio.sleep(0)


async def test_a_slot_that_moves_takes_its_copies_along(cluster: Cluster) -> None:
    loop = asyncio.get_running_loop()
    async with keystead.connect(cluster.url + FAST) as store:
        keys = Keys(store)
        for value in ("first", "second", "third"):
            await keys.name("a").set(value)
            await warm(keys, "a")
            move = Move(cluster, "name:a")
            await asyncio.to_thread(move.begin)
            await asyncio.to_thread(move.finish)
            changed = loop.time()
            move.target.ask("SET", "name:a", "elsewhere")
            assert await stale_for_s(keys, "a", value, changed) <= BOUND_S
            assert await keys.name("a").get() == "elsewhere"


async def test_a_key_that_comes_after_its_slot_has_moved_is_seen(cluster: Cluster) -> None:
    """The old owner hears nothing of it, so that a key is missing is never kept."""
    async with keystead.connect(cluster.url + FAST) as store:
        keys = Keys(store)
        await keys.name("there").set("x")
        await warm(keys, "there")
        assert [await keys.name("missing").get() for _ in range(3)] == [None] * 3
        move = Move(cluster, "name:missing")
        await asyncio.to_thread(move.begin)
        await asyncio.to_thread(move.finish)
        move.target.ask("SET", "name:missing", "come")
        assert await keys.name("missing").get() == "come"


@pytest.mark.matrix
@pytest.mark.timeout(180)
async def test_a_fail_over_ends_the_copies_of_the_old_master(watched: Sentinels) -> None:
    async with keystead.connect(watched.url + FAST) as store:
        keys = Keys(store)
        await keys.name("a").set("old")
        await until(lambda: all(one.ask("GET", "name:a") == b"old" for one in watched.servers), "it is replicated")
        await warm(keys, "a")
        master, near, loop = watched.master(), keys.name.store.near, asyncio.get_running_loop()
        assert isinstance(near, RedisNearReads)
        master.pause()
        try:
            stopped, last_s = loop.time(), 0.0

            async def is_of_another_master() -> bool:
                nonlocal last_s
                began, hits = loop.time(), near.hits
                await keys.name("a").get()
                is_old = near.address is not None and near.address.port == master.port
                if near.hits > hits and is_old:
                    last_s = began - stopped
                return near.hits > hits and not is_old

            await eventually(is_of_another_master)
            assert last_s <= BOUND_S

            async def is_written() -> bool:  # writes have their own connection, which may learn of it later
                await keys.name("a").set("new")
                return True

            await eventually(is_written)
            assert await keys.name("a").get() == "new"
        finally:
            master.resume()
