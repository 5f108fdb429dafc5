"""Servers that hang, go down and recover, alone or one of several."""

import asyncio

import pytest

from keystead import Store, connect
from keystead.errors import StoreFull, StoreUnavailable
from tests import servers
from tests.servers import MemcachedServer
from tests.stopwatch import Stopwatch
from tests.stores.redis.proxy import Proxy

pytestmark = pytest.mark.anyio


def through(proxy: Proxy) -> str:
    return f"memcached://127.0.0.1:{proxy.port}"


async def recovered(store: Store, key: str) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                await store.run([("SET", key, "again")])
                return
            except StoreUnavailable:
                await asyncio.sleep(0.01)


async def test_a_server_outage_is_reported_immediately_and_recovers() -> None:
    with servers.memcached() as server:
        async with connect(f"{server.url}?connect_timeout=1s") as store:
            await store.run([("SET", "a", 1)])
            server.kill()
            with pytest.raises(StoreUnavailable, match="cannot reach"):
                await store.run([("GET", "a")])
            watch = Stopwatch()
            with pytest.raises(StoreUnavailable) as caught:
                await store.run([("SET", "a", 2)])
            assert watch.seconds < 0.5
            assert caught.value.outcome == "not-sent"
            await asyncio.to_thread(server.restart)
            await recovered(store, "b")
            # It keeps nothing over a restart, as its guarantees say.
            assert await store.run([("GET", "a"), ("GET", "b")]) == [None, b"again"]


async def test_a_hanging_server_fails_within_the_timeout(server: MemcachedServer) -> None:
    async with Proxy(server.port) as proxy, connect(f"{through(proxy)}?timeout=1s") as store:
        proxy.black_hole()
        watch = Stopwatch()
        with pytest.raises(StoreUnavailable) as reading:
            await store.run([("GET", "a")])
        with pytest.raises(StoreUnavailable) as writing:
            await store.run([("SET", "a", 1)])
        assert watch.seconds < 2 * 1.5
        await proxy.resume()
        assert reading.value.outcome == "not-sent"
        assert writing.value.outcome in ("not-sent", "unknown")
        await recovered(store, "a")


@pytest.mark.parametrize("command", [("SET", "a", 1), ("SET", "a", 1, "NX")], ids=["at once", "after a look"])
async def test_a_write_whose_answer_was_lost_may_or_may_not_have_been_made(
    server: MemcachedServer, command: tuple[str | int, ...]
) -> None:
    async with Proxy(server.port) as proxy, connect(through(proxy)) as store:
        proxy.cut_replies_after(len("EN\r\n") if "NX" in command else 0)
        with pytest.raises(StoreUnavailable, match="may or may not") as caught:
            await store.run([command])
        assert caught.value.outcome == "unknown"
        assert await store.run([("GET", "a")]) == [b"1"]


async def test_a_lost_read_is_retried_and_the_write_happens_once(server: MemcachedServer) -> None:
    async with Proxy(server.port) as proxy, connect(through(proxy)) as store:
        await store.run([("SET", "a", 1)])
        proxy.cut_replies_after(0)
        assert await store.run([("INCRBY", "a", 1)]) == [2]
        assert await store.run([("GET", "a")]) == [b"2"]


async def test_closing_ends_calls_under_way(server: MemcachedServer) -> None:
    async with Proxy(server.port) as proxy:
        store = connect(through(proxy))
        await store.open()
        proxy.black_hole()
        calls = [asyncio.create_task(store.run([("INCRBY", "n", 1)])) for _ in range(5)]
        calls.append(asyncio.create_task(store.run([("GET", "n")])))
        await asyncio.sleep(0)
        watch = Stopwatch()
        await store.close()
        ended = await asyncio.gather(*calls, return_exceptions=True)
        assert watch.seconds < 2
        assert all(isinstance(end, Exception) for end in ended)


async def test_keys_are_spread_over_servers_and_each_process_finds_them() -> None:
    with servers.memcached() as one, servers.memcached() as two, servers.memcached() as three:
        hosts = [f"127.0.0.1:{server.port}" for server in (one, two, three)]
        keys = [f"k{n}" for n in range(300)]
        async with connect(f"memcached://{','.join(hosts)}") as store:
            assert await store.run([("SET", key, key) for key in keys]) == [b"OK"] * 300
            assert await store.run([("DEL", *keys[:10])]) == [10]
        # The order in the URL decides nothing.
        async with connect(f"memcached://{','.join(reversed(hosts))}") as store:
            assert await store.run([("MGET", *keys)]) == [[None] * 10 + [key.encode() for key in keys[10:]]]
        held = [
            int(server.exchange("stats", b"END\r\n").split(b"curr_items ")[1].split()[0])
            for server in (one, two, three)
        ]
        assert sum(held) == 290
        assert min(held) > 50


async def test_one_server_outage_affects_only_its_keys_and_moves_none() -> None:
    with servers.memcached() as one, servers.memcached() as two:
        url = f"memcached://127.0.0.1:{one.port},127.0.0.1:{two.port}?connect_timeout=1s"
        keys = [f"k{n}" for n in range(40)]
        async with connect(url) as store:
            await store.run([("SET", key, "old") for key in keys])
            two.kill()
            with pytest.raises(StoreUnavailable) as caught:
                await store.run([("SET", key, "new") for key in keys])
            replies = caught.value.replies
            assert replies is not None
            written = [key for key, reply in zip(keys, replies, strict=True) if reply == b"OK"]
            assert 5 < len(written) < 35
            assert await store.run([("GET", key) for key in written]) == [b"new"] * len(written)
            with pytest.raises(StoreUnavailable) as reading:
                await store.run([("MGET", *keys)])
            assert reading.value.outcome == "not-sent"
            # One of them is down then, so no caller may get "not-sent".
            away = next(key for key in keys if key not in written)
            with pytest.raises(StoreUnavailable) as deleting:
                await store.run([("DEL", away, deleted := written.pop())])
            assert deleting.value.outcome == "unknown"
            assert await store.run([("EXISTS", deleted)]) == [0]
            await asyncio.to_thread(two.restart)
            await recovered(store, away)
            held = await store.run([("GET", key) for key in keys])
        assert held == [b"new" if key in written else b"again" if key == away else None for key in keys]


async def test_a_cancelled_write_that_has_not_started_is_not_written(server: MemcachedServer) -> None:
    async with Proxy(server.port) as proxy, connect(through(proxy)) as store:
        proxy.black_hole()
        # One that waits for its look at the key, and one that begins with a SET and shares its round.
        given_up = [
            asyncio.create_task(store.run([("INCRBY", "a", 1)])),
            asyncio.create_task(store.run([("SET", "b", 1)])),
        ]
        kept = asyncio.create_task(store.run([("INCRBY", "b", 5), ("INCRBY", "c", 1)]))
        for _ in range(5):
            await asyncio.sleep(0)
        for task in given_up:
            task.cancel()
        await asyncio.gather(*given_up, return_exceptions=True)
        await proxy.resume()
        assert await kept == [5, 1]
        assert await store.run([("MGET", "a", "b", "c")]) == [[None, b"5", b"1"]]


async def test_a_full_server_evicts_and_continues() -> None:
    with servers.memcached("-m", "2") as server:
        async with connect(server.url) as store:
            for n in range(100):
                await store.run([("SET", f"k{n}", b"v" * 100_000)])
            held = await store.run([("EXISTS", f"k{n}") for n in range(100)])
            assert 0 < sum(held) < 100
            assert store.guarantees.evicts


async def test_a_full_server_without_eviction_is_store_full() -> None:
    with servers.memcached("-M", "-m", "2") as server:
        async with connect(server.url) as store:
            with pytest.raises(StoreFull, match="out of memory"):
                await store.run([("SET", f"k{n}", b"v" * 100_000) for n in range(100)])
            assert await store.run([("GET", "k0")]) == [b"v" * 100_000]
