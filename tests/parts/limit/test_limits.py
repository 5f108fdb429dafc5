"""Rate limits on every store: never more than the limit under concurrency, and nothing left behind."""

import asyncio
from typing import Any

import pytest

from keystead import Counter, Keyspace, Store, after
from keystead.errors import BadKey, BadValue
from keystead.http.rate_limits import rate_limit_headers
from keystead.parts.limit import (
    AlignedWindow,
    CombinedLimit,
    FixedWindow,
    LimitReached,
    Limits,
    SlidingWindow,
    TokenBucket,
)
from keystead.parts.limit.windows import _StoreClock
from keystead.testing.contract.contract_base import clock_ms
from tests.parts.limit.conftest import Clock, Kind, LimitKeys, each_kind, everywhere, here

HOUR_MS = 3_600_000
ODD = (" ", "*", "a:b", "{tag}", "ü ñ\n\x00", "x" * 300, "%2F", "../..", "limit:fixed:x")


async def passed(limit: Limits, client: str, hits: int = 200) -> int:
    """How many of this many concurrent hits are allowed."""
    return sum(map(bool, await asyncio.gather(*(limit.hit(client) for _ in range(hits)))))


@everywhere
@each_kind
async def test_ten_of_200_concurrent_hits_pass_on_both_sides_of_a_window_edge(keys: LimitKeys, kind: Kind) -> None:
    limit = kind.make(keys)
    for _ in range(3):
        assert await passed(limit, "ann") == 10
        await kind.pass_window(keys, "ann")
    assert await passed(limit, "bob") == 10


class AlignedKeys(Keyspace):
    hits = Counter("limit:{client}:{windowStart:int}", lifetime=after("3h"))


async def counts(keys: AlignedKeys) -> dict[Any, int]:
    """How much is counted in each window."""
    return {key.values["windowStart"]: await key.get() async for key in keys.hits.scan()}


@everywhere
async def test_no_aligned_window_lets_more_than_ten_through_while_edges_pass(store: Store) -> None:
    keys = AlignedKeys(store)
    limit = AlignedWindow(keys.hits, "10 per 20ms")
    let_through = sum([await passed(limit, "ann", 50) for _ in range(4)])
    counted = await counts(keys)
    assert max(counted.values()) <= 10
    assert let_through <= sum(counted.values())  # how many fall into one window is up to the machine
    assert all(start % 20 == 0 for start in counted)


@everywhere
async def test_hits_that_were_sent_for_a_window_that_is_over_count_in_the_current_one(store: Store) -> None:
    keys = AlignedKeys(store)
    for attempt in range(2):  # twice, because a real hour may end while the first one is under way
        limit = AlignedWindow(keys.hits, "10/hour")
        now_ms = await clock_ms(store)
        limit._clock.saw(now_ms - HOUR_MS)  # so this process believes it is still in the hour before
        client = f"ann{attempt}"
        let_through = await passed(limit, client)
        current = now_ms - now_ms % HOUR_MS
        if await clock_ms(store) < current + HOUR_MS:
            break
    assert let_through == 10
    assert await keys.hits(client, current).get() == 10


@everywhere
@each_kind
async def test_a_refusal_has_retry_after_and_does_not_extend_the_window(keys: LimitKeys, kind: Kind) -> None:
    limit = kind.make(keys)
    first = await limit.hit("ann", by=10)
    assert (first.allowed, first.limit, first.remaining, first.retry_after) == (True, 10, 0, 0)
    waits = []
    for _ in range(3):
        refused = await limit.hit("ann")
        assert (refused.allowed, refused.remaining) == (False, 0)
        assert refused.retry_after_ms is not None
        waits.append(refused.retry_after_ms)
    longest = 6_000 if kind.name == "bucket" else 60_001
    assert longest >= waits[0] >= waits[1] >= waits[2] > longest - 5_000
    assert rate_limit_headers(refused)["retry-after"] == str(refused.retry_after)


@everywhere
@each_kind
async def test_a_cost_is_granted_as_a_whole_or_not_at_all(keys: LimitKeys, kind: Kind) -> None:
    limit = kind.make(keys)
    assert (await limit.hit("ann", by=7)).remaining == 3
    for too_much in (4, 10, 11, 10**12):
        refused = await limit.hit("ann", by=too_much)
        assert (refused.allowed, refused.remaining) == (False, 3)
        assert (refused.retry_after is None) is (too_much > 10)
    assert (await limit.hit("ann", by=3)).remaining == 0
    assert not await limit.hit("ann")


@everywhere
@each_kind
async def test_nothing_stays_behind_without_a_deadline_and_a_refusal_writes_nothing(
    keys: LimitKeys, kind: Kind, store: Store
) -> None:
    limit = kind.make(keys)
    await limit.hit("bob", by=11)
    await limit.peek("bob")
    assert [key async for page in store.scan() for key in page] == []
    for _ in range(12):
        await limit.hit("ann")
    [key] = [key async for page in store.scan() for key in page]
    [left_ms] = await store.run([("PTTL", key)])
    longest = {"sliding": 120_000, "bucket": 3_600_000}.get(kind.name, 60_000)
    assert longest - 10_000 < left_ms <= longest
    if kind.name == "sliding":
        assert await keys.log("ann").count() == 10


@everywhere
@each_kind
async def test_a_client_may_have_any_name_and_none_counts_for_another(keys: LimitKeys, kind: Kind) -> None:
    limit = kind.make(keys, "1/minute")
    assert all([await limit.hit(name) for name in ODD])
    assert not any([await limit.hit(name) for name in ODD])


@here
@each_kind
async def test_peek_counts_nothing_and_reset_clears_the_limit(keys: LimitKeys, kind: Kind) -> None:
    limit = kind.make(keys)
    assert [(await limit.peek("ann")).remaining for _ in range(3)] == [10, 10, 10]
    await limit.hit("ann", by=9)
    assert (await limit.peek("ann")).remaining == 1
    assert bool(await limit.peek("ann")) is True
    assert bool(await limit.peek("ann", by=2)) is False
    await limit.hit("ann")
    assert not await limit.peek("ann")
    await limit.reset("ann")
    assert (await limit.hit("ann")).remaining == 9


@here
@each_kind
async def test_a_request_counts_as_one_or_more(keys: LimitKeys, kind: Kind) -> None:
    limit = kind.make(keys)
    for by in (0, -1, -(10**20), 10**13, 1.5, True, "1", None):
        with pytest.raises(BadValue, match="a request counts as"):
            await limit.hit("ann", by=by)  # type: ignore[arg-type]
        with pytest.raises(BadValue):
            limit.in_steps("ann", by=by)  # type: ignore[arg-type]
    with pytest.raises(BadKey):
        await limit.hit()
    assert (await limit.peek("ann")).remaining == 10


@here
@each_kind
async def test_require_raises_limit_reached(keys: LimitKeys, kind: Kind) -> None:
    limit = kind.make(keys)
    assert (await limit.require("ann", by=10)).remaining == 0
    with pytest.raises(LimitReached, match=r"too many requests; wait \d+ s") as reached:
        await limit.require("ann")
    assert reached.value.verdict is not None
    assert reached.value.retry_after_s == reached.value.verdict.retry_after
    with pytest.raises(LimitReached, match="more than the 10 that are allowed at once"):
        await limit.require("ann", by=11)


# --- in one step with something else -------------------------------------------------------------------------


@everywhere
@each_kind
async def test_a_hit_and_its_work_are_one_step(keys: LimitKeys, kind: Kind) -> None:
    limit = kind.make(keys)

    async def order() -> bool:
        look, count = limit.in_steps("ann")
        done = await keys.atomically(look, count, keys.orders("ann").increment())
        verdict = done.values[0] if done else done.before[0]
        assert verdict.allowed is bool(done)
        return bool(done)

    assert sum(await asyncio.gather(*(order() for _ in range(50)))) == 10
    assert await keys.orders("ann").get() == 10
    # If the work stops, nothing is counted either.
    look, count = limit.in_steps("bob")
    assert not await keys.atomically(look, count, keys.orders("bob").at_most(-1))
    assert (await limit.peek("bob")).remaining == 10


# --- several at once -----------------------------------------------------------------------------------------


@everywhere
async def test_several_limits_count_in_all_of_them_or_in_none(keys: LimitKeys) -> None:
    fixed, log = FixedWindow(keys.fixed, "10/minute"), SlidingWindow(keys.log, "7/minute")
    bucket = TokenBucket(keys.bucket, "100/minute")
    together = CombinedLimit(fixed, log, bucket)
    assert await passed(together, "ann", 100) == 7
    refused = await together.hit("ann")
    assert (refused.name, refused.limit, refused.remaining) == ("log", 7, 0)
    assert [one.remaining for one in refused.each][:2] == [3, 0]
    assert [one.allowed for one in refused.each] == [True, False, True]
    assert (await fixed.peek("ann")).remaining == 3
    await log.reset("ann")
    assert await passed(together, "ann", 100) == 3
    assert (await together.hit("ann")).name == "fixed"
    await together.reset("ann")
    assert [one.remaining for one in (await together.peek("ann")).each] == [10, 7, 100]


# --- the clock of the store ----------------------------------------------------------------------------------


async def test_an_aligned_window_uses_the_clock_of_the_store(timed: LimitKeys, clock: Clock) -> None:
    class Keys(Keyspace):
        hits = Counter("ratelimit:{identifier}:{windowStart:int}", lifetime=after("120s"))

    clock.ms = 1_790_000_039_990  # ten milliseconds before a minute ends
    wrong = Keys(timed.fixed.store, now_ms=lambda: clock.ms + 2_000)
    right = Keys(timed.fixed.store, now_ms=lambda: clock.ms)
    limits = [AlignedWindow(keys.hits, "10/minute") for keys in (wrong, right)]
    for limit in limits:
        limit._clock = _StoreClock(lambda: 0)  # no time passes here
    assert sum([bool(await limits[n % 2].hit("ann")) for n in range(20)]) == 10
    refused = await limits[0].hit("ann")
    assert refused.retry_after_ms == 10
    clock.ms += 10
    # What they know of the time is old now: both notice.
    assert sum([bool(await limits[n % 2].hit("ann")) for n in range(20)]) == 10
    assert {key.values["windowStart"] async for key in right.hits.scan()} == {1_789_999_980_000, 1_790_000_040_000}
    with pytest.raises(BadKey, match="all placeholders but windowStart"):
        await limits[0].hit("ann", "bob")
    clock.ms -= 7_200_000  # a server took over whose clock is two hours behind
    assert await limits[0].hit("ann")
    assert await right.hits("ann", clock.ms - clock.ms % 60_000).get() == 1
