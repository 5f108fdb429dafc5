"""Rate limits during a store outage: deny, allow or raise."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator

import pytest

from keystead import Store, connect
from keystead.errors import BadArgument, NotANumber, StoreUnavailable
from keystead.http.rate_limits import too_many_requests
from keystead.parts.limit import CombinedLimit, FixedWindow, LimitReached, SlidingWindow, TokenBucket
from keystead.parts.limit.outage import CLIENTS_MOST
from tests import servers
from tests.parts.limit.conftest import Clock, Kind, LimitKeys, each_kind


@pytest.fixture(scope="module")
def server() -> Iterator[servers.Server]:
    with servers.redis() as server:
        yield server


@pytest.fixture
async def away(server: servers.Server, clock: Clock) -> AsyncIterator[LimitKeys]:
    """Keys in a store that went down."""
    server.restart()
    async with connect(f"{server.url}?timeout=500ms&connect_timeout=1s") as store:
        keys = LimitKeys(store, now_ms=clock)
        server.kill()
        yield keys


@each_kind
async def test_it_denies_by_default(away: LimitKeys, kind: Kind, caplog: pytest.LogCaptureFixture) -> None:
    limit = kind.make(away)
    with caplog.at_level(logging.WARNING, logger="keystead.parts.limit"):
        verdicts = [await limit.hit("ann") for _ in range(3)]
    assert [(one.allowed, one.store_is_down, one.retry_after) for one in verdicts] == [(False, True, 1)] * 3
    with pytest.raises(LimitReached, match="cannot be checked at the moment"):
        await limit.require("ann")
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert "store-unavailable" in said[0]
    assert "ann" not in said[0]
    answer = too_many_requests(LimitReached.of(verdicts[0]))
    assert (answer.status, answer.code, answer.headers["retry-after"]) == (503, "STORE_UNAVAILABLE", "1")


async def test_it_raises_if_declared_so(away: LimitKeys) -> None:
    limit = FixedWindow(away.fixed, "10/minute", when_down="raise")
    with pytest.raises(StoreUnavailable):
        await limit.hit("ann")
    for other in (limit, FixedWindow(away.fixed, "10/minute", when_down="allow")):
        with pytest.raises(StoreUnavailable):
            await other.peek("ann")
        with pytest.raises(StoreUnavailable):
            await other.reset("ann")


async def test_where_it_allows_each_process_still_lets_no_more_than_the_limit_through(
    away: LimitKeys, clock: Clock
) -> None:
    limit = TokenBucket(away.bucket, "10/minute", when_down="allow")
    verdicts = [await limit.hit("ann") for _ in range(12)]
    assert [one.allowed for one in verdicts] == [True] * 10 + [False] * 2
    assert all(one.store_is_down for one in verdicts)
    assert (verdicts[-1].remaining, verdicts[-1].retry_after) == (0, 60)
    assert await limit.hit("bob", by=10)
    assert (await limit.hit("eve", by=11)).retry_after is None
    clock.ms += 60_000
    assert await limit.hit("ann")
    clock.ms -= 600_000  # a clock that was set back makes no client wait forever
    assert await limit.hit("ann", by=10)


async def test_local_counters_have_bounded_memory(timed: LimitKeys, monkeypatch: pytest.MonkeyPatch) -> None:
    limit = FixedWindow(timed.fixed, "1/minute", when_down="allow")
    error = StoreUnavailable("away")
    for n in range(CLIENTS_MOST + 10):
        assert limit._outage.verdict(error, (n,), 1)
    assert len(limit._outage._local) == CLIENTS_MOST
    assert not limit._outage.verdict(error, (CLIENTS_MOST,), 1)  # the last ones are known
    assert limit._outage.verdict(error, (0,), 1)  # the first one made room


async def test_each_of_several_limits_has_its_own_verdict(away: LimitKeys) -> None:
    allows = FixedWindow(away.fixed, "2/minute", when_down="allow")
    together = CombinedLimit(allows, SlidingWindow(away.log, "3/minute", when_down="allow"))
    assert [bool(await together.hit("ann")) for _ in range(3)] == [True, True, False]
    strict = CombinedLimit(allows, SlidingWindow(away.log, "3/minute"))
    assert not await strict.hit("bob")


async def test_when_the_store_is_back_it_counts_there_again(
    server: servers.Server, away: LimitKeys, caplog: pytest.LogCaptureFixture
) -> None:
    limit = FixedWindow(away.fixed, "10/minute", when_down="allow")
    assert [bool(await limit.hit("ann")) for _ in range(11)][-1] is False
    server.start()
    async with asyncio.timeout(60):
        while (verdict := await limit.hit("ann")).store_is_down:  # noqa: ASYNC110 - nobody tells when a server is back
            await asyncio.sleep(0.001)
    assert (verdict.allowed, verdict.remaining) == (True, 9)
    assert caplog.records[-1].getMessage() == "limit fixed: its store answers again"


async def test_an_error_of_a_key_is_not_an_outage(timed: LimitKeys) -> None:
    store: Store = timed.fixed.store
    await store.run([("SET", timed.fixed("ann").key, "no number"), ("SET", timed.log("ann").key, "no log")])
    with pytest.raises(NotANumber):
        await FixedWindow(timed.fixed, "10/minute", when_down="allow").hit("ann")
    with pytest.raises(Exception, match="not a zset") as caught:
        await SlidingWindow(timed.log, "10/minute", when_down="allow").hit("ann")
    assert not isinstance(caught.value, BadArgument)
