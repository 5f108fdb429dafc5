"""A thread that runs jobs in order and never keeps a process from exiting."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
from _thread import allocate_lock
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeAlias

Done: TypeAlias = Callable[[Any, BaseException | None], None]

_stopped: weakref.WeakSet[threading.Thread] = weakref.WeakSet()


def join_stopped(seconds: float) -> None:
    """Wait for workers that are stopping, at most this long in total."""
    deadline = time.monotonic() + seconds
    for thread in list(_stopped):
        thread.join(max(0.0, deadline - time.monotonic()))


def ignore_result(result: object, error: BaseException | None) -> None:
    """The `done` of jobs whose caller has left."""


class WorkerJob:
    """A job in the thread. Whoever acquires `_finished` after the job has run passes the result on, once.

    is_held   the event loop asks for the result (`finish_within`), so the thread does not wake it
    """

    __slots__ = ("_done", "_error", "_finished", "_is_held", "_result", "_run")

    def __init__(self, run: Callable[[], Any], done: Done, *, is_held: bool) -> None:
        self._run = run
        self._done = done
        self._is_held = is_held
        self._result: Any = None
        self._error: BaseException | None = None
        self._finished = allocate_lock()
        self._finished.acquire()

    def finish_within(self, seconds: float) -> None:
        """In the event loop, for a held job: wait for it this long at most, and call `done`.

        If it takes longer, `done` is called later. To wait here costs far less than to be woken by another thread.
        """
        is_finished = False
        try:
            is_finished = self._finished.acquire(timeout=seconds)
        finally:  # also after Ctrl-C
            self._is_held = is_finished
        # If it finishes only now, the thread sees that it is no longer held.
        if is_finished or self._finished.acquire(blocking=False):
            self._done(self._result, self._error)

    def work(self, loop: asyncio.AbstractEventLoop) -> None:
        """In the thread."""
        try:
            self._result = self._run()
        except BaseException as raised:  # passed to the caller
            self._error = raised
        self._finished.release()
        if not self._is_held and self._finished.acquire(blocking=False):
            with suppress(RuntimeError):  # the loop is closed, but a later job may still have to close a file
                loop.call_soon_threadsafe(self._done, self._result, self._error)


class WorkerThread:
    """Runs jobs in order in a daemon thread, and passes each result to the event loop."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: SimpleQueue[WorkerJob | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], Any], done: Done, *, is_held: bool = False) -> WorkerJob:
        """Run `job` in the thread, then `done(result, error)` in the event loop: if it is held, in `finish_within`."""
        one = WorkerJob(job, done, is_held=is_held)
        self._jobs.put(one)
        return one

    async def call(self, job: Callable[[], Any]) -> Any:
        """Run `job` in the thread and wait for it. Cancelling stops the waiting, not the job."""
        future: asyncio.Future[Any] = self._loop.create_future()

        def done(result: Any, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)

        self.submit(job, done)
        return await future

    def stop(self) -> None:
        """End the thread after the queued jobs, without waiting for it."""
        self._jobs.put(None)
        _stopped.add(self._thread)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job.work(self._loop)
            del job  # and its result
