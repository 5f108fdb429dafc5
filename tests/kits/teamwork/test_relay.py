"""The relay from the table to the stream: once, in order, and in one step with the outbox for Slack."""

import asyncio
from collections.abc import AsyncIterator, Collection
from datetime import UTC, datetime

import pytest
from sqlalchemy import delete

from keystead import Store
from keystead.errors import StoreClosed, StoreUnavailable
from keystead.kits.teamwork.keys import TeamworkKeys
from keystead.kits.teamwork.models import Notification
from keystead.kits.teamwork.service.notice_rows import NewNotice
from keystead.kits.teamwork.service.notice_types import ASSIGNED
from keystead.kits.teamwork.service.notices import Notices, Unpublished
from keystead.kits.teamwork.service.relay import SLACK, Relay, ref_id_of
from keystead.kits.teamwork.service.tables import NOTICES, TEAMWORK_TABLES
from keystead.parts.feed import Feed
from keystead.parts.outbox import Outbox, OutboxKeys, OutboxMessage
from keystead.parts.tables import Tables, open_tables
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


async def tell(notices: Notices, user: int, *numbers: int, at_ms: int = NOW_MS) -> None:
    for number in numbers:
        await notices.write(f"e{number}", [NewNotice(user, ASSIGNED, f"n{number}", "", "DEFECT", "34")], at_ms)


async def on_stream(keys: TeamworkKeys, user: int) -> list[tuple[str, str]]:
    return [(one.id, one.item.title) for one in await keys.notice_log(user).entries()]


@everywhere
async def test_notices_are_published_once_and_in_order(store: Store, notices: Notices) -> None:
    relay, keys, outbox = relay_on(store, notices)
    await tell(notices, 42, 1, 2, 3)
    async with keys.notifications(42).subscribe() as heard:
        assert await relay.publish_waiting() == 3
        assert [(await anext(heard)).title for _ in range(3)] == ["n1", "n2", "n3"]
    assert await relay.publish_waiting() == 0
    assert await on_stream(keys, 42) == [("1-0", "n1"), ("2-0", "n2"), ("3-0", "n3")]
    assert (await outbox.state(SLACK, "42")).waiting == 3
    assert await notices.behind() == {}


@everywhere
async def test_concurrent_relays_publish_each_notice_once(store: Store, notices: Notices) -> None:
    await tell(notices, 42, *range(1, 21))
    relays = [relay_on(store, notices) for _ in range(4)]
    await asyncio.gather(*(relay.publish_waiting() for relay, _, _ in relays))
    _, keys, outbox = relays[0]
    assert [title for _, title in await on_stream(keys, 42)] == [f"n{number}" for number in range(1, 21)]
    assert (await outbox.state(SLACK, "42")).waiting == 20


@on("sqlite", "redis")
async def test_a_relay_that_dies_at_any_command_loses_and_repeats_nothing(store: Store, notices: Notices) -> None:
    lives, user = 0, 1
    while True:
        titles = [f"n{number}" for number in range(1, 121)]  # more than one batch
        await asyncio.gather(*(tell(notices, user, number) for number in range(1, 121)))
        dying, _, _ = relay_on(Mortal(store, lives), notices)
        try:
            await dying.publish_waiting()
        except Killed:
            lives += 1
        else:
            break
        relay, keys, outbox = relay_on(store, notices)
        await relay.publish_waiting()
        assert await on_stream(keys, user) == [(f"{place}-0", title) for place, title in enumerate(titles, 1)]
        assert (await outbox.state(SLACK, str(user))).waiting == 120
        user += 1
    assert lives >= 2


class _Forgetful(Notices):
    """Notices of a process that is killed after publishing, before recording it."""

    async def mark_published(self, user: int, place: int, *, event_id: str | None = None) -> bool:
        raise Killed


@on("sqlite", "redis")
async def test_a_relay_continues_after_unrecorded_notices_of_another(store: Store) -> None:
    async with open_tables("memory://", TEAMWORK_TABLES) as tables:
        notices = Notices(tables)
        await tell(notices, 42, 1, 2)
        killed, keys, _ = relay_on(store, _Forgetful(tables))
        with pytest.raises(Killed):
            await killed.publish_waiting()
        await tell(notices, 42, 3, 4)
        relay, _, outbox = relay_on(store, notices)
        async with keys.notifications(42).subscribe() as heard:
            assert await relay.publish_waiting() == 2
            assert [(await anext(heard)).title for _ in range(2)] == ["n3", "n4"]
        assert await on_stream(keys, 42) == [(f"{place}-0", f"n{place}") for place in range(1, 5)]
        assert (await outbox.state(SLACK, "42")).waiting == 4
        assert await notices.behind() == {}


@here
async def test_deleting_a_notice_while_it_is_published_loses_no_other(store: Store) -> None:
    class Deleting(Notices):
        async def mark_published(self, user: int, place: int, *, event_id: str | None = None) -> bool:
            await tables.write(lambda connection: connection.execute(delete(NOTICES).where(NOTICES.c.place == place)))
            return await super().mark_published(user, place, event_id=event_id)

    async with open_tables("memory://", TEAMWORK_TABLES) as tables:
        notices = Deleting(tables)
        relay, keys, _ = relay_on(store, notices)
        await tell(notices, 42, 1, 2)
        assert await relay.publish_waiting() == 2
        assert await on_stream(keys, 42) == [("1-0", "n1"), ("2-0", "n2")]
        await tell(notices, 42, 3)
        await tables.write(lambda connection: connection.execute(delete(NOTICES).where(NOTICES.c.place == 3)))
        assert await relay.publish_waiting() == 0
        assert await notices.behind() == {}


@here
async def test_notices_wait_in_the_table_during_an_outage_of_the_stream(store: Store, notices: Notices) -> None:
    relay, keys, _ = relay_on(store, notices)
    await store.close()
    await tell(notices, 42, 1, 2)
    with pytest.raises(StoreClosed):
        await relay.publish_waiting()
    assert [*await notices.behind()] == [42]
    await store.open()
    assert await relay.publish_waiting() == 2
    assert len(await on_stream(keys, 42)) == 2


@here
async def test_notices_of_this_process_are_published_immediately(store: Store, notices: Notices) -> None:
    relay, keys, _ = relay_on(store, notices)
    async with keys.notifications(42).subscribe() as heard, relay, asyncio.timeout(20):
        await tell(notices, 42, 1)
        relay.wake([42])
        assert (await anext(heard)).title == "n1"


@here
async def test_notices_of_another_process_are_published_after_two_polls_without_progress(
    store: Store, notices: Notices
) -> None:
    relay, keys, _ = relay_on(store, notices)
    await tell(notices, 42, 1, 2)
    await tell(notices, 7, 1)
    for _ in range(2):
        await relay._publish_abandoned()
        assert await on_stream(keys, 42) == []
    await keys.notice_log(42).append(_shown(notification_id=1), entry_id="1-0")
    await notices.mark_published(42, 1)  # its own process continues with this reader only
    await relay._publish_abandoned()
    assert [title for _, title in await on_stream(keys, 42)] == ["old"]
    assert [title for _, title in await on_stream(keys, 7)] == ["n1"]
    for _ in range(2):
        await relay._publish_abandoned()
    assert [title for _, title in await on_stream(keys, 42)] == ["old", "n2"]
    assert await notices.behind() == {}


@everywhere
async def test_after_a_restore_from_backup_new_notices_are_published(store: Store, notices: Notices) -> None:
    relay, keys, outbox = relay_on(store, notices)
    await tell(notices, 42, 1, 2, 3, 4)
    await relay.publish_waiting()
    async with open_tables("memory://", TEAMWORK_TABLES) as tables:  # the backup has two of the four notices
        restored = Notices(tables)
        await tell(restored, 42, 1, 2)
        await restored.mark_published(42, 2)
        relay, keys, outbox = relay_on(store, restored)
        await tell(restored, 42, 8, at_ms=NOW_MS + 60_000)
        await relay.publish_waiting()
        assert await on_stream(keys, 42) == [("3-0", "n8")]
        await tell(restored, 42, 9)
        assert await relay.publish_waiting() == 1
        assert await on_stream(keys, 42) == [("3-0", "n8"), ("4-0", "n9")]
        assert (await outbox.state(SLACK, "42")).waiting == 6
        assert await restored.behind() == {}


@here
async def test_a_log_far_ahead_of_the_database_starts_over(store: Store, notices: Notices) -> None:
    relay, keys, _ = relay_on(store, notices)
    for place in (5_000, 5_001):
        await keys.notice_log(42).append(_shown(), entry_id=f"{place}-0")
    await tell(notices, 42, 1)
    assert await relay.publish_waiting() == 1
    assert await on_stream(keys, 42) == [("1-0", "n1")]


@pytest.mark.matrix
@here
async def test_a_relay_slower_than_the_trimmed_log_repeats_nothing(store: Store, notices: Notices) -> None:
    relay, keys, _ = relay_on(store, notices)
    queue = OutboxKeys(store).queue(SLACK, "42")
    await tell(notices, 42, *range(1, 1_004))
    slow = (await notices.unpublished([42]))[42]
    await relay.publish_waiting()
    handed_on = await queue.count()
    assert await relay._publish(42, slow) == 0
    assert [title for _, title in await on_stream(keys, 42)] == [f"n{number}" for number in range(4, 1_004)]
    assert await queue.count() == handed_on


class _Slow(Notices):
    """Notices of a reader who is erased after the read, before publishing."""

    def __init__(self, tables: Tables, *, tell_anew: bool) -> None:
        super().__init__(tables)
        self.own: Tables | None = tables
        self.tell_anew = tell_anew

    async def unpublished(self, users: Collection[int]) -> dict[int, Unpublished]:
        found = await super().unpublished(users)
        if self.own is not None and found:
            own, self.own = self.own, None
            [user] = found
            await own.erase(f"teamwork:{user}")
            if self.tell_anew:
                await tell(self, user, 9)
        return found


@here
@pytest.mark.parametrize("tell_anew", [False, True])
async def test_erasing_a_reader_while_notices_are_published_leaves_nothing(store: Store, tell_anew: bool) -> None:
    async with open_tables("memory://", TEAMWORK_TABLES) as tables:
        notices = _Slow(tables, tell_anew=tell_anew)
        relay, keys, _ = relay_on(store, notices)
        await tell(notices, 42, 1, 2, 3)
        await relay.publish_waiting()
        assert await on_stream(keys, 42) == ([("1-0", "n9")] if tell_anew else [])
        assert await notices.behind() == {}
        await tell(notices, 42, 10)
        assert await relay.publish_waiting() == 1
        assert (await on_stream(keys, 42))[-1][1] == "n10"


@here
async def test_a_reader_with_an_unwritable_log_blocks_no_other(store: Store, notices: Notices) -> None:
    relay, keys, _ = relay_on(store, notices)
    for user in range(1, 41):
        await tell(notices, user, *range(3 if user < 21 else 1))
        if user < 21:
            await store.run([("SET", keys.notice_log(user).key, "what is no log")])
    assert await relay.publish_waiting() == 20
    assert [*await notices.behind()] == list(range(1, 21))
    await store.run([("DEL", keys.notice_log(7).key)])
    assert await relay.publish_waiting() == 3


class _AwayDashboard:
    async def changed(self, *users: int) -> None:
        raise StoreUnavailable("the cache is away")


@here
async def test_cache_outages_do_not_block_notices(store: Store, notices: Notices) -> None:
    keys = TeamworkKeys(store)
    feed: Feed[Notification] = Feed(keys.notice_log, keys.notice_wakes())
    relay = Relay(keys, notices, feed, dashboard=_AwayDashboard())  # type: ignore[arg-type]
    await tell(notices, 42, *range(150))
    assert await relay.publish_waiting() == 150


def _shown(notification_id: int = 1) -> Notification:
    return Notification(
        notification_id=notification_id,
        type=ASSIGNED,
        title="old",
        ref_type="DEFECT",
        ref_id=1,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def test_only_canonical_numbers_become_numbers() -> None:
    assert [ref_id_of(text) for text in ("101", "0", "007", "a:b", "9" * 30, "-1")] == [
        101,
        0,
        "007",
        "a:b",
        "9" * 30,
        "-1",
    ]
