"""Messages between processes on one database."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from keystead import Store, connect
from keystead.errors import StoreUnavailable
from tests.servers import DatabaseServer
from tests.stores.sqlite.processes import until

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[3]


@pytest.mark.everyday("postgres")
async def test_messages_of_another_process_come_in_their_order_however_long_they_are(
    server: DatabaseServer, store: Store
) -> None:
    async with store.subscribe("news") as messages, store.subscribe("news", "other") as too:
        told = await asyncio.to_thread(
            subprocess.run,
            [sys.executable, "-m", "tests.stores.database.programs", "publishes", server.url, "12"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        assert told.stdout.split() == ["2"] * 12
        async with asyncio.timeout(30):
            for heard in (messages, too):
                lengths = [(await anext(heard)).data for _ in range(12)]
                assert lengths == [b"%d:" % n + b"x" * (n * 1_000) for n in range(12)]


async def test_equal_messages_of_one_step_all_arrive(store: Store) -> None:
    async with store.subscribe("news") as messages:
        assert await store.run([("PUBLISH", "news", "same")] * 3) == [1, 1, 1]
        async with asyncio.timeout(30):
            assert [(await anext(messages)).data for _ in range(3)] == [b"same"] * 3


async def test_the_lease_of_a_process_that_is_gone_runs_out_and_is_swept(server: DatabaseServer, store: Store) -> None:
    table = "keystead.subscribers" if server.url.startswith("post") else "keystead_subscribers"
    server.query(f"INSERT INTO {table} (id, channel, expires_at) VALUES ('killed', 'news', 1)")
    assert await store.run([("PUBLISH", "news", "x")]) == [0]
    await until(lambda: server.query(f"SELECT count(*) FROM {table}") == [(0,)], "it is swept")


@pytest.mark.parametrize("channel", ["news", "more"])
async def test_subscriptions_that_are_given_up_while_they_are_made_leave_nothing_and_others_hear_on(
    store: Store, channel: str
) -> None:
    async def once() -> None:
        async with store.subscribe(channel):
            pass

    async def given_up() -> None:
        for steps in range(12):
            making = asyncio.ensure_future(once())
            for _ in range(steps):
                await asyncio.sleep(0)
            making.cancel()
            await asyncio.gather(making, return_exceptions=True)

    async with asyncio.timeout(60):
        await given_up()  # while nobody else listens
        async with store.subscribe("news") as messages:
            await given_up()
            await store.run([("PUBLISH", "news", "x")])
            assert (await anext(messages)).data == b"x"


async def test_a_subscription_ends_with_its_store(server: DatabaseServer) -> None:
    async with connect(server.url) as store:
        subscription = store.subscribe("news")
        messages = await subscription.__aenter__()
    with pytest.raises(StoreUnavailable, match="closed"):
        await anext(messages)
    await subscription.__aexit__(None, None, None)
