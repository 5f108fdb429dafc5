"""Feeds: messages are followed once and in order, from any place, and missed ones are reported."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from keystead import Channel, Counter, Keyspace, Log, Store, after, connect, never, sliding
from keystead.errors import BadDeclaration, BadValue
from keystead.http.server_sent_events import event, heartbeat, place_in
from keystead.parts.feed import Feed, FeedItem, Missed, Pause
from keystead.parts.feed.feed import PAGE
from keystead.schema.kinds import LogKey
from tests import servers
from tests.every_store import EVERY, on
from tests.stores.sqlite.processes import until

everywhere = on(*EVERY, "cluster")
here = on("memory")
KEEP = 250


class FeedKeys(Keyspace):
    log = Log(
        "feed:{user}:log", str, keep=KEEP, lifetime=sliding("7d", touch_every="1h"), tag="user", doc="what is followed"
    )
    messages = Channel("feed:{user}", str, doc="for whoever else listens")
    wakes = Channel("feed-wakes", str, doc="that there is something to look at")
    sent = Counter("feed:{user}:sent", lifetime=after("1d"), tag="user", doc="what is done beside it")
    endless = Log("endless:{user}", str, lifetime=never("a test"), doc="without an end")


@pytest.fixture
def keys(store: Store) -> FeedKeys:
    return FeedKeys(store)


@pytest.fixture
async def feed(keys: FeedKeys) -> AsyncIterator[Feed[str]]:
    async with Feed(keys.log, keys.wakes(), pause_s=30) as opened:
        yield opened


async def put(feed: Feed[str], log: LogKey[str], *places: int) -> None:
    for place in places:
        assert await feed.put(log, {place: f"message {place}"})


async def followed(feed: Feed[str], log: LogKey[str], count: int, **where: Any) -> list[Any]:
    """The next messages and other events, until there are this many."""
    found: list[Any] = []
    async with asyncio.timeout(60):
        async for one in feed.follow(log, **where):
            found += one if isinstance(one, list) else [one]
            if len(found) >= count:
                return found
    return found


def items(*places: int) -> list[FeedItem[str]]:
    return [FeedItem(place, f"message {place}") for place in places]


@everywhere
async def test_messages_are_followed_in_order_from_any_place(feed: Feed[str], keys: FeedKeys) -> None:
    log = keys.log("ann")
    await put(feed, log, 1, 2, 3, 4, 5)
    assert await followed(feed, log, 5, after=0) == items(1, 2, 3, 4, 5)
    assert await followed(feed, log, 2, after=3) == items(4, 5)
    assert await feed.last_place(log) == 5


@everywhere
async def test_following_from_now_yields_new_messages_only(feed: Feed[str], keys: FeedKeys) -> None:
    log = keys.log("ann")
    await put(feed, log, 1, 2)
    following = asyncio.ensure_future(followed(feed, log, 3))
    await _read_by(feed, log, 1)
    await put(feed, log, 3)
    await put(feed, keys.log("ben"), 1)
    await put(feed, log, 4, 5)
    assert await following == items(3, 4, 5)


@everywhere
async def test_a_message_that_is_put_again_is_there_once_with_all_that_was_done_beside_it(
    feed: Feed[str], keys: FeedKeys
) -> None:
    log = keys.log("ann")
    done = [await feed.put(log, {1: "message 1"}, keys.sent("ann").increment()) for _ in range(3)]
    at_once = await asyncio.gather(*(feed.put(log, {2: "message 2"}, keys.sent("ann").increment()) for _ in range(10)))
    assert done == [True, False, False]
    assert sum(at_once) == 1
    assert await keys.sent("ann").get() == 2
    assert await followed(feed, log, 2, after=0) == items(1, 2)


@here
async def test_concurrent_puts_of_the_same_places_are_idempotent_and_ordered(feed: Feed[str], keys: FeedKeys) -> None:
    log = keys.log("ann")

    async def put_all() -> list[int]:
        return [place for place in range(1, 51) if await feed.put(log, {place: f"message {place}"})]

    first, second = await asyncio.gather(put_all(), put_all())
    assert sorted(first + second) == list(range(1, 51))
    assert await followed(feed, log, 50, after=0) == items(*range(1, 51))


@everywhere
async def test_a_reader_beyond_the_log_gets_missed_and_continues(feed: Feed[str], keys: FeedKeys) -> None:
    log = keys.log("ann")
    await put(feed, log, *range(1, KEEP + 11))
    found = await followed(feed, log, KEEP + 1, after=4)
    assert found == [Missed(11), *items(*range(11, KEEP + 11))]
    assert await followed(feed, log, 1, after=10) == items(*range(11, 11 + PAGE))


@everywhere
async def test_messages_that_are_put_together_are_all_put_or_none_and_in_order(feed: Feed[str], keys: FeedKeys) -> None:
    log = keys.log("ann")
    await put(feed, log, *range(1, 2 * KEEP // 3))
    start = 2 * KEEP // 3
    batch = {place: f"message {place}" for place in range(start + 9, start - 1, -1)}
    done = await asyncio.gather(*(feed.put(log, batch, keys.sent("ann").increment()) for _ in range(10)))
    assert (sum(done), await keys.sent("ann").get()) == (1, 1)
    # Another process is ahead: nothing is put, not even the new messages.
    assert not await feed.put(log, {start + 9: "another", start + 10: "another"}, keys.sent("ann").increment())
    assert await keys.sent("ann").get() == 1
    assert await followed(feed, log, 10, after=start - 1) == items(*range(start, start + 10))


@here
async def test_a_last_place_that_lags_behind_the_log_causes_no_gap_and_no_repeat(
    feed: Feed[str], keys: FeedKeys
) -> None:
    log = keys.log("ann")
    await put(feed, log, 1, 2, 3, 4, 5)
    for last in range(6):
        assert await followed(feed, log, 1, after=4, last=last) == items(5)
    following = asyncio.ensure_future(followed(feed, log, 1, after=5, last=2))
    await _read_by(feed, log, 1)
    await put(feed, log, 6)
    assert await following == items(6)


@here
async def test_places_withdrawn_before_they_were_put_are_not_a_gap(feed: Feed[str], keys: FeedKeys) -> None:
    log = keys.log("ann")
    asked: list[tuple[int, int]] = []

    async def was_lost(first: int, last: int) -> bool:
        asked.append((first, last))
        return first == 1

    await put(feed, log, 3, 6)
    assert await followed(feed, log, 3, after=0, was_lost=was_lost) == [Missed(3), *items(3, 6)]
    assert await followed(feed, log, 1, after=3, was_lost=was_lost) == items(6)
    following = asyncio.ensure_future(followed(feed, log, 1, after=6, last=8, was_lost=was_lost))
    await _read_by(feed, log, 1)
    await put(feed, log, 9)
    assert await following == items(9)
    assert asked == [(1, 2), (4, 5), (7, 8)]


@here
async def test_an_expired_log_is_reported_as_missed_to_readers_with_a_last_place(
    feed: Feed[str], keys: FeedKeys
) -> None:
    log = keys.log("ann")
    await put(feed, log, 1, 2, 3)
    await log.delete()
    following = asyncio.ensure_future(followed(feed, log, 2, after=1, last=3))
    await _read_by(feed, log, 1)
    await put(feed, log, 4)
    assert await following == [Missed(4), *items(4)]


@here
async def test_a_place_before_the_end_is_taken_for_one_that_was_put(feed: Feed[str], keys: FeedKeys) -> None:
    log = keys.log("ann")
    await put(feed, log, 5)
    assert not await feed.put(log, {5: "another"})
    assert not await feed.put(log, {4: "another", 6: "another"})
    for wrong in (0, -1):
        with pytest.raises(BadValue, match="start at 1"):
            await feed.put(log, {wrong: "none"})
    assert await followed(feed, log, 2, after=0) == [Missed(5), *items(5)]


@everywhere
async def test_restarting_a_log_notifies_all_followers_and_happens_once(feed: Feed[str], keys: FeedKeys) -> None:
    log = keys.log("ann")
    await put(feed, log, *range(1, 11))
    following = feed.follow(log, after=10)
    told = asyncio.ensure_future(anext(following))
    await _read_by(feed, log, 1)
    assert await feed.begin_anew(log, {6: "message 6"}, keys.sent("ann").increment())
    async with asyncio.timeout(60):
        assert await told == Missed(7)
        await put(feed, log, 7)
        assert await anext(following) == items(7)
    await following.aclose()  # type: ignore[attr-defined]
    assert await followed(feed, log, 3, after=0) == [Missed(6), *items(6, 7)]
    assert await feed.messages(log, 5, 10) == {6: "message 6", 7: "message 7"}
    at_once = [feed.begin_anew(log, {2: "message 2"}, keys.sent("ann").increment()) for _ in range(5)]
    assert sum(await asyncio.gather(*at_once)) >= 1
    assert await followed(feed, log, 2, after=0) == [Missed(2), *items(2)]


@here
async def test_a_pause_is_yielded_and_closing_the_feed_ends_all_followers(keys: FeedKeys) -> None:
    async with Feed(keys.log, keys.wakes(), pause_s=0.001) as short:
        assert await followed(short, keys.log("ann"), 1) == [Pause()]
    async with Feed(keys.log, keys.wakes(), pause_s=30) as feed:
        readers = [asyncio.ensure_future(followed(feed, keys.log("ann"), 1)) for _ in range(3)]
        await _read_by(feed, keys.log("ann"), 3)
        assert (feed.readers, feed.readers_of(keys.log("ben"))) == (3, 0)
        await feed.close()
        assert await asyncio.gather(*readers) == [[], [], []]
        assert feed.readers == 0


@on("redis")
async def test_a_lost_subscription_raises(feed: Feed[str], keys: FeedKeys, redis_server: Any) -> None:
    log = keys.log("ann")
    following = asyncio.ensure_future(followed(feed, log, 3))
    await _read_by(feed, log, 1)
    await put(feed, log, 1)
    redis_server.ask("CLIENT", "KILL", "TYPE", "pubsub")
    await put(feed, log, 2, 3)
    assert await following == items(1, 2, 3)


async def test_a_reader_survives_an_outage_and_misses_nothing() -> None:
    with servers.redis("--appendonly", "yes", "--appendfsync", "always") as own:
        async with connect(f"{own.url}?timeout=500ms") as opened:
            keys = FeedKeys(opened)
            async with Feed(keys.log, keys.wakes(), pause_s=0.05) as feed, asyncio.timeout(60):
                log = keys.log("ann")
                await put(feed, log, 1)
                following = feed.follow(log, after=0)
                assert await anext(following) == items(1)
                own.kill()
                assert await anext(following) == Pause()  # it cannot look, and stays
                await asyncio.to_thread(own.restart)
                await put(feed, log, 2)
                while (found := await anext(following)) == Pause():
                    pass
                assert found == items(2)
                await following.aclose()  # type: ignore[attr-defined]


@pytest.mark.matrix
@on("sqlite", "redis")
async def test_1000_readers_have_one_subscription_and_each_gets_all_in_order(
    feed: Feed[str], keys: FeedKeys, stores: dict[str, Store], request: pytest.FixtureRequest
) -> None:
    logs = [keys.log(f"user{number}") for number in range(100)]
    following = [asyncio.ensure_future(followed(feed, log, 10, after=0)) for log in logs for _ in range(10)]
    for log in logs:
        await _read_by(feed, log, 10)
    for place in range(1, 11):
        await asyncio.gather(*(feed.put(log, {place: f"message {place}"}) for log in logs))
    for found in await asyncio.gather(*following):
        assert found == items(*range(1, 11))
    if "redis" in request.node.callspec.id:
        clients = request.getfixturevalue("redis_server").ask("CLIENT", "LIST", "TYPE", "pubsub")
        assert len(str(clients).strip().splitlines()) == 1


@here
async def test_a_slow_reader_blocks_no_other_and_fills_no_memory(feed: Feed[str], keys: FeedKeys) -> None:
    log = keys.log("ann")
    slow = feed.follow(log, after=0)
    await put(feed, log, 1)
    assert await anext(slow) == items(1)  # and then it does not read
    await put(feed, log, *range(2, 2 * KEEP))
    assert await followed(feed, log, 1, after=2 * KEEP - 2) == items(2 * KEEP - 1)
    assert await anext(slow) == Missed(KEEP)
    assert await anext(slow) == items(*range(KEEP, KEEP + PAGE))
    await slow.aclose()  # type: ignore[attr-defined]


@here
async def test_a_log_without_keep_is_refused(keys: FeedKeys) -> None:
    with pytest.raises(BadDeclaration, match="keep=1000"):
        Feed(keys.endless, keys.wakes())


def test_events_are_what_a_browser_reads() -> None:
    assert event("notice", '{"a": 1}', place=17) == b'id: 17\nevent: notice\ndata: {"a": 1}\n\n'
    assert event("hello", "two\nlines") == b"event: hello\ndata: two\ndata: lines\n\n"
    assert heartbeat().startswith(b":")


@pytest.mark.parametrize(
    ("text", "place"), [("17", 17), (" 17 ", 17), ("", None), (None, None), ("-1", None), ("1e3", None), ("٣", None)]
)
def test_a_place_is_what_a_client_may_name(text: str | None, place: int | None) -> None:
    assert place_in(text) == place
    assert place_in("9" * 400) is None


async def _read_by(feed: Feed[str], log: LogKey[str], count: int) -> None:
    """This many readers follow it now, and have read once."""
    await until(lambda: feed.readers_of(log) >= count, "they follow")
    for _ in range(3):
        await log.count()  # a round trip: earlier reads have been answered
