"""Background loops: poll for work in rounds until stopped."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Generic, NoReturn, Self, TypeVar

from keystead.errors import KeysteadError

T = TypeVar("T")


def process_name() -> str:
    """A unique name for the holder of leases: host, process id and 32 random bits."""
    return f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"


class BackgroundLoop(Generic[T]):
    """A background loop: `async with` starts it, and the end of the block stops it.

    A store outage pauses it, and is logged once. Stopping waits `stop_within_ms` for the tasks in progress, then
    cancels them, which may take half as long. `wait` is for tests.

    name          its name in the log, as in `outbox`
    left_running  what happens to a task that ignores its cancellation, for the log
    """

    def __init__(
        self,
        name: str,
        left_running: str,
        log: logging.Logger,
        stop_within_ms: int,
        wait: Callable[[float], Awaitable[Any]],
    ) -> None:
        self._name = name
        self._left_running = left_running
        self._log = log
        self._stop_within_ms = stop_within_ms
        self._wait = wait
        self._tasks: dict[asyncio.Task[T], object] = {}  # the tasks in progress, with their names for the log
        self._wake = asyncio.Event()  # poll now instead of at the end of the pause
        self._outages = 0  # store failures in a row
        self._loop: asyncio.Task[NoReturn] | None = None

    async def _round(self) -> float:
        """Start the work that is due. Returns the seconds until the next round."""
        raise NotImplementedError

    async def run(self) -> NoReturn:
        """Run rounds until cancelled; then stop as described above."""
        try:
            while True:
                self._wake.clear()
                await self._wait_for_first(await self._round(), self._wake.wait())
        finally:
            await self._stop_tasks()

    async def __aenter__(self) -> Self:
        self._loop = asyncio.create_task(self.run(), name=f"keystead {self._name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.wait({self._loop})
            if not self._loop.cancelled() and (ended := self._loop.exception()) is not None:
                self._log.error("the %s failed while stopping", self._name, exc_info=ended)
            self._loop = None

    def _record_outage(self, error: Exception) -> None:
        self._outages += 1
        if self._outages == 1:
            known = isinstance(error, KeysteadError)
            shown = error if known else type(error).__name__
            self._log.warning(
                "the %s is paused until its store is back: %s", self._name, shown, exc_info=None if known else error
            )

    def _record_recovery(self) -> None:
        if self._outages:
            self._log.info("the %s continues: its store is back", self._name)
        self._outages = 0

    async def _stop_tasks(self) -> None:
        if self._tasks:
            await self._wait_for_first(self._stop_within_ms / 1000, asyncio.wait({*self._tasks}))
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await self._wait_for_first(self._stop_within_ms / 2000, asyncio.wait({*self._tasks}))
        for called in self._tasks.values():
            # Its lease is left to expire: releasing it would let another process do the same work concurrently.
            self._log.error("%s is still running although it was cancelled; %s", called, self._left_running)

    async def _wait_for_first(self, seconds: float, other: Awaitable[Any]) -> None:
        tasks = {asyncio.ensure_future(self._wait(seconds)), asyncio.ensure_future(other)}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
