"""Messages on MySQL and MariaDB, which have no notifications: the table is polled while there are subscribers."""

from __future__ import annotations

import asyncio

from keystead.errors import KeysteadError, StoreUnavailable
from keystead.stores.database.cached_tables import CachedTables
from keystead.stores.database.database_feed import DatabaseFeed, DatabaseSubscriber, Write
from keystead.stores.sql import Interpreter

POLL_S = 0.025
PAGE = 1_000


class MysqlFeed(DatabaseFeed):
    """`read` runs a job in a snapshot."""

    def __init__(self, write: Write, read: Write) -> None:
        super().__init__(write)
        self._read = read
        self._last = 0
        self._polling: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()

    async def listen(self, subscriber: DatabaseSubscriber) -> None:
        """Nothing to do: messages are stored for it once it has subscribed."""

    def on_subscribed(self, subscriber: DatabaseSubscriber) -> None:
        if self._polling is None or self._polling.done():
            self._last = subscriber.after
            self._polling = asyncio.ensure_future(self._poll())

    async def on_unsubscribed(self, subscriber: DatabaseSubscriber) -> None:
        """Nothing to do: the poller stops on its own."""

    def wake(self) -> None:
        self._woken.set()

    def close(self, error: StoreUnavailable) -> None:
        super().close(error)
        if self._polling is not None:
            self._polling.cancel()

    async def _poll(self) -> None:
        while self._subscribers:
            try:
                rows = await self._read(self._page)
            except KeysteadError:
                rows = []  # messages stay stored; an expired lease ends the subscription
            for number, channel, data in rows:
                self._last = number
                self.deliver(channel, data, number)
            if len(rows) < PAGE:
                try:
                    async with asyncio.timeout(POLL_S):
                        await self._woken.wait()
                except TimeoutError:
                    pass
                self._woken.clear()

    def _page(self, interpreter: Interpreter[CachedTables]) -> list[tuple[int, bytes, bytes]]:
        return interpreter.tables.execute(
            "SELECT id, channel, data FROM messages WHERE id > ? ORDER BY id LIMIT ?", (self._last, PAGE)
        ).fetchall()
