"""Several awaitables whose requests leave in one turn of the event loop, without a task for each."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from contextvars import Context, copy_context
from typing import Any, Final, Generic, TypeVar, cast, overload

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")

_UNFINISHED: Final = object()


@overload
async def in_one_turn(first: Awaitable[A], second: Awaitable[B], /) -> tuple[A, B]: ...
@overload
async def in_one_turn(*work: Awaitable[T]) -> tuple[T, ...]: ...
async def in_one_turn(*work: Awaitable[Any]) -> tuple[Any, ...]:
    """The results in order, as of `asyncio.gather`, for work of one round trip each.

    Each is started, up to the point where it waits, before any is waited for: so the store gets all requests together,
    in this order. From there they go on one after the other. Two tasks cost more than a request to Redis does.

    If one raises, those after it are dropped where they wait: their requests have been sent.
    """
    started = [_Started(one) for one in work]
    try:
        return tuple([await one for one in started])
    finally:
        for one in started:
            one.close()


class _Started(Generic[T]):
    """An awaitable that has made its first step. It runs in a context of its own, as a task does."""

    __slots__ = ("_context", "_error", "_result", "_steps", "_waits_for")

    def __init__(self, work: Awaitable[T]) -> None:
        self._context: Context = copy_context()
        self._steps = work.__await__()
        self._result: Any = _UNFINISHED
        self._error: BaseException | None = None
        self._waits_for: Any = None
        try:
            self._waits_for = self._context.run(self._steps.send, None)
        except StopIteration as end:
            self._result = end.value
        except BaseException as error:  # raised when it is awaited, after the others have been started
            self._error = error

    def __await__(self) -> Generator[Any, Any, T]:
        if self._error is not None:
            raise self._error
        while self._result is _UNFINISHED:
            waits_for = self._waits_for
            try:
                if waits_for is not None and waits_for.done():
                    # Its reply came while another was waited for. The flag says that a task is about to wait for it.
                    waits_for._asyncio_future_blocking = False
                else:
                    yield waits_for
            except BaseException as error:
                self._step(self._steps.throw, error)
            else:
                self._step(self._steps.send, None)
        return cast("T", self._result)

    def _step(self, step: Any, sent: Any) -> None:
        self._waits_for = None
        try:
            self._waits_for = self._context.run(step, sent)
        except StopIteration as end:
            self._result = end.value

    def close(self) -> None:
        """Drop it where it waits, as cancelling a task does: what it waits for is not needed any more."""
        if self._result is _UNFINISHED and self._error is None:
            self._context.run(self._steps.close)
            waits_for = self._waits_for
            if waits_for is not None and not waits_for.cancel() and not waits_for.cancelled():
                waits_for.exception()  # avoids asyncio's "never retrieved" warning
