"""Synchronous calls: `wait` runs an awaitable from ordinary code, from any number of threads.

All synchronous callers of a process share one event loop, so requests made at the same moment share round trips and
commits, as those of tasks do. There is no thread between a caller and the loop: the caller that waits runs the loop
itself, for itself and for all others, until it has its own result; then it hands the loop to the next one that waits.
Passing every call to a thread would cost two thread switches, more than a request to Redis. While no caller waits, a
background thread runs the loop, for what goes on by itself: reconnecting, refreshing leases, sweeping.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import sys
import threading
import time
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from contextvars import Context, copy_context
from typing import Any, Final, Generic, Literal, TypeVar, cast

from keystead.errors import StoreUnavailable, WrongEventLoop
from keystead.stores.caller_event_loop import CallerEventLoop

__all__ = ["close_before", "enter", "is_synchronous_loop", "iterate", "keep_for_parent", "wait"]

T = TypeVar("T")

IDLE_S: Final = 0.02  # without a call for this long, the background thread takes the loop
_EXIT_WAITS_S: Final = 2.0
_FORK_WAITS_S: Final = 5.0


def wait(work: Awaitable[T]) -> T:
    """The result of an awaitable, for synchronous code: `wait(keys.cart("ann").get())`, `wait(sessions.read(token))`.

    Blocks the calling thread. Raises what the awaitable raises. The stores that it uses need not be opened: a store
    that was only connected to is opened by its first use, once in each process, and closed at exit. Raises
    WrongEventLoop inside a running event loop: use `await` there.
    """
    if asyncio._get_running_loop() is not None:
        _close_unused(work)
        raise WrongEventLoop("wait() would block the event loop that runs here; use `await` in asynchronous code")
    runner = _runner
    if runner is None or runner.is_closed:
        runner = _start_runner(work)
    return runner.wait(work)


@contextmanager
def enter(manager: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """An asynchronous context manager in synchronous code: `with enter(lock.holding("import")) as hold:`.

    If its work fails meanwhile, as when a lock is lost, the block goes on, and the error is raised at its end.
    """
    room = _Room(manager)
    value = wait(room.open())
    try:
        yield value
    except BaseException as error:
        if not wait(room.leave(error)):
            raise
    else:
        wait(room.leave(None))


def iterate(items: AsyncIterable[T]) -> Iterator[T]:
    """The items of an asynchronous iterator in synchronous code: `for key in iterate(keys.cart.scan()):`."""
    iterator = aiter(items)
    try:
        while True:
            try:
                item = wait(_next_of(iterator))
            except StopAsyncIteration:
                return
            yield item
    finally:
        close: Any = getattr(iterator, "aclose", None)
        if close is not None:
            wait(close())


def is_synchronous_loop(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether this is the loop of synchronous callers."""
    return _runner is not None and _runner.loop is loop


class _Call(Generic[T]):
    """An awaitable of one caller, and its outcome."""

    __slots__ = ("context", "error", "has_loop", "is_done", "is_queued", "result", "task", "wake", "work")

    def __init__(self, work: Awaitable[T]) -> None:
        self.work = work
        self.context: Context = copy_context()
        self.task: asyncio.Task[None] | None = None
        self.result: Any = None
        self.error: BaseException | None = None
        self.is_queued = self.is_done = False
        self.has_loop = False  # its thread runs the loop, or was told to
        self.wake: threading.Lock | None = None  # its thread waits for this, unless it runs the loop from the start


class _CallerRunLoop:
    """An event loop that is run by the threads that wait for it."""

    def __init__(self) -> None:
        _refuse_green_threads()
        self.is_closed = False
        self._mutex = threading.Lock()
        self._is_run = False  # by a caller or by the background thread
        self._own: _Call[Any] | None = None  # the call whose thread runs the loop; None: the background thread
        self._waiting: dict[_Call[Any], None] = {}  # the other calls, in the order in which they came
        self.loop: Final = CallerEventLoop(others=self._waiting)
        self._new: list[_Call[Any]] = []  # those that have no task yet
        self._calls = self._active = 0  # all so far, and those that have not ended
        self._gate: threading.Event | None = None  # closed while the process is forked
        self._exit = threading.Event()
        self._background = threading.Thread(target=self._run_while_idle, name="keystead-sync", daemon=True)
        self._background.start()

    def wait(self, work: Awaitable[T], *, through_gate: bool = False) -> T:
        call = _Call(work)
        try:
            while (gate := self._enqueue(call, through_gate)) is not None:
                gate.wait()
            if call.wake is not None:
                call.wake.acquire()
            if call.has_loop:
                self._run_loop_for(call)
        except BaseException:  # interrupted, as by Ctrl-C
            self._give_up(call)
            raise
        if call.error is None:
            return cast("T", call.result)
        try:
            raise call.error
        finally:
            call.error = None  # a traceback holds this frame: without the cycle it is freed at once

    def _enqueue(self, call: _Call[Any], through_gate: bool) -> threading.Event | None:
        """Returns the gate if it is closed."""
        with self._mutex:
            if self._gate is not None and not through_gate:
                return self._gate
            call.is_queued = True
            self._calls += 1
            self._active += 1
            if not self._is_run:
                self._is_run = call.has_loop = True
                return None
            call.wake = threading.Lock()
            call.wake.acquire()
            self._waiting[call] = None
            self._new.append(call)
            if len(self._new) == 1:  # one wake-up of the loop for all that come until it is awake
                self.loop.call_soon_threadsafe(self._start_new)
            return None

    def _run_loop_for(self, call: _Call[Any]) -> None:
        """Run the loop until this call is done, then hand it over."""
        self._own = call
        try:
            if call.wake is None:
                self._start(call)
            while not call.is_done:
                self.loop.run_forever()
        finally:
            call.has_loop = False
            self._hand_over()

    def _hand_over(self) -> None:
        with self._mutex:
            self._own = None
            for other in self._waiting:
                del self._waiting[other]
                other.has_loop = True
                cast("threading.Lock", other.wake).release()
                return
            self._is_run = False

    def _give_up(self, call: _Call[Any]) -> None:
        """Cancel the work of a caller that was interrupted. The loop goes to another caller."""
        if not call.is_queued:
            _close_unused(call.work)
            return
        with self._mutex:
            self._waiting.pop(call, None)
        if call.has_loop:
            call.has_loop = False
            self._hand_over()
        self.loop.call_soon_threadsafe(self._cancel, call)

    # --- in the loop ---------------------------------------------------------------------------------------

    def _start_new(self) -> None:
        with self._mutex:
            new, self._new = self._new, []
        for call in new:
            self._start(call)
        if self._own is None:  # the background thread makes way: this caller and the next run the loop themselves
            self.loop.stop()

    def _start(self, call: _Call[Any]) -> None:
        call.task = asyncio.Task(self._work(call), loop=self.loop, context=call.context)

    async def _work(self, call: _Call[Any]) -> None:
        # It finishes the call itself: a callback of the task would take another turn of the loop.
        try:
            call.result = await call.work
        except (KeyboardInterrupt, SystemExit) as interrupt:
            self._finish(call, interrupt)
            raise
        except asyncio.CancelledError:
            self._finish(call, asyncio.CancelledError())
        except BaseException as error:
            self._finish(call, error)
        else:
            self._finish(call, None)

    def _finish(self, call: _Call[Any], error: BaseException | None) -> None:
        if isinstance(error, KeyboardInterrupt | SystemExit) and call is not self._own:
            # It is meant for the thread that runs the loop.
            error = StoreUnavailable("another thread was interrupted while this was under way", "unknown")
        call.error, call.is_done = error, True
        if call is self._own:
            self.loop.stop()
        with self._mutex:
            self._active -= 1
            if self._waiting.pop(call, call) is None and call.wake is not None:
                call.wake.release()

    def _cancel(self, call: _Call[Any]) -> None:
        if call.task is None:
            self._start(call)
        task = cast("asyncio.Task[None]", call.task)
        task.add_done_callback(lambda _: self._finish_unstarted(call))
        task.cancel()

    def _finish_unstarted(self, call: _Call[Any]) -> None:
        """A task that is cancelled before its first step does not run at all."""
        if not call.is_done:
            _close_unused(call.work)
            self._finish(call, asyncio.CancelledError())

    # --- in the background thread ----------------------------------------------------------------------------

    def _run_while_idle(self) -> None:
        seen = -1
        while not self._exit.wait(IDLE_S):
            with self._mutex:
                if self._is_run or self._calls != seen:
                    seen = self._calls
                    continue
                self._is_run = True
            self.loop.run_forever()
            self._hand_over()

    # --- around a fork ---------------------------------------------------------------------------------------

    def pause(self, closing: Coroutine[Any, Any, None]) -> None:
        """Let no new call begin, wait for those under way, and run this. A call that takes long is not waited for."""
        with self._mutex:
            self._gate = threading.Event()
        deadline = time.monotonic() + _FORK_WAITS_S
        while self._active and time.monotonic() < deadline:
            time.sleep(0.001)
        self.wait(closing, through_gate=True)

    def resume(self) -> None:
        if self._gate is not None:
            gate, self._gate = self._gate, None
            gate.set()

    # --- at exit -------------------------------------------------------------------------------------------

    def close(self, closing: Coroutine[Any, Any, None]) -> None:
        """Run this last, then end everything that still runs, within two seconds. There are no callers any more."""
        self._exit.set()
        try:
            self.wait(asyncio.wait_for(closing, _EXIT_WAITS_S))
            self.wait(_cancel_others())
        except (Exception, asyncio.CancelledError):  # the program ends in any case
            return
        self.is_closed = True
        self._background.join(_EXIT_WAITS_S)
        if not self._is_run:
            self.loop.close()


class _Room(Generic[T]):
    """An asynchronous context manager that is entered and left by one task, as asyncio expects."""

    def __init__(self, manager: AbstractAsyncContextManager[T]) -> None:
        self._manager = manager
        self._is_suppressed = False

    async def open(self) -> T:
        loop = asyncio.get_running_loop()
        self._entered: asyncio.Future[T] = loop.create_future()
        self._left: asyncio.Future[BaseException | None] = loop.create_future()
        self._task = loop.create_task(self._hold())
        waited: set[asyncio.Future[Any]] = {self._task, self._entered}
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if not self._entered.done():
            await self._task
        return self._entered.result()

    async def leave(self, error: BaseException | None) -> bool:
        """Whether the manager suppressed this error of the block."""
        if not self._left.done():
            self._left.set_result(error)
        try:
            await self._task
        except BaseException as raised:
            if raised is not error:
                raise
            return False
        return error is not None

    async def _hold(self) -> None:
        async with self._manager as value:
            self._entered.set_result(value)
            error = await self._left
            if error is not None:
                raise error


async def _next_of(iterator: AsyncIterator[T]) -> T:
    return await anext(iterator)


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=_EXIT_WAITS_S)
    await asyncio.get_running_loop().shutdown_asyncgens()


def _close_unused(work: Any) -> None:
    """Avoids the warning about a coroutine or an operation that was never awaited."""
    close = getattr(work, "close", None)
    if close is not None:
        close()


def _refuse_green_threads() -> None:
    gevent, eventlet = sys.modules.get("gevent.monkey"), sys.modules.get("eventlet.patcher")
    if (gevent is not None and gevent.is_module_patched("threading")) or (
        eventlet is not None and eventlet.is_monkey_patched("thread")
    ):
        raise WrongEventLoop(
            "synchronous calls need real threads, and gevent or eventlet has replaced them: a call would block all "
            "green threads; use worker threads or processes (gunicorn's gthread worker), or asyncio"
        )


# --- one loop for each process -------------------------------------------------------------------------------

_runner: _CallerRunLoop | None = None
_starting = threading.Lock()
_inherited: list[Any] = []  # never freed: closing what belongs to the parent would break it there
_closing: dict[Literal["exit", "fork"], Callable[[], Coroutine[Any, Any, None]]] = {}


def close_before(event: Literal["exit", "fork"], close: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run this in the loop of synchronous callers, if there is one, before the program ends or forks."""
    _closing[event] = close


def keep_for_parent(owned: Any) -> None:
    """In a forked process, never free this, because it belongs to the parent."""
    _inherited.append(owned)


def _start_runner(work: Awaitable[Any]) -> _CallerRunLoop:
    global _runner
    with _starting:
        if _runner is None:
            try:
                _runner = _CallerRunLoop()
            except BaseException:
                _close_unused(work)
                raise
            atexit.register(_close_runner, _runner)
    if _runner.is_closed:
        _close_unused(work)
        raise StoreUnavailable("the program is ending, so nothing can be sent to a store any more", "not-sent")
    return _runner


def _close_runner(runner: _CallerRunLoop) -> None:
    if runner is _runner:  # not in a forked process
        runner.close(_closing["exit"]())


def _pause_before_fork() -> None:
    if _runner is not None and not _runner.is_closed and asyncio._get_running_loop() is None:
        _runner.pause(_closing["fork"]())


def _resume_in_parent() -> None:
    if _runner is not None:
        _runner.resume()


def _forget_in_child() -> None:
    """In a forked process the loop belongs to the parent; the first call makes a new one."""
    global _runner, _starting
    _inherited.append(_runner)
    _runner, _starting = None, threading.Lock()


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(before=_pause_before_fork, after_in_parent=_resume_in_parent, after_in_child=_forget_in_child)
