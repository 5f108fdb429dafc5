"""Servers that hang, go away and come back, alone or one of several."""

import asyncio
import time

import pytest

from keystead import Store, StoreUnavailable, connect
from keystead.testing import servers
from keystead.testing.servers import MemcachedServer

pytestmark = pytest.mark.anyio


async def recovered(store: Store, key: str) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                await store.run([("SET", key, "again")])
                return
            except StoreUnavailable:
                await asyncio.sleep(0.01)


async def test_a_server_that_goes_is_said_at_once_and_used_again_when_it_is_back() -> None:
    with servers.memcached() as server:
        async with connect(f"{server.url}?connect_timeout=300ms") as store:
            await store.run([("SET", "a", 1)])
            server.kill()
            with pytest.raises(StoreUnavailable, match="cannot reach"):
                await store.run([("GET", "a")])
            began = time.monotonic()
            with pytest.raises(StoreUnavailable) as caught:
                await store.run([("SET", "a", 2)])
            assert time.monotonic() - began < 0.2
            assert caught.value.outcome == "not-sent"
            await asyncio.to_thread(server.restart)
            await recovered(store, "b")
            # It keeps nothing over a restart, as its guarantees say.
            assert await store.run([("GET", "a"), ("GET", "b")]) == [None, b"again"]


async def test_a_server_that_hangs_is_said_within_the_timeout(server: MemcachedServer) -> None:
    async with connect(f"{server.url}?timeout=300ms") as store:
        server.pause()
        try:
            began = time.monotonic()
            with pytest.raises(StoreUnavailable) as reading:
                await store.run([("GET", "a")])
            with pytest.raises(StoreUnavailable) as writing:
                await store.run([("SET", "a", 1)])
            assert time.monotonic() - began < 2
        finally:
            server.resume()
        assert reading.value.outcome == "not-sent"
        assert writing.value.outcome in ("not-sent", "unknown")
        await recovered(store, "a")


async def test_a_write_whose_answer_was_lost_may_or_may_not_have_been_made(server: MemcachedServer) -> None:
    async with connect(f"{server.url}?timeout=300ms") as store:
        await store.run([("GET", "a")])
        server.pause()
        try:
            with pytest.raises(StoreUnavailable, match="may or may not") as caught:
                await store.run([("SET", "a", 1)])
        finally:
            server.resume()
        assert caught.value.outcome == "unknown"


async def test_closing_ends_calls_under_way(server: MemcachedServer) -> None:
    store = connect(server.url)
    await store.open()
    server.pause()
    try:
        calls = [asyncio.create_task(store.run([("INCRBY", "n", 1)])) for _ in range(5)]
        calls.append(asyncio.create_task(store.run([("GET", "n")])))
        await asyncio.sleep(0)
        async with asyncio.timeout(2):
            await store.close()
            ended = await asyncio.gather(*calls, return_exceptions=True)
    finally:
        server.resume()
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
            int(server.said_to("stats", b"END\r\n").split(b"curr_items ")[1].split()[0]) for server in (one, two, three)
        ]
        assert sum(held) == 290
        assert min(held) > 50


async def test_while_one_server_is_away_the_keys_of_the_others_are_served_and_none_moves() -> None:
    with servers.memcached() as one, servers.memcached() as two:
        url = f"memcached://127.0.0.1:{one.port},127.0.0.1:{two.port}?connect_timeout=200ms"
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
            with pytest.raises(StoreUnavailable):
                await store.run([("MGET", *keys)])
            await asyncio.to_thread(two.restart)
            lost = next(key for key in keys if key not in written)
            await recovered(store, lost)
            held = await store.run([("GET", key) for key in keys])
        assert held == [b"new" if key in written else b"again" if key == lost else None for key in keys]
