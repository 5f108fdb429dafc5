"""The edges of windows, to the millisecond, and token buckets against exact arithmetic."""

from fractions import Fraction

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keystead.parts.limit import FixedWindow, Rate, SlidingWindow, TokenBucket
from tests.parts.limit.conftest import Clock, LimitKeys, at_a_clock


async def test_a_fixed_window_ends_a_minute_after_its_first_hit(timed: LimitKeys, clock: Clock) -> None:
    limit, began_ms = FixedWindow(timed.fixed, "2/minute"), clock.ms
    assert (await limit.hit("ann")).reset_ms == 60_000
    clock.ms = began_ms + 59_999
    assert await limit.hit("ann")
    refused = await limit.hit("ann")
    assert (refused.retry_after_ms, refused.retry_after, refused.reset) == (1, 1, 1)
    clock.ms = began_ms + 60_000
    assert (await limit.hit("ann")).remaining == 1


async def test_a_hash_stores_the_start_of_its_window(timed: LimitKeys, clock: Clock) -> None:
    limit, began_ms = FixedWindow(timed.record, "10/minute"), clock.ms
    await limit.hit("192.0.2.1")
    clock.ms += 1_000
    await limit.hit("192.0.2.1", by=3)
    held = await timed.record("192.0.2.1").get()
    assert held is not None
    assert (held.count, held.windowStart.timestamp() * 1000) == (4, began_ms)


async def test_a_sliding_window_forgets_each_hit_a_window_after_it(timed: LimitKeys, clock: Clock) -> None:
    limit, began_ms = SlidingWindow(timed.log, "3/minute"), clock.ms
    for at_ms in (0, 20_000, 40_000):
        clock.ms = began_ms + at_ms
        assert await limit.hit("ann")
    refused = await limit.hit("ann")
    assert (refused.retry_after_ms, refused.reset_ms) == (20_001, 60_001)
    assert (await limit.hit("ann", by=2)).retry_after_ms == 40_001
    clock.ms = began_ms + 60_000
    assert not await limit.hit("ann")
    clock.ms += 1
    assert (await limit.hit("ann")).remaining == 0
    assert (await limit.hit("ann")).retry_after_ms == 20_000
    clock.ms = began_ms + 120_001
    assert (await limit.peek("ann")).remaining == 2


async def test_a_bucket_refills_at_its_rate(timed: LimitKeys, clock: Clock) -> None:
    limit, began_ms = TokenBucket(timed.bucket, "10/minute", burst=3), clock.ms  # one in six seconds
    assert [(await limit.hit("ann")).remaining for _ in range(3)] == [2, 1, 0]
    refused = await limit.hit("ann")
    assert (refused.retry_after_ms, refused.reset_ms) == (6_000, 18_000)
    assert (await limit.hit("ann", by=3)).retry_after_ms == 18_000
    clock.ms = began_ms + 5_999
    assert not await limit.hit("ann")
    clock.ms = began_ms + 6_000
    assert (await limit.hit("ann")).remaining == 0
    assert not await limit.hit("ann")
    clock.ms += 10**9  # however long nobody comes, it holds three
    assert [bool(await limit.hit("ann")) for _ in range(4)] == [True, True, True, False]


@pytest.mark.parametrize("rate", ["3/second", "7/minute", "1000/minute", "9999/second", "2/hour", "100000/second"])
async def test_a_burst_is_whole_whatever_fraction_of_a_millisecond_a_token_takes(
    timed: LimitKeys, clock: Clock, rate: str
) -> None:
    read = Rate.of(rate)
    limit = TokenBucket(timed.bucket, rate)
    for _ in range(3):
        assert (await limit.hit("ann", by=read.amount - 1)).remaining == 1
        assert (await limit.hit("ann")).remaining == 0
        assert not await limit.hit("ann")
        clock.ms += limit._fills_ms
    assert limit._fills_ms >= read.window_ms  # rounded, it is never faster than it says


@settings(max_examples=60, deadline=None)
@given(
    amount=st.integers(1, 40),
    window_ms=st.sampled_from((1_000, 999, 60_000, 7)),
    burst=st.integers(1, 20),
    hits=st.lists(st.tuples(st.integers(0, 3_000), st.integers(1, 22)), min_size=1, max_size=30),
)
def test_a_bucket_matches_plain_arithmetic(
    amount: int, window_ms: int, burst: int, hits: list[tuple[int, int]]
) -> None:
    async def play() -> None:
        clock = Clock()
        async with at_a_clock(clock) as keys:
            limit = TokenBucket(keys.bucket, Rate(amount, window_ms), burst=burst)
            token_ms = Fraction(limit._token_ms)
            assert 0 <= token_ms - Fraction(window_ms, amount) < Fraction(1, 2048)
            tokens, at_ms = Fraction(burst), clock.ms
            for pause_ms, by in hits:
                clock.ms += pause_ms
                tokens, at_ms = min(Fraction(burst), tokens + (clock.ms - at_ms) / token_ms), clock.ms
                verdict = await limit.hit("ann", by=by)
                assert verdict.allowed is (by <= tokens)
                if by <= tokens:
                    tokens -= by
                elif by <= burst:
                    assert verdict.retry_after_ms == -((tokens - by) * token_ms // 1)
                assert verdict.remaining == int(tokens)

    anyio.run(play)


async def test_a_log_takes_a_cost_of_thousands(timed: LimitKeys) -> None:
    limit = SlidingWindow(timed.log, "10,000/minute")
    assert (await limit.hit("ann", by=7_001)).remaining == 2_999
    assert not await limit.hit("ann", by=3_000)
    assert await limit.hit("ann", by=2_999)
    assert await timed.log("ann").count() == 10_000
