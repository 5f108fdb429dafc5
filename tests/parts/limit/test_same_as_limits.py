"""The same answers as the `limits` library gives, on the same sequence of times."""

import time
from collections.abc import Callable

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from limits import RateLimitItemPerSecond
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter

from keystead.parts.limit import FixedWindow, SlidingWindow
from tests.parts.limit.conftest import Clock, LimitKeys, at_a_clock

# Eighths of a second, which a float holds exactly: that library compares sums of floats.
STEP_MS = 125
PAUSES = st.one_of(st.integers(0, 4), st.integers(0, 600), st.sampled_from((479, 480, 481)))


def storage() -> MemoryStorage:
    """Theirs, without the thread that clears up now and then, also what is exactly a window old and still counts."""
    made = MemoryStorage()
    made.timer.cancel()
    made.timer.join()
    vars(made)["_MemoryStorage__schedule_expiry"] = lambda: None
    return made


@settings(max_examples=150, deadline=None)
@given(limit=st.integers(1, 6), pauses=st.lists(PAUSES, min_size=1, max_size=60))
@example(limit=1, pauses=[0, 480, 480, 479, 1])
def test_a_fixed_window_equals_that_of_limits(limit: int, pauses: list[int]) -> None:
    clock = Clock()

    async def play(theirs: FixedWindowRateLimiter) -> None:
        async with at_a_clock(clock) as keys:
            ours = FixedWindow(keys.fixed, f"{limit}/minute")
            for pause in pauses:
                clock.ms += pause * STEP_MS
                verdict = await ours.hit("ann")
                assert verdict.allowed is theirs.hit(RateLimitItemPerSecond(limit, 60), "ann")
                stats = theirs.get_window_stats(RateLimitItemPerSecond(limit, 60), "ann")
                assert (verdict.remaining, verdict.reset_ms) == (
                    stats.remaining,
                    round(stats.reset_time * 1000) - clock.ms,
                )

    _at(clock, lambda: anyio.run(play, FixedWindowRateLimiter(storage())))


@pytest.mark.matrix
@settings(max_examples=150, deadline=None)
@given(
    limit=st.integers(1, 6),
    hits=st.lists(st.tuples(PAUSES, st.one_of(st.just(1), st.integers(1, 7))), min_size=1, max_size=60),
)
@example(limit=1, hits=[(0, 1), (480, 1), (1, 1), (479, 1)])
def test_a_sliding_window_equals_the_moving_window_of_limits(limit: int, hits: list[tuple[int, int]]) -> None:
    clock = Clock()

    async def play(theirs: MovingWindowRateLimiter) -> None:
        async with at_a_clock(clock) as keys:
            ours = SlidingWindow(keys.log, f"{limit}/minute")
            for pause, cost in hits:
                clock.ms += pause * STEP_MS
                item = RateLimitItemPerSecond(limit, 60)
                # Their `test` and their count of what remains leave out a hit that is exactly a window old, which their
                # `hit` counts; so only `hit` is asked.
                assert (await ours.hit("ann", by=cost)).allowed is theirs.hit(item, "ann", cost=cost)

    _at(clock, lambda: anyio.run(play, MovingWindowRateLimiter(storage())))


def _at(clock: Clock, play: Callable[[], None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time", lambda: clock.ms / 1000)
        play()


async def test_refused_hits_are_not_counted_unlike_in_limits(timed: LimitKeys) -> None:
    theirs, item = FixedWindowRateLimiter(storage()), RateLimitItemPerSecond(10, 60)
    ours = FixedWindow(timed.fixed, "10/minute")
    assert [theirs.hit(item, "ann", cost=cost) for cost in (8, 5, 1)] == [True, False, False]
    assert [bool(await ours.hit("ann", by=cost)) for cost in (8, 5, 1)] == [True, False, True]
