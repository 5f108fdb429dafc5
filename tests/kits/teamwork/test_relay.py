"""From the table to the stream: once, in order, and in one step with what goes to Slack."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from keystead import Store
from keystead.errors import StoreClosed
from keystead.kits.teamwork.keys import TeamworkKeys
from keystead.kits.teamwork.models import Notification
from keystead.kits.teamwork.service.notices import ASSIGNED, Notices, Told
from keystead.kits.teamwork.service.relay import SLACK, Relay, ref_id_of
from keystead.kits.teamwork.service.tables import TEAMWORK_TABLES
from keystead.parts.feed import Feed
from keystead.parts.outbox import Outbox, OutboxKeys, OutboxMessage
from keystead.parts.tables import open_tables
from tests.every_store import EVERY, mariadb_server, on, postgres_server, redis_server, store, stores, valkey_cluster
from tests.parts.sessions.relays import Killed, Mortal

__all__ = ["mariadb_server", "postgres_server", "redis_server", "store", "stores", "valkey_cluster"]

NOW_MS = 1_790_000_025_000
everywhere = on(*EVERY, "cluster")
here = on("memory")


@pytest.fixture
async def notices() -> AsyncIterator[Notices]:
    async with open_tables("memory://", TEAMWORK_TABLES) as tables:
        yield Notices(tables)


async def _nowhere(message: OutboxMessage) -> None:
    raise AssertionError


def relay_on(store: Store, notices: Notices) -> tuple[Relay, TeamworkKeys, Outbox]:
    keys = TeamworkKeys(store)
    outbox = Outbox(OutboxKeys(store), _nowhere)
    feed: Feed[Notification] = Feed(keys.notice_log, keys.notice_wakes())
    return Relay(keys, notices, feed, outbox), keys, outbox


async def tell(notices: Notices, user: int, *numbers: int) -> None:
    for number in numbers:
        await notices.tell(f"e{number}", [Told(user, ASSIGNED, f"n{number}", "", "DEFECT", "34")], NOW_MS)


async def on_stream(keys: TeamworkKeys, user: int) -> list[tuple[str, str]]:
    return [(one.id, one.item.title) for one in await keys.notice_log(user).entries()]


@everywhere
async def test_what_is_written_is_on_the_stream_once_and_in_order(store: Store, notices: Notices) -> None:
    relay, keys, outbox = relay_on(store, notices)
    await tell(notices, 42, 1, 2, 3)
    async with keys.notifications(42).subscribe() as heard:
        assert await relay.publish_waiting() == 3
        assert [(await anext(heard)).title for _ in range(3)] == ["n1", "n2", "n3"]
    assert await relay.publish_waiting() == 0
    assert await on_stream(keys, 42) == [("1-0", "n1"), ("2-0", "n2"), ("3-0", "n3")]
    assert (await outbox.state(SLACK, "42")).waiting == 3
    assert await notices.waiting() == []


@everywhere
async def test_relays_at_the_same_moment_publish_and_hand_on_each_notice_once(store: Store, notices: Notices) -> None:
    await tell(notices, 42, *range(1, 21))
    relays = [relay_on(store, notices) for _ in range(4)]
    await asyncio.gather(*(relay.publish_waiting() for relay, _, _ in relays))
    _, keys, outbox = relays[0]
    assert [title for _, title in await on_stream(keys, 42)] == [f"n{number}" for number in range(1, 21)]
    assert (await outbox.state(SLACK, "42")).waiting == 20


@on("sqlite", "redis")
async def test_a_relay_that_dies_at_any_command_loses_nothing_and_repeats_nothing(
    store: Store, notices: Notices
) -> None:
    lives, user = 0, 1
    while True:
        await tell(notices, user, 3 * user, 3 * user + 1)
        dying, _, _ = relay_on(Mortal(store, lives), notices)
        try:
            await dying.publish_waiting()
        except Killed:
            lives += 1
        else:
            break
        relay, keys, outbox = relay_on(store, notices)
        await relay.publish_waiting()
        assert await on_stream(keys, user) == [("1-0", f"n{3 * user}"), ("2-0", f"n{3 * user + 1}")]
        assert (await outbox.state(SLACK, str(user))).waiting == 2
        user += 1
    assert lives >= 2


@here
async def test_while_the_stream_is_away_notices_wait_in_the_table(store: Store, notices: Notices) -> None:
    relay, keys, _ = relay_on(store, notices)
    await store.close()
    await tell(notices, 42, 1, 2)
    with pytest.raises(StoreClosed):
        await relay.publish_waiting()
    assert await notices.waiting() == [42]
    await store.open()
    assert await relay.publish_waiting() == 2
    assert len(await on_stream(keys, 42)) == 2


@here
async def test_what_is_told_here_is_published_at_once(store: Store, notices: Notices) -> None:
    relay, keys, _ = relay_on(store, notices)
    async with keys.notifications(42).subscribe() as heard, relay, asyncio.timeout(20):
        await tell(notices, 42, 1)
        relay.wake()
        assert (await anext(heard)).title == "n1"


def test_numbers_are_numbers_and_all_else_is_text() -> None:
    assert [ref_id_of(text) for text in ("101", "0", "007", "a:b", "9" * 30, "-1")] == [
        101,
        0,
        "007",
        "a:b",
        "9" * 30,
        "-1",
    ]
