"""Messages between processes on one file: in order, none lost, none stored without subscribers."""

import asyncio
import os
import signal
import sqlite3
from contextlib import closing

import pytest

from keystead.errors import StoreUnavailable
from keystead.stores.sqlite import SqliteStore
from keystead.stores.sqlite.sqlite_feed import LEASE_MS, RENEW_EVERY_MS
from tests.stores.sqlite.conftest import Clock, Counts
from tests.stores.sqlite.processes import line_of, say, started, until

pytestmark = pytest.mark.anyio


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(1_900_000_000_000)
    monkeypatch.setattr("keystead.stores.sqlite.sqlite_store.wall_ms", clock)
    return clock


async def test_a_subscriber_gets_a_thousand_messages_of_another_process_in_order(path: str) -> None:
    async with SqliteStore(path):
        pass
    with started("listen", path, "channel", 1_000) as listener, started("publish", path, "channel", "a", 1_000) as one:
        assert line_of(listener) == "ready"
        assert line_of(one) == "ready"
        say(one, "go")
        assert [line_of(listener) for _ in range(1_000)] == [f"a:{number}" for number in range(1_000)]
        assert [line_of(one) for _ in range(1_000)] == ["1"] * 1_000


async def test_two_publishing_processes_lose_nothing_and_each_keeps_its_order(path: str) -> None:
    async with SqliteStore(path) as store, store.subscribe("channel") as inbox:
        with started("publish", path, "channel", "a", 200) as one, started("publish", path, "channel", "b", 200) as two:
            for publisher in (one, two):
                assert line_of(publisher) == "ready"
            for publisher in (one, two):
                say(publisher, "go")
            async with asyncio.timeout(20):
                got = [(await anext(inbox)).data.decode() for _ in range(400)]
    for name in "ab":
        assert [text for text in got if text.startswith(name)] == [f"{name}:{number}" for number in range(200)]


async def test_a_process_gets_its_own_messages_and_only_those_of_its_channels(path: str) -> None:
    async with SqliteStore(path) as store, store.subscribe("one", "two") as inbox, store.subscribe("three") as other:
        await store.run([("PUBLISH", channel, channel) for channel in ("zero", "one", "three", "two")])
        async with asyncio.timeout(30):
            assert [(m.channel, m.data) for m in [await anext(inbox), await anext(inbox)]] == [
                ("one", b"one"),
                ("two", b"two"),
            ]
            assert (await anext(other)).data == b"three"


async def test_the_reply_of_publish_counts_the_subscribers_of_all_processes(path: str) -> None:
    async with SqliteStore(path) as store:
        assert await store.run([("PUBLISH", "channel", "x")]) == [0]
        with (
            started("listen_until_killed", path, "channel") as first,
            started("listen_until_killed", path, "channel") as second,
            started("listen_until_killed", path, "elsewhere") as elsewhere,
        ):
            for listener in (first, second, elsewhere):
                assert line_of(listener) == "ready"
            assert await store.run([("PUBLISH", "channel", "x")]) == [2]
            async with store.subscribe("channel"):
                assert await store.run([("PUBLISH", "channel", "x")]) == [3]
            assert await store.run([("PUBLISH", "channel", "x")]) == [2]


async def test_a_message_without_subscribers_is_not_stored(path: str, rows: Counts) -> None:
    async with SqliteStore(path) as store:
        assert await store.run([("PUBLISH", "channel", "x")]) == [0]
        async with store.subscribe("elsewhere"):
            assert await store.run([("PUBLISH", "channel", "x")]) == [0]
        assert (await store.atomically([("SET", "a", "1"), ("PUBLISH", "channel", "x")])).replies == [b"OK", 0]
        assert rows() == {"keys": 1}


async def test_a_message_of_a_step_that_was_undone_is_never_heard(path: str, rows: Counts) -> None:
    from keystead.stores import holds

    async with SqliteStore(path) as store, store.subscribe("channel") as inbox:
        assert not await store.atomically([("PUBLISH", "channel", "undone"), holds("missing", "x")])
        await store.run([("PUBLISH", "channel", "done")])
        async with asyncio.timeout(30):
            assert (await anext(inbox)).data == b"done"
        assert rows() == {"messages": 1, "subscribers": 1}


async def test_the_registration_of_a_killed_subscriber_lapses(path: str, wall: Clock) -> None:
    async with SqliteStore(path) as store:
        with started("listen_until_killed", path, "channel") as listener:
            assert line_of(listener) == "ready"
            os.kill(listener.pid, signal.SIGKILL)
            listener.wait()
        with closing(sqlite3.connect(path)) as connection:  # its lease is by the real clock
            [[until_ms]] = connection.execute("SELECT expires_at FROM subscribers").fetchall()
        wall.now_ms = until_ms - 1
        assert await store.run([("PUBLISH", "channel", "x")]) == [1]
        wall.now_ms = until_ms
        assert await store.run([("PUBLISH", "channel", "x")]) == [0]


async def test_a_living_subscriber_keeps_its_lease(path: str, wall: Clock) -> None:
    async with SqliteStore(path) as store, store.subscribe("channel") as inbox:
        begin_ms = wall.now_ms

        def leased_until() -> int:
            [[expires_at]] = store._reader.execute("SELECT expires_at FROM subscribers").fetchall()
            return int(expires_at)

        for _ in range(5):  # longer in all than one lease
            wall.now_ms += RENEW_EVERY_MS + 1
            await until(lambda: leased_until() == wall.now_ms + LEASE_MS, "the lease is renewed")
        assert wall.now_ms - begin_ms > LEASE_MS
        assert await store.run([("PUBLISH", "channel", "x")]) == [1]
        async with asyncio.timeout(30):
            assert (await anext(inbox)).data == b"x"


async def test_a_suspended_process_gets_an_error_for_missed_messages(path: str, wall: Clock) -> None:
    async with SqliteStore(path) as store, store.subscribe("channel") as inbox:
        wall.now_ms += LEASE_MS + 1
        with pytest.raises(StoreUnavailable, match="may have been missed"):
            async with asyncio.timeout(30):
                await anext(inbox)


async def test_an_expired_lease_is_not_renewed_silently(path: str, wall: Clock) -> None:
    async with SqliteStore(path) as store, store.subscribe("channel") as inbox:
        with closing(sqlite3.connect(path, isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            wall.now_ms += LEASE_MS - 1  # due for renewal, which now waits for the lock
            await until(lambda: store._feed._renewing is not None, "the renewal is asked for")
            holder.execute("DELETE FROM subscribers")  # as the sweep of another process would
            holder.execute("COMMIT")
        with pytest.raises(StoreUnavailable, match="may have been missed"):
            async with asyncio.timeout(30):
                await anext(inbox)


async def test_subscribing_again_after_a_loss_works(path: str, wall: Clock) -> None:
    async with SqliteStore(path) as store:
        async with store.subscribe("channel") as inbox:
            wall.now_ms += LEASE_MS + 1
            with pytest.raises(StoreUnavailable):
                async with asyncio.timeout(30):
                    await anext(inbox)
        async with store.subscribe("channel") as inbox:
            assert await store.run([("PUBLISH", "channel", "x")]) == [1]
            async with asyncio.timeout(30):
                assert (await anext(inbox)).data == b"x"


async def test_closing_the_store_ends_its_subscriptions_with_an_error(path: str) -> None:
    store = SqliteStore(path)
    await store.open()
    async with store.subscribe("channel") as inbox:
        waiting = asyncio.ensure_future(anext(inbox))
        await store.run([("DBSIZE",)])
        assert not waiting.done()
        await store.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            await waiting


async def test_a_cancelled_subscriber_signs_off_and_its_cancellation_is_not_swallowed(path: str, rows: Counts) -> None:
    async with SqliteStore(path, timeout=20) as store:
        entered, left = asyncio.Event(), asyncio.Event()

        async def listen() -> None:
            async with store.subscribe("channel"):
                entered.set()
                await left.wait()

        task = asyncio.ensure_future(listen())
        await entered.wait()
        with closing(sqlite3.connect(path, isolation_level=None)) as holder:
            holder.execute("BEGIN IMMEDIATE")
            left.set()
            await until(lambda: store._commits.waiting > 0, "it signs off, which waits for the lock")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            holder.execute("ROLLBACK")
        await until(lambda: rows() == {}, "it is signed off")


async def test_there_is_no_polling_without_subscribers(path: str) -> None:
    async with SqliteStore(path) as store:
        async with store.subscribe("channel"):
            assert store._feed._timer is not None
        await until(lambda: store._feed._timer is None, "the feed rests")


@pytest.mark.parametrize("path", [":memory:"])
async def test_in_memory_messages_reach_the_subscribers_of_the_store(path: str) -> None:
    async with SqliteStore(path) as store, store.subscribe("channel") as inbox:
        for number in range(100):
            assert await store.run([("PUBLISH", "channel", str(number))]) == [1]
        async with asyncio.timeout(30):
            assert [(await anext(inbox)).data for _ in range(100)] == [b"%d" % number for number in range(100)]
