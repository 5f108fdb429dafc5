"""Time limits of requests: one timer for all of them."""

import asyncio
from collections.abc import Awaitable

import pytest

from keystead.server.time_limits import TimeLimit, TimeLimits


async def limited(limits: TimeLimits, work: Awaitable[object]) -> str:
    """`over` if the limit cancelled it, or the name of the error."""
    limit = limits.begin()
    try:
        await work
    except asyncio.CancelledError:
        if limit.end():
            return "over"
        raise
    except Exception as error:
        return type(error).__name__
    finally:
        limit.end()
    return "done"


async def forever(started: asyncio.Event | None = None) -> None:
    if started is not None:
        started.set()
    await asyncio.Event().wait()


async def fail_when_cancelled() -> None:
    try:
        await forever()
    except asyncio.CancelledError:
        raise ValueError from None


async def ignore_the_cancellation() -> None:
    try:
        await forever()
    except asyncio.CancelledError:
        return


async def test_each_request_ends_at_its_own_deadline() -> None:
    limits = TimeLimits(0.01)
    async with asyncio.timeout(120):
        for _ in range(2):  # the timer starts again
            assert await asyncio.gather(*(limited(limits, forever()) for _ in range(20))) == ["over"] * 20
        assert await limited(limits, asyncio.Event().wait()) == "over"


async def test_a_request_that_ends_in_time_is_left_alone() -> None:
    limits = TimeLimits(60)
    assert await limited(limits, asyncio.sleep(0)) == "done"
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_request_cancelled_by_its_client_is_not_over() -> None:
    limits, started = TimeLimits(60), asyncio.Event()
    task = asyncio.create_task(limited(limits, forever(started)))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_work_that_handles_the_cancellation_leaves_no_trace() -> None:
    limits = TimeLimits(0.01)
    async with asyncio.timeout(120):
        assert await limited(limits, fail_when_cancelled()) == "ValueError"
        assert await limited(limits, ignore_the_cancellation()) == "done"
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0


async def test_a_limit_can_be_removed_or_moved() -> None:
    limits, loop = TimeLimits(0.01), asyncio.get_running_loop()
    others_ended: asyncio.Future[None] = loop.create_future()

    async def work(when: float | None) -> None:
        begun[-1].reschedule(when)
        await others_ended

    begun: list[TimeLimit] = []

    async def run(when: float | None) -> str:
        begun.append(limits.begin())
        try:
            await work(when)
        except asyncio.CancelledError:
            return "over" if begun[0].end() else "cancelled"
        finally:
            begun[-1].end()
        return "done"

    async with asyncio.timeout(120):
        unlimited = asyncio.create_task(run(None))
        await asyncio.sleep(0)
        assert await limited(limits, forever()) == "over"
        others_ended.set_result(None)
        assert await unlimited == "done"
        begun.clear()
        others_ended = loop.create_future()
        assert await run(loop.time() + 0.01) == "over"


def test_a_timer_of_an_ended_event_loop_is_not_waited_for() -> None:
    limits = TimeLimits(0.01)

    async def begin_and_end() -> bool:
        return limits.begin().end()  # in one turn of the event loop, so that no timer can come between

    assert not asyncio.run(begin_and_end())
    assert asyncio.run(asyncio.wait_for(limited(limits, forever()), 120)) == "over"
