"""Work whose requests leave in one turn of the event loop."""

import asyncio
import gc
from contextvars import ContextVar

import pytest

from keystead.schema.in_one_turn import in_one_turn

NAME: ContextVar[str] = ContextVar("NAME", default="")


class Requests:
    """Counts turns: each request is answered when the loop comes round again."""

    def __init__(self) -> None:
        self.log: list[str] = []

    async def ask(self, name: str) -> str:
        self.log.append(f"sent {name}")
        reply: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(reply.set_result, name)
        await reply
        self.log.append(f"read {name}")
        return name


async def test_all_are_sent_before_any_is_waited_for_and_results_are_in_order() -> None:
    requests = Requests()
    assert await in_one_turn(requests.ask("a"), requests.ask("b"), requests.ask("c")) == ("a", "b", "c")
    assert requests.log == ["sent a", "sent b", "sent c", "read a", "read b", "read c"]


async def test_no_task_is_made() -> None:
    async def current() -> object:
        await asyncio.sleep(0)
        return asyncio.current_task()

    assert await in_one_turn(current(), current()) == (asyncio.current_task(),) * 2


async def test_each_has_a_context_of_its_own() -> None:
    async def named(name: str) -> str:
        token = NAME.set(name)
        await asyncio.sleep(0)
        found = NAME.get()
        NAME.reset(token)
        return found + NAME.get()

    assert await in_one_turn(named("a"), named("b")) == ("a", "b")
    assert NAME.get() == ""


async def test_work_that_needs_several_turns_or_none_is_finished() -> None:
    async def turns(count: int) -> int:
        for _ in range(count):
            await asyncio.sleep(0)
        return count

    assert await in_one_turn(*map(turns, (3, 0, 5))) == (3, 0, 5)


@pytest.mark.parametrize("at_once", [True, False])
async def test_the_first_error_is_raised_and_what_waits_after_it_is_closed(at_once: bool) -> None:
    closed: list[str] = []

    async def fail() -> None:
        if not at_once:
            await asyncio.sleep(0)
        raise ValueError("wrong")

    async def wait() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            closed.append("closed")

    with pytest.raises(ValueError, match="wrong"):
        await in_one_turn(fail(), wait())
    assert closed == ["closed"]


async def test_what_is_closed_is_closed_in_its_own_context() -> None:
    async def named() -> None:
        token = NAME.set("inner")
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            NAME.reset(token)  # raises in any other context

    async def fail() -> None:
        await asyncio.sleep(0)
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        await in_one_turn(fail(), named())


@pytest.mark.parametrize("fails", ["before", "after"])
async def test_the_failure_of_what_nobody_waits_for_is_not_reported(fails: str) -> None:
    loop = asyncio.get_running_loop()
    reported: list[object] = []
    loop.set_exception_handler(lambda _, context: reported.append(context))

    async def ask() -> None:
        reply: asyncio.Future[None] = loop.create_future()

        async def wait() -> None:
            await reply

        async def fail() -> None:
            await asyncio.sleep(0)
            if fails == "before":
                reply.set_exception(OSError("lost"))
            raise ValueError("wrong")

        with pytest.raises(ValueError, match="wrong"):
            await in_one_turn(fail(), wait())
        assert reply.done()

    await ask()
    gc.collect()
    assert reported == []


async def test_an_interruption_of_the_first_leaves_nothing_unawaited() -> None:
    class Killed(BaseException):
        pass

    async def kill() -> None:
        raise Killed

    with pytest.raises(Killed):
        await in_one_turn(kill(), asyncio.sleep(0))


async def test_an_error_of_a_future_reaches_the_work_that_waits_for_it() -> None:
    async def survive() -> str:
        failing: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(failing.set_exception, OSError("gone"))
        try:
            await failing
        except OSError as error:
            return str(error)
        return ""

    assert await in_one_turn(survive(), survive()) == ("gone", "gone")


async def test_cancelling_reaches_all() -> None:
    ended: list[str] = []

    async def wait(name: str) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        except (asyncio.CancelledError, GeneratorExit):
            ended.append(name)
            raise

    task = asyncio.ensure_future(in_one_turn(wait("a"), wait("b")))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == ["a", "b"]
