"""A server that crashes, hangs or goes away, and comes back."""

import asyncio
import time
from contextlib import suppress

import pytest

from keystead import Store, connect
from keystead.errors import StoreUnavailable
from tests.servers import DatabaseServer, MariadbServer, PostgresServer
from tests.stopwatch import Stopwatch
from tests.stores.database.others import other, until_one_waits
from tests.stores.redis.proxy import Proxy
from tests.stores.sqlite.processes import until

pytestmark = pytest.mark.anyio


def through(proxy: Proxy, server: DatabaseServer, options: str = "") -> str:
    return server.url.replace(f":{server.port}/", f":{proxy.port}/") + options


async def recovered(store: Store) -> None:
    async with asyncio.timeout(30):
        while True:
            try:
                await store.run([("SET", "alive", 1)])
                return
            except StoreUnavailable:
                await asyncio.sleep(0.01)


@pytest.mark.matrix
async def test_acknowledged_writes_survive_a_crash_under_load(
    server: DatabaseServer,
) -> None:
    async with connect(f"{server.url}?timeout=3s&connect_timeout=1s") as store:
        acknowledged, unknown = [0] * 8, [0] * 8
        longest_s, errors, stop = 0.0, 0, False

        async def add(n: int) -> None:
            nonlocal longest_s, errors
            while not stop:
                began = time.monotonic()
                try:
                    await store.run([("INCRBY", f"count:{n}", 1)])
                    acknowledged[n] += 1
                except StoreUnavailable as error:
                    errors += 1
                    unknown[n] += error.outcome == "unknown"
                    await asyncio.sleep(0.005)
                longest_s = max(longest_s, time.monotonic() - began)

        tasks = [asyncio.create_task(add(n)) for n in range(8)]
        await until(lambda: min(acknowledged) >= 5, "everybody has written")
        server.kill()
        await until(lambda: errors > 0, "somebody is told")
        await asyncio.to_thread(server.restart)
        before = list(acknowledged)
        await until(
            lambda: all(now >= then + 5 for now, then in zip(acknowledged, before, strict=True)),
            "everybody writes again",
        )
        stop = True
        await asyncio.gather(*tasks)
        counts = await store.run([("GET", f"count:{n}") for n in range(8)])
    assert longest_s < 6
    for count, least, maybe in zip(counts, acknowledged, unknown, strict=True):
        assert least <= int(count) <= least + maybe


async def test_calls_fail_fast_during_an_outage_and_work_afterwards(server: DatabaseServer) -> None:
    async with Proxy(server.port) as proxy, connect(through(proxy, server, "?connect_timeout=1s")) as store:
        await store.run([("SET", "a", 1)])
        await proxy.refuse()
        with pytest.raises(StoreUnavailable):
            await store.run([("GET", "a")])
        watch = Stopwatch()
        with pytest.raises(StoreUnavailable, match="cannot reach") as caught:
            await store.run([("SET", "a", 2)])
        assert watch.seconds < 0.5
        assert caught.value.outcome == "not-sent"
        await proxy.accept()
        await recovered(store)
        assert await store.run([("GET", "a")]) == [b"1"]


async def test_a_write_whose_reply_is_lost_has_an_unknown_outcome_and_is_not_made_twice(
    server: DatabaseServer,
) -> None:
    async with Proxy(server.port) as proxy, connect(through(proxy, server)) as store:
        await store.run([("SET", "a", 1)])
        with other(server) as somebody:
            somebody.touch_row("a")
            writing = asyncio.create_task(store.run([("INCRBY", "a", 1)]))
            await until_one_waits(server)  # by then the commit is on its way, too
            proxy.reset()
            with pytest.raises(StoreUnavailable, match="may have taken effect") as caught:
                await writing
            assert caught.value.outcome == "unknown"
        await store.run([("SET", "b", 1)])
        assert await store.run([("INCRBY", "a", 10)]) in ([11], [12])


async def test_a_connection_cut_between_two_calls_is_reopened_transparently(
    server: DatabaseServer,
) -> None:
    async with Proxy(server.port) as proxy, connect(through(proxy, server)) as store:
        await store.run([("SET", "a", 1)])
        for _ in range(3):
            proxy.reset()
            assert await store.run([("INCRBY", "a", 1)])
        assert await store.run([("GET", "a")]) == [b"4"]


async def test_a_silent_server_holds_no_caller_beyond_the_timeout(server: DatabaseServer) -> None:
    async with Proxy(server.port) as proxy, connect(through(proxy, server, "?timeout=400ms")) as store:
        await store.run([("SET", "a", 1)])
        proxy.black_hole()
        watch = Stopwatch()
        results = await asyncio.gather(store.run([("GET", "a")]), store.run([("SET", "a", 2)]), return_exceptions=True)
        assert watch.seconds < 3
        assert [type(result) for result in results] == [StoreUnavailable] * 2
        await proxy.resume()
        await recovered(store)


async def test_a_subscription_fails_if_messages_may_have_been_missed(postgres_server: PostgresServer) -> None:
    async with Proxy(postgres_server.port) as proxy, connect(through(proxy, postgres_server)) as store:
        async with store.subscribe("news") as messages:
            proxy.reset()
            with pytest.raises(StoreUnavailable, match="messages may have been missed"):
                await anext(messages)
        async with store.subscribe("news") as messages:
            await store.run([("PUBLISH", "news", "again")])
            assert (await anext(messages)).data == b"again"


async def test_no_message_is_missed_on_stores_with_a_message_table(mariadb_server: MariadbServer) -> None:
    mariadb_server.empty()
    async with (
        Proxy(mariadb_server.port) as proxy,
        connect(through(proxy, mariadb_server)) as store,
        connect(mariadb_server.url) as publisher,
        store.subscribe("news") as messages,
    ):
        for number in range(3):
            proxy.reset()
            await publisher.run([("PUBLISH", "news", number)])
            assert (await anext(messages)).data == b"%d" % number


@pytest.mark.everyday("postgres")
async def test_messages_are_heard_again_after_a_crash_of_the_server(server: DatabaseServer) -> None:
    """With the same subscription if messages are in a table; with a new one if the old one fails."""
    options = "?connect_timeout=1s"
    async with connect(server.url + options) as store, connect(server.url + options) as publisher:
        subscription = store.subscribe("news")
        messages = await subscription.__aenter__()
        await asyncio.to_thread(server.restart)
        await recovered(publisher)
        await recovered(store)
        async with asyncio.timeout(30):
            try:
                await publisher.run([("PUBLISH", "news", "back")])
                heard = await anext(messages)
            except StoreUnavailable:
                async with store.subscribe("news") as again:
                    await publisher.run([("PUBLISH", "news", "back")])
                    heard = await anext(again)
        assert heard.data == b"back"
        with suppress(StoreUnavailable):
            await subscription.__aexit__(None, None, None)
