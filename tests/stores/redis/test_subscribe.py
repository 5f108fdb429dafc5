"""A subscription fails if messages may have been missed."""

import asyncio

import pytest

import keystead
from keystead.errors import StoreClosed, StoreRefused, StoreUnavailable
from keystead.stores import Message
from tests.servers import Server
from tests.stores.redis.proxy import Proxy
from tests.stores.redis.waits import takes_at_most, until, works_again

FAST = "?timeout=1s&connect_timeout=1s"
SLACK_S = 0.5


async def test_messages_arrive_on_each_channel_in_order(server: Server) -> None:
    async with keystead.connect(server.url + FAST) as store, store.subscribe("a", "b") as messages:
        for i in range(100):
            assert await store.run([("PUBLISH", "ab"[i % 2], f"{i}")]) == [1]
        got = [await anext(messages) for _ in range(100)]
        assert got == [Message("ab"[i % 2], b"%d" % i) for i in range(100)]


async def test_a_quiet_subscription_stays_for_many_timeouts(server: Server) -> None:
    # A busy machine answers in a second, and who waits here waits for nobody else.
    url = server.url + "?timeout=1s&connect_timeout=1s"
    async with keystead.connect(url) as store, store.subscribe("quiet") as messages:
        waiting = asyncio.ensure_future(anext(messages))
        await asyncio.wait({waiting}, timeout=4.5)
        assert not waiting.done()
        await works_again(lambda: store.run([("PUBLISH", "quiet", "at last")]))
        assert (await waiting).data == b"at last"


async def test_a_killed_server_ends_the_subscription_and_a_new_one_works_after_the_restart(server: Server) -> None:
    async with keystead.connect(server.url + FAST) as store:
        async with store.subscribe("news") as messages:
            await store.run([("PUBLISH", "news", "1")])
            await until(lambda: bool(messages._messages), "the message is here")  # type: ignore[attr-defined]
            server.kill()
            assert (await anext(messages)).data == b"1"
            with takes_at_most(SLACK_S), pytest.raises(StoreUnavailable, match="messages may have been missed"):
                await anext(messages)
            with pytest.raises(StoreUnavailable):  # and it stays ended
                await anext(messages)
        with takes_at_most(1.0 + SLACK_S), pytest.raises(StoreUnavailable):
            async with store.subscribe("news"):
                pass
        server.start()
        async with store.subscribe("news") as messages:
            await works_again(lambda: store.run([("PUBLISH", "news", "2")]))
            assert (await anext(messages)).data == b"2"


@pytest.mark.parametrize("fault", ["black hole", "hung server"])
async def test_a_silent_network_or_server_ends_the_subscription_within_two_timeouts(
    server: Server, proxy: Proxy, fault: str
) -> None:
    async with keystead.connect(proxy.url + FAST) as store:
        async with store.subscribe("news") as messages:
            if fault == "black hole":
                proxy.black_hole()
            else:
                server.pause()
            with takes_at_most(2 * 1.0 + SLACK_S), pytest.raises(StoreUnavailable, match="did not answer"):
                await anext(messages)
        with takes_at_most(1.0 + SLACK_S), pytest.raises(StoreUnavailable):
            async with store.subscribe("news"):
                pass
        server.resume()
        await proxy.resume()
        async with store.subscribe("news") as messages:
            await works_again(lambda: store.run([("PUBLISH", "news", "2")]))
            assert (await anext(messages)).data == b"2"


async def test_a_subscription_cut_at_any_byte_of_its_start_fails(server: Server, proxy: Proxy) -> None:
    async with keystead.connect(proxy.url + FAST) as store:
        for count in (0, 3, 7, 10, 20, 30):
            proxy.cut_replies_after(count)
            with pytest.raises(StoreUnavailable):
                async with store.subscribe("news", "more") as messages:
                    await anext(messages)


async def test_leaving_a_subscription_ends_its_connection(server: Server) -> None:
    async with keystead.connect(server.url + FAST) as store:
        for _ in range(20):
            async with store.subscribe("news"):
                assert await store.run([("PUBLISH", "news", "x")]) == [1]
        await until(lambda: server.ask("PUBSUB", "NUMSUB", "news") == [b"news", 0], "nobody listens")
        waiting = asyncio.create_task(first_of(store, "news"))
        await until(lambda: server.ask("PUBSUB", "NUMSUB", "news") == [b"news", 1], "it listens")
        waiting.cancel()
        await until(lambda: server.ask("PUBSUB", "NUMSUB", "news") == [b"news", 0], "nobody listens")


async def first_of(store: keystead.Store, channel: str) -> Message:
    async with store.subscribe(channel) as messages:
        return await anext(messages)


async def test_closing_the_store_ends_its_subscriptions(server: Server) -> None:
    store = keystead.connect(server.url + FAST)
    await store.open()
    reading = [asyncio.create_task(first_of(store, "news")) for _ in range(3)]
    await until(lambda: server.ask("PUBSUB", "NUMSUB", "news") == [b"news", 3], "all listen")
    await store.close()
    with takes_at_most(1.0):
        ends = await asyncio.gather(*reading, return_exceptions=True)
    assert all(isinstance(end, StoreUnavailable | StoreClosed) for end in ends), ends
    with pytest.raises(StoreClosed):
        await first_of(store, "news")
    await until(lambda: server.ask("PUBSUB", "NUMSUB", "news") == [b"news", 0], "nobody listens")


async def test_a_user_that_may_not_listen_is_refused(server: Server) -> None:
    server.ask("ACL", "SETUSER", "deaf", "on", ">pw", "~*", "+@all", "resetchannels", "&own:*")
    async with keystead.connect(f"redis://deaf:pw@127.0.0.1:{server.port}/0{FAST}") as store:
        with pytest.raises(StoreRefused, match="denies this to the user"):
            async with store.subscribe("news"):
                pass
        async with store.subscribe("own:news") as messages:
            await store.run([("PUBLISH", "own:news", "x")])
            assert (await anext(messages)).data == b"x"
