"""Messages between the processes that use one file.

Subscribers are rows with a lease; a message is stored only if there are subscribers. Publishers in this process wake
the feed; those of other processes are detected by polling SQLite's `data_version`, which costs microseconds. There is
no polling without subscribers.
"""

from __future__ import annotations

import asyncio
import secrets
import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from keystead.errors import KeysteadError, StoreUnavailable
from keystead.stores.mailbox import Mailbox
from keystead.stores.sqlite.sqlite_sweep import MESSAGES_KEPT_MS
from keystead.stores.sqlite.sqlite_tables import SqliteTables
from keystead.stores.store_contract import Message

POLL_S = 0.01
LEASE_MS = 30_000
RENEW_EVERY_MS = 10_000


class SqliteSubscriber:
    __slots__ = ("after", "channels", "leased_until_ms", "mailbox", "name")

    def __init__(self, channels: dict[bytes, str]) -> None:
        self.name = secrets.token_hex(16)
        self.channels = channels
        self.mailbox = Mailbox()
        self.after = 0
        self.leased_until_ms = 0


class SqliteFeed:
    """`write` runs work in a write transaction and waits for its commit; `reader` sees committed data."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        reader: SqliteTables,
        writer: SqliteTables,
        write: Callable[[Callable[[], object]], asyncio.Future[object]],
        *,
        shared: bool,
    ) -> None:
        self._loop = loop
        self._reader = reader
        self._writer = writer
        self._write = write
        self._shared = shared  # whether other processes may publish
        self._subscribers: set[SqliteSubscriber] = set()
        self._last = 0
        self._version = -1
        self._timer: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Future[object] | None = None

    @asynccontextmanager
    async def subscribe(self, channels: tuple[str, ...]) -> AsyncIterator[Mailbox]:
        subscriber = SqliteSubscriber({channel.encode(): channel for channel in channels})
        try:
            await self._write(lambda: self._sign_up(subscriber))
            if not self._subscribers:
                self._last = subscriber.after
            self._subscribers.add(subscriber)
            self._schedule_poll()
            yield subscriber.mailbox
        finally:
            self._subscribers.discard(subscriber)
            signed_off = self._write(lambda: self._sign_off(subscriber))
            signed_off.add_done_callback(_ignore_failure)
            with suppress(KeysteadError):  # its lease expires
                # Shielded: a caller that is cancelled here returns immediately, and is still unsubscribed.
                await asyncio.shield(signed_off)

    def wake(self) -> None:
        """A message was committed by this process."""
        if self._subscribers:
            self._version = -1
            self._loop.call_soon(self._poll)

    def close(self, error: StoreUnavailable) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for subscriber in self._subscribers:
            subscriber.mailbox.fail(error)
        self._subscribers.clear()

    # --- inside a write transaction ------------------------------------------------------------------------

    def _sign_up(self, subscriber: SqliteSubscriber) -> None:
        subscriber.leased_until_ms = self._writer.wall_ms() + LEASE_MS
        for channel in subscriber.channels:
            self._writer.execute(
                "INSERT INTO subscribers (id, channel, expires_at) VALUES (?, ?, ?)",
                (subscriber.name, channel, subscriber.leased_until_ms),
            )
        subscriber.after = self._writer.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()[0]

    def _sign_off(self, subscriber: SqliteSubscriber) -> None:
        self._writer.execute("DELETE FROM subscribers WHERE id = ?", (subscriber.name,))

    def _renew(self, subscribers: list[SqliteSubscriber]) -> None:
        now_ms = self._writer.wall_ms()
        for subscriber in subscribers:
            held = self._writer.execute(
                "UPDATE subscribers SET expires_at = ? WHERE id = ? AND expires_at > ?",
                (now_ms + LEASE_MS, subscriber.name, now_ms),
            ).rowcount
            # A lease that expired while its renewal waited is not renewed: messages may have been dropped since.
            subscriber.leased_until_ms = now_ms + LEASE_MS if held == len(subscriber.channels) else 0

    # --- polling -------------------------------------------------------------------------------------------

    def _schedule_poll(self) -> None:
        if self._timer is None and self._subscribers:
            self._timer = self._loop.call_later(POLL_S if self._shared else RENEW_EVERY_MS / 4_000, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._keep_leases()
        self._poll()
        self._schedule_poll()

    def _keep_leases(self) -> None:
        now_ms = self._reader.wall_ms()
        for subscriber in [s for s in self._subscribers if s.leased_until_ms <= now_ms]:
            # This process was suspended for longer than its lease: messages may have been dropped since.
            self._lose(subscriber, "this process did not run for a while")
        due = [s for s in self._subscribers if s.leased_until_ms - now_ms < LEASE_MS - RENEW_EVERY_MS]
        if due and (self._renewing is None or self._renewing.done()):
            self._renewing = self._write(lambda: self._renew(due))
            self._renewing.add_done_callback(_ignore_failure)  # a failed renewal shows as an expired lease

    def _poll(self) -> None:
        if not self._subscribers:
            return
        try:
            [version] = self._reader.execute("PRAGMA data_version").fetchone()
            if version == self._version:
                return
            rows = self._reader.execute(
                "SELECT id, channel, data FROM messages WHERE id > ? ORDER BY id LIMIT 1000", (self._last,)
            ).fetchall()
        except sqlite3.Error:
            return  # the next poll retries
        self._version = version if len(rows) < 1000 else -1
        for number, channel, data in rows:
            self._last = number
            for subscriber in self._subscribers:
                if channel in subscriber.channels and number > subscriber.after:
                    subscriber.mailbox.put(Message(subscriber.channels[channel], data))
        if len(rows) == 1000:
            self._loop.call_soon(self._poll)

    def _lose(self, subscriber: SqliteSubscriber, why: str) -> None:
        self._subscribers.discard(subscriber)
        subscriber.mailbox.fail(
            StoreUnavailable(
                f"messages may have been missed, because {why}; subscribe again, and catch up from stored data"
            )
        )


def _ignore_failure(future: asyncio.Future[object]) -> None:
    """Avoids asyncio's "never retrieved" warning for work whose failure shows in another way."""
    if not future.cancelled():
        future.exception()


assert MESSAGES_KEPT_MS > LEASE_MS  # noqa: S101 - a message outlives the leases of its subscribers
