"""A link to one server that reconnects when its connection is lost.

Without a connection, calls wait for one, but no longer than `connect_timeout` after it was lost. After that they fail
immediately, so that a server that is down does not block its callers. The link keeps trying in the background, with
back-off, and works again as soon as the server does.
"""

from __future__ import annotations

import asyncio
import random
from abc import ABC, abstractmethod
from typing import Generic, Protocol, TypeVar

from keystead.errors import StoreClosed, StoreError, StoreUnavailable

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.4


class ConnectionLost(Exception):
    """The connection was lost before the reply. `sent`: whether the request may have reached the server."""

    def __init__(self, reason: str, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


def unknown_write(reason: object) -> StoreUnavailable:
    """The error of a write whose reply was lost."""
    return StoreUnavailable(f"{reason}; the write may or may not have taken effect", "unknown")


class Connection(Protocol):
    lost: str | None  # the reason, once it is lost

    def close(self, reason: str) -> None:
        """Drop it; callers that wait for a reply get ConnectionLost."""


C = TypeVar("C", bound=Connection)


class ReconnectingLink(ABC, Generic[C]):
    """`name` is the name of the server in errors."""

    def __init__(self, name: str, connect_timeout: float) -> None:
        self.connection: C | None = None
        self._name = name
        self._connect_timeout = connect_timeout
        self._loop = asyncio.get_running_loop()
        self._connecting: asyncio.Task[None] | None = None
        self._lost_at = 0.0
        self._reason: StoreError | None = None
        self._closed = False

    @abstractmethod
    async def _connect(self) -> C:
        """Connect, and make sure that the server is usable, within `connect_timeout`. Raises StoreError."""

    async def open(self) -> None:
        """Connect once. Raises StoreError."""
        self.connection = await self._connect()

    def stop(self) -> None:
        """Drop the connection and stop reconnecting, without waiting: a cancelled `close` has closed, too."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self.connection is not None:
            self.connection.close("the store was closed")

    async def close(self) -> None:
        self.stop()
        if self._connecting is not None:
            await asyncio.wait({self._connecting})

    async def wait_for_connection(self, deadline: float) -> C:
        """A working connection. Raises StoreUnavailable before the deadline, or StoreClosed."""
        while True:
            if self._closed:
                raise StoreClosed("the store is closed")
            connection = self.connection
            if connection is not None and connection.lost is None:
                return connection
            if self._connecting is None or self._connecting.done():
                self._lost_at = self._loop.time()
                self._reason = None
                self._connecting = asyncio.create_task(self._reconnect())
            remaining = min(deadline, self._lost_at + self._connect_timeout) - self._loop.time()
            if remaining > 0:
                await asyncio.wait({self._connecting}, timeout=remaining)
            else:  # a caller that retries in a loop must not keep the event loop from connecting
                await asyncio.sleep(0)
            if not self._connecting.done():
                raise StoreUnavailable(str(self._reason or f"no connection to {self._name}"))

    async def _reconnect(self) -> None:
        pause = FIRST_PAUSE_S
        while True:
            try:
                self.connection = await self._connect()
                return
            except StoreError as error:
                self._reason = error
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311 - jitter, not security
            pause = min(pause * 1.5, LONGEST_PAUSE_S)
