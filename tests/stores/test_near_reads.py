"""Near reads: answered from a copy in the process, and never further behind the store than the bound."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

import keystead
from keystead import Counter, Hash, Keyspace, Set, Value, after, never
from keystead.errors import BadDeclaration, StoreUnavailable, WrongEventLoop
from keystead.stores.commands import read
from keystead.stores.near_reads import COPY_MAX_BYTES, MAX_BYTES, Copies, Copy, NearRead, NearReads
from tests import servers
from tests.real_servers import upstash_gateway
from tests.servers import Cluster, GatewayServer, Server
from tests.stores.redis.proxy import Proxy
from tests.stores.redis.waits import until

__all__ = ["upstash_gateway"]

BOUND_S = 0.3


class Keys(Keyspace):
    name = Value("name:{id}", str, lifetime=never("test"), near="300ms")
    brief = Value("brief:{id}", str, lifetime=after("200ms"), near="1h")
    far = Value("far:{id}", str, lifetime=never("test"))
    visits = Counter("visits:{id}", lifetime=never("test"), near="300ms")
    tags = Set("tags:{id}", str, lifetime=never("test"), near="300ms")
    parts = Hash("parts:{id}", dict[str, str], lifetime=never("test"), near="300ms")


def near_of(keys: Keys) -> NearReads:
    near = keys.name.store.near
    assert near is not None
    return near


async def warm(keys: Keys, id: str) -> None:
    """Read until a copy answers: the first read only starts the connection that copies need."""
    near = near_of(keys)

    async def is_hit() -> bool:
        before = near.hits
        await keys.name(id).get()
        return near.hits > before

    await eventually(is_hit)


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    """Ask again and again, until it holds; at most as long as a test may take."""
    async with asyncio.timeout(60):
        while True:
            if await holds():
                return
            await asyncio.sleep(0.001)


async def answers(keys: Keys, expected: str | None) -> None:
    """Wait until reads work, and check what they give."""

    async def does() -> bool:
        try:
            assert await keys.name("a").get() == expected
        except StoreUnavailable:
            return False
        return True

    await eventually(does)


async def stale_for_s(keys: Keys, old: str, since: float) -> float:
    """Read until the store is unavailable; how long after `since` a read that gave the old value was begun."""
    loop, stale_s = asyncio.get_running_loop(), 0.0
    while True:
        began = loop.time()
        try:
            assert await keys.name("a").get() == old
        except StoreUnavailable:
            return stale_s
        stale_s = began - since
        await asyncio.sleep(0)


@asynccontextmanager
async def opened(url: str) -> AsyncIterator[Keys]:
    async with keystead.connect(url) as store:
        yield Keys(store)


@pytest.fixture(params=["sqlite", "memory", "redis", "cluster", pytest.param("upstash", marks=pytest.mark.matrix)])
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Keys, Keys]]:
    """The same keys, opened twice: as by two processes, where the store can be shared."""
    if request.param == "memory":
        async with opened("memory://") as keys:
            yield keys, keys
    else:
        url = f"sqlite:///{tmp_path}/near.db"
        if request.param == "redis":
            server: Server = request.getfixturevalue("shared_valkey")
            server.ask("FLUSHALL")
            url = server.url
        elif request.param == "upstash":
            gateway: GatewayServer = request.getfixturevalue("upstash_gateway")
            gateway.empty()
            url = gateway.upstash_url
        elif request.param == "cluster":
            cluster: Cluster = request.getfixturevalue("shared_cluster")
            cluster.flush()
            url = cluster.url
        async with opened(url) as first, opened(url) as second:
            yield first, second


@pytest.fixture(scope="module")
def shared_cluster() -> Iterator[Cluster]:
    with servers.cluster() as running:
        yield running


@pytest.fixture(scope="module")
def shared_valkey() -> Iterator[Server]:
    with servers.valkey() as running:
        yield running


async def test_a_second_read_makes_no_round_trip_and_gives_the_same(pair: tuple[Keys, Keys]) -> None:
    keys, _ = pair
    await keys.name("a").set("Ann")
    await warm(keys, "a")
    near = near_of(keys)
    hits, misses = near.hits, near.misses
    assert [await keys.name("a").get() for _ in range(5)] == ["Ann"] * 5
    assert (near.hits - hits, near.misses - misses) == (5, 0)


async def test_a_process_reads_its_own_writes_at_once(pair: tuple[Keys, Keys]) -> None:
    keys, _ = pair
    await keys.name("a").set("0")
    await warm(keys, "a")
    for n in range(1, 200):
        if n % 3 == 0:
            await keys.name("a").set(str(n))
        elif n % 3 == 1:
            await keys.atomically(keys.name("a").exists().required(), keys.name("a").set(str(n)))
        else:
            await keys.name("a").change(lambda old, n=n: str(n))  # type: ignore[misc]
        assert await keys.name("a").get() == str(n)
    await keys.name("a").delete()
    assert await keys.name("a").get() is None


async def test_a_step_that_only_reads_drops_no_copy(pair: tuple[Keys, Keys]) -> None:
    keys, _ = pair
    await keys.name("a").set("Ann")
    await warm(keys, "a")
    near = near_of(keys)
    misses = near.misses
    for _ in range(5):  # planned at first, compiled from then on
        assert await keys.atomically(keys.name("a").exists().required(), keys.name("a").see())
        assert await keys.name("a").get() == "Ann"
    assert near.misses == misses


async def test_a_write_elsewhere_is_seen_within_the_bound(pair: tuple[Keys, Keys]) -> None:
    keys, other = pair
    await other.name("a").set("0")
    await warm(keys, "a")
    loop = asyncio.get_running_loop()
    for n in range(1, 50):
        await other.name("a").set(str(n))
        began = written = loop.time()
        while await keys.name("a").get() != str(n):
            assert began - written <= BOUND_S
            await asyncio.sleep(0)
            began = loop.time()


async def test_all_kinds_are_read_near_and_see_is_not(pair: tuple[Keys, Keys]) -> None:
    keys, other = pair
    await keys.run(
        keys.visits("a").increment(3),
        keys.tags("a").add("x", "y"),
        keys.parts("a").put({"m": "1", "n": "2"}),
        keys.name("a").set("Ann"),
    )
    await warm(keys, "a")
    for _ in range(3):
        assert await keys.visits("a").get() == 3
        assert await keys.tags("a").members() == {"x", "y"}
        assert await keys.tags("a").has("x")
        assert not await keys.tags("a").has("z")
        assert await keys.parts("a").field("n") == "2"
        assert await keys.parts("a").get() == {"m": "1", "n": "2"}
    near = near_of(keys)
    hits, misses = near.hits, near.misses
    assert (await keys.name("a").see()) is not None
    assert await keys.far("a").get() is None
    assert (near.hits, near.misses) == (hits, misses)
    await other.tags("a").remove("x")

    async def is_gone() -> bool:
        return not await keys.tags("a").has("x")

    await eventually(is_gone)


async def test_a_copy_does_not_outlive_its_key(pair: tuple[Keys, Keys]) -> None:
    keys, _ = pair
    await keys.name("a").set("Ann")
    await warm(keys, "a")
    began = time.monotonic()
    await keys.brief("a").set("soon gone")
    hits = near_of(keys).hits
    is_there = True
    while is_there:
        [left_ms] = await keys.name.store.run([("PTTL", b"brief:a")])
        is_there = await keys.brief("a").get() is not None
        assert left_ms != -2 or not is_there, "the copy outlives its key"
    assert time.monotonic() - began > 0.19, "the copy was dropped before its key"
    assert near_of(keys).hits > hits


async def test_what_is_not_there_is_known_too_and_seen_when_it_comes(pair: tuple[Keys, Keys]) -> None:
    keys, other = pair
    await other.name("nobody").set("somebody else")
    await warm(keys, "nobody")
    await other.name("nobody").delete()

    async def is_gone() -> bool:
        return await keys.name("nobody").get() is None

    await eventually(is_gone)
    assert await keys.name("nobody").get() is None
    await other.name("nobody").set("somebody")

    async def has_come() -> bool:
        return await keys.name("nobody").get() == "somebody"

    await eventually(has_come)


# --- Redis, when things go wrong ----------------------------------------------------------------------------


@pytest.fixture
def server() -> Iterator[Server]:
    with servers.valkey() as running:
        yield running


@pytest.fixture
async def proxy(server: Server) -> AsyncIterator[Proxy]:
    async with Proxy(server.port) as running:
        yield running


async def test_a_network_that_swallows_packets_ends_copies_after_the_bound(server: Server, proxy: Proxy) -> None:
    async with opened(proxy.url + "?timeout=1s&connect_timeout=1s") as keys:
        await keys.name("a").set("old")
        await warm(keys, "a")
        proxy.black_hole()
        changed = asyncio.get_running_loop().time()
        server.ask("SET", "name:a", "new")
        assert 0 < await stale_for_s(keys, "old", changed) <= BOUND_S
        await proxy.resume()
        await answers(keys, "new")


async def test_a_server_that_is_stopped_ends_copies_after_the_bound(server: Server) -> None:
    async with opened(server.url + "?timeout=1s&connect_timeout=1s") as keys:
        await keys.name("a").set("Ann")
        await warm(keys, "a")
        server.pause()
        try:
            stopped = asyncio.get_running_loop().time()
            assert await stale_for_s(keys, "Ann", stopped) <= BOUND_S
        finally:
            server.resume()


@pytest.mark.parametrize("is_connecting", [False, True])
async def test_near_reads_follow_the_store_to_the_master_that_its_name_leads_to(
    server: Server, proxy: Proxy, is_connecting: bool
) -> None:
    """The old master lives on as a replica: its connections stay open, and it hears of no change."""
    with servers.valkey() as successor:
        async with opened(proxy.url) as keys:
            await keys.name("a").set("old")
            if is_connecting:
                assert await keys.name("a").get() == "old"
            else:
                await warm(keys, "a")
            proxy.lead_to(successor.port)
            server.ask("REPLICAOF", "127.0.0.1", servers.free_port())
            await keys.name("a").set("new")
            for _ in range(50):
                assert await keys.name("a").get() == "new"
                await asyncio.sleep(0)
            await warm(keys, "a")
            assert await keys.name("a").get() == "new"


@pytest.mark.parametrize("end", ["kill the client", "FLUSHALL", "FLUSHDB", "restart"])
async def test_all_copies_go_when_the_server_forgets(server: Server, end: str) -> None:
    async with opened(server.url) as keys:
        await keys.name("a").set("Ann")
        await warm(keys, "a")
        near = near_of(keys)
        if end == "kill the client":
            server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        elif end == "restart":
            server.kill()
            server.start()
        else:
            server.ask(end)
        await until(lambda: len(near.copies) == 0, "the copies are gone")
        await answers(keys, "Ann" if end == "kill the client" else None)


async def test_who_may_not_track_keys_reads_as_before(server: Server) -> None:
    server.ask("ACL", "SETUSER", "plain", "on", ">secret", "~*", "&*", "+@all", "-client|tracking")
    async with opened(f"redis://plain:secret@127.0.0.1:{server.port}/0") as keys:
        await keys.name("a").set("Ann")
        for n in range(50):
            await keys.name("a").set(str(n))
            assert await keys.name("a").get() == str(n)
        assert near_of(keys).hits == 0


@pytest.mark.parametrize("atomic", [False, True])
async def test_a_process_reads_what_its_own_foreign_commands_wrote(server: Server, atomic: bool) -> None:
    async with opened(server.url) as keys:
        await keys.name("a").set("0")
        await warm(keys, "a")
        store = keys.name.store
        for n in range(1, 300):
            script = ["EVAL", "return redis.call('SET', KEYS[1], ARGV[1])", "1", "name:a", str(n)]
            await store.run_foreign([script], atomic=atomic)
            assert await keys.name("a").get() == str(n)


@pytest.mark.matrix
async def test_a_revocation_is_never_missed_under_load(server: Server) -> None:
    """Many readers, and writers in another process: no reader ever goes back to an older value."""
    async with opened(server.url) as keys, opened(server.url) as other:
        await other.name("a").set("0")
        await warm(keys, "a")
        done = False
        last = 0

        async def watch() -> None:
            nonlocal last
            while not done:
                number = int(await keys.name("a").get() or 0)
                assert number >= last
                last = number
                await asyncio.sleep(0)

        watchers = [asyncio.ensure_future(watch()) for _ in range(20)]
        for n in range(1, 1000):
            await other.name("a").set(str(n))

        async def is_last() -> bool:
            return await keys.name("a").get() == "999"

        await eventually(is_last)
        done = True
        await asyncio.gather(*watchers)


# --- copies -------------------------------------------------------------------------------------------------


def copy_of(key: str, reply: bytes) -> Copy:
    return Copy(NearRead([read(("GET", key))]), [reply], math.inf)


def test_copies_are_bounded_and_the_least_recently_used_go_first() -> None:
    copies = Copies()
    size = COPY_MAX_BYTES // 2
    for n in range(400):
        copies.add(copy_of(f"k{n}", bytes(size)))
        copies.find(NearRead([read(("GET", "k0"))]))
    assert copies.size <= MAX_BYTES
    assert len(copies) == MAX_BYTES // copy_of("k100", bytes(size)).size
    assert copies.find(NearRead([read(("GET", "k0"))])) is not None
    assert copies.find(NearRead([read(("GET", "k1"))])) is None
    copies.add(copy_of("large", bytes(COPY_MAX_BYTES)))
    assert copies.find(NearRead([read(("GET", "large"))])) is None
    copies.drop([b"k0", b"k399", b"unknown"])
    assert copies.find(NearRead([read(("GET", "k399"))])) is None
    copies.clear()
    assert (len(copies), copies.size, copies.keys) == (0, 0, [])


def test_two_reads_of_one_batch_depend_on_both_keys() -> None:
    copies = Copies()
    both = NearRead([read(("GET", "a")), read(("SISMEMBER", "b", "m"))])
    for key in (b"a", b"b"):
        copies.add(Copy(both, [b"1", 1], math.inf))
        copies.drop([key])
        assert len(copies) == 0
        assert copies.keys == []


def test_reads_that_differ_have_different_copies() -> None:
    reads: list[Callable[[], NearRead]] = [
        lambda: NearRead([read(("GET", "a"))]),
        lambda: NearRead([read(("HGETALL", "a"))]),
        lambda: NearRead([read(("HGET", "a", "b"))]),
        lambda: NearRead([read(("GET", "a")), read(("GET", "b"))]),
        lambda: NearRead([read(("SISMEMBER", "a", "GET"))]),
    ]
    assert len({one().identity for one in reads}) == len(reads)


@pytest.mark.parametrize("near", ["soon", "0s", 5])
def test_a_bound_that_is_no_duration_is_refused(near: Any) -> None:
    with pytest.raises(BadDeclaration, match="near"):
        Value("name:{id}", str, lifetime=never("test"), near=near)


@pytest.mark.parametrize("url", ["memory://", "sqlite", "redis"])
async def test_another_event_loop_is_refused_also_where_there_is_a_copy(
    url: str, tmp_path: Path, server: Server
) -> None:
    url = {"sqlite": f"sqlite:///{tmp_path}/near.db", "redis": server.url}.get(url, url)
    async with opened(url) as keys:
        await keys.name("a").set("Ann")
        await warm(keys, "a")

        async def read_elsewhere() -> None:
            with pytest.raises(WrongEventLoop):
                await keys.name("a").get()

        await asyncio.to_thread(asyncio.run, read_elsewhere())
