"""A thread that runs jobs in order and never keeps a process from exiting."""

from __future__ import annotations

import asyncio
import threading
import time
import weakref
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


class WorkerThread:
    """Runs jobs in order in a daemon thread, and passes each result to the event loop."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._jobs: SimpleQueue[tuple[Callable[[], Any], Done] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], Any], done: Done) -> None:
        """Run `job` in the thread, then `done(result, error)` in the event loop."""
        self._jobs.put((job, done))

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
        while (item := self._jobs.get()) is not None:
            job, done = item
            result, error = None, None
            try:
                result = job()
            except BaseException as raised:  # passed to the caller
                error = raised
            with suppress(RuntimeError):  # the loop is closed, but a later job may still have to close a file
                self._loop.call_soon_threadsafe(done, result, error)
            del item, job, done, result, error
