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


class Rounds(Generic[T]):
    """A background loop: `async with` starts it, and the end of the block stops it.

    During a store outage it waits, and logs that once. Stopping waits `stop_within_ms` for the tasks in progress, then
    cancels them, which may take half as long. `wait` is for tests.

    name    its name in the log, as in `outbox`
    so_far  what becomes of a task that ignores its cancellation, for the log
    """

    def __init__(
        self,
        name: str,
        so_far: str,
        log: logging.Logger,
        stop_within_ms: int,
        wait: Callable[[float], Awaitable[Any]],
    ) -> None:
        self._name = name
        self._so_far = so_far
        self._log = log
        self._stop_within_ms = stop_within_ms
        self._wait = wait
        self._turns: dict[asyncio.Task[T], object] = {}  # the tasks in progress, with their names for the log
        self._woken = asyncio.Event()  # poll now instead of at the end of the pause
        self._away = 0  # store failures in a row
        self._looping: asyncio.Task[NoReturn] | None = None

    async def _round(self) -> float:
        """Start the work that is due. Returns the seconds until the next round."""
        raise NotImplementedError

    async def run(self) -> NoReturn:
        """Run rounds until cancelled; then stop as described above."""
        try:
            while True:
                self._woken.clear()
                await self._first_of(await self._round(), self._woken.wait())
        finally:
            await self._end_turns()

    async def __aenter__(self) -> Self:
        self._looping = asyncio.create_task(self.run(), name=f"keystead {self._name}")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._looping is not None:
            self._looping.cancel()
            await asyncio.wait({self._looping})
            if not self._looping.cancelled() and (ended := self._looping.exception()) is not None:
                self._log.error("the %s did not stop well", self._name, exc_info=ended)
            self._looping = None

    def _is_away(self, error: Exception) -> None:
        self._away += 1
        if self._away == 1:
            known = isinstance(error, KeysteadError)
            said = error if known else type(error).__name__
            self._log.warning("the %s waits for its store: %s", self._name, said, exc_info=None if known else error)

    def _is_back(self) -> None:
        if self._away:
            self._log.info("the %s goes on: its store is back", self._name)
        self._away = 0

    async def _end_turns(self) -> None:
        if self._turns:
            await self._first_of(self._stop_within_ms / 1000, asyncio.wait({*self._turns}))
        for task in self._turns:
            task.cancel()
        if self._turns:
            await self._first_of(self._stop_within_ms / 2000, asyncio.wait({*self._turns}))
        for called in self._turns.values():
            # Its lease is not released: the work would be done twice at once. It expires.
            self._log.error("%s goes on although it was cancelled; %s", called, self._so_far)

    async def _first_of(self, seconds: float, other: Awaitable[Any]) -> None:
        tasks = {asyncio.ensure_future(self._wait(seconds)), asyncio.ensure_future(other)}
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
