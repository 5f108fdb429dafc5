"""Messages between the processes that use one database.

Subscribers are rows with a lease, so that PUBLISH can count them. Delivery depends on the server: PostgreSQL notifies,
MySQL is polled.
"""

from __future__ import annotations

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

from keystead.errors import KeysteadError, StoreError, StoreUnavailable
from keystead.stores.database.cached_tables import CachedTables
from keystead.stores.database.database_sweep import MESSAGES_KEPT_MS
from keystead.stores.database.hashed_names import name_of
from keystead.stores.database.pooled_connection import Job
from keystead.stores.mailbox import Mailbox
from keystead.stores.sql import Interpreter
from keystead.stores.store_contract import Message

LEASE_MS = 30_000
RENEW_EVERY_S = 10.0

Write = Callable[[Job], Awaitable[Any]]


class DatabaseSubscriber:
    __slots__ = ("after", "channels", "leased_until", "mailbox", "name")

    def __init__(self, channels: dict[bytes, str]) -> None:
        self.name = secrets.token_hex(16)
        self.channels = channels
        self.mailbox = Mailbox()
        self.after = 0  # the last message before it subscribed, if messages are numbered
        self.leased_until = 0.0  # on the loop's clock


class DatabaseFeed(ABC):
    """`write` runs a job in a transaction and waits for its commit."""

    def __init__(self, write: Write) -> None:
        self._loop = asyncio.get_running_loop()
        self._write = write
        self._subscribers: set[DatabaseSubscriber] = set()
        self._renewal: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def subscribe(self, channels: tuple[str, ...]) -> AsyncIterator[Mailbox]:
        subscriber = DatabaseSubscriber({channel.encode(): channel for channel in channels})
        try:
            await self.listen(subscriber)
            subscriber.leased_until = self._loop.time() + LEASE_MS / 1000
            subscriber.after = await self._write(lambda interpreter: _sign_up(interpreter, subscriber))
            self._subscribers.add(subscriber)
            self.on_subscribed(subscriber)
            if self._renewal is None:
                self._renewal = self._loop.call_later(RENEW_EVERY_S, self._renew)
            yield subscriber.mailbox
        finally:
            self._subscribers.discard(subscriber)
            signing_off = asyncio.ensure_future(self._sign_off(subscriber))
            with suppress(KeysteadError):  # its lease will expire
                # Shielded: a caller that is cancelled here returns immediately, and is still unsubscribed.
                await asyncio.shield(signing_off)

    async def _sign_off(self, subscriber: DatabaseSubscriber) -> None:
        with suppress(KeysteadError):
            await self.on_unsubscribed(subscriber)
            await self._write(
                lambda interpreter: (
                    interpreter.tables.execute("DELETE FROM subscribers WHERE id = ?", (subscriber.name,)).rowcount
                )
            )

    def close(self, error: StoreUnavailable) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
        if self._renewing is not None:
            self._renewing.cancel()
        self.lose(error)

    def lose(self, error: StoreError) -> None:
        """End every subscription with this error."""
        for subscriber in self._subscribers:
            subscriber.mailbox.fail(error)
        self._subscribers.clear()

    def deliver(self, channel: bytes, data: bytes, number: int | None = None) -> None:
        for subscriber in self._subscribers:
            if channel in subscriber.channels and (number is None or number > subscriber.after):
                subscriber.mailbox.put(Message(subscriber.channels[channel], data))

    # --- leases --------------------------------------------------------------------------------------------

    def _renew(self) -> None:
        self._renewal = None
        now = self._loop.time()
        for subscriber in [s for s in self._subscribers if s.leased_until <= now]:
            self._subscribers.discard(subscriber)
            subscriber.mailbox.fail(_missed_error("this process or its store was suspended for a while"))
        if self._subscribers:
            if self._renewing is None or self._renewing.done():
                self._renewing = asyncio.ensure_future(self._renew_leases([*self._subscribers]))
            self._renewal = self._loop.call_later(RENEW_EVERY_S, self._renew)

    async def _renew_leases(self, subscribers: list[DatabaseSubscriber]) -> None:
        until = self._loop.time() + LEASE_MS / 1000
        with suppress(KeysteadError):  # a failed renewal shows as an expired lease
            held = await self._write(lambda interpreter: _renew(interpreter, subscribers))
            for subscriber in subscribers:
                # An expired lease is not renewed: messages may have been dropped since.
                subscriber.leased_until = until if subscriber.name in held else 0.0

    # --- server-specific -----------------------------------------------------------------------------------

    @abstractmethod
    async def listen(self, subscriber: DatabaseSubscriber) -> None:
        """Before it subscribes: from here on its messages arrive, or are stored."""

    @abstractmethod
    def on_subscribed(self, subscriber: DatabaseSubscriber) -> None:
        """After it has subscribed."""

    @abstractmethod
    async def on_unsubscribed(self, subscriber: DatabaseSubscriber) -> None:
        """After it has unsubscribed."""

    @abstractmethod
    def wake(self) -> None:
        """A message was committed by this process."""


def _sign_up(interpreter: Interpreter[CachedTables], subscriber: DatabaseSubscriber) -> int:
    tables = interpreter.tables
    for channel in subscriber.channels:
        tables.later(
            "INSERT INTO subscribers (id, channel, expires_at) VALUES (?, ?, ?)",
            (subscriber.name, name_of(channel), tables.wall_ms() + LEASE_MS),
        )
    last: int = tables.execute("SELECT coalesce(max(id), 0) FROM messages").fetchone()[0]
    return last


def _renew(interpreter: Interpreter[CachedTables], subscribers: list[DatabaseSubscriber]) -> set[str]:
    tables = interpreter.tables
    now_ms = tables.wall_ms()
    return {
        subscriber.name
        for subscriber in subscribers
        if tables.execute(
            "UPDATE subscribers SET expires_at = ? WHERE id = ? AND expires_at > ?",
            (now_ms + LEASE_MS, subscriber.name, now_ms),
        ).rowcount
        == len(subscriber.channels)
    }


def _missed_error(why: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"messages may have been missed, because {why}; subscribe again, and catch up from stored data"
    )


assert MESSAGES_KEPT_MS > LEASE_MS  # noqa: S101 - a message outlives the leases of its subscribers
