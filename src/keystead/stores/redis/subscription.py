"""Pub/sub on a Redis server, over a dedicated connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from keystead.errors import StoreUnavailable
from keystead.stores.mailbox import Mailbox
from keystead.stores.redis.redis_connection import RedisConnection, pack_command
from keystead.stores.redis.redis_link import dial, sign_in
from keystead.stores.redis.redis_settings import RedisAddress, RedisSettings
from keystead.stores.redis.reply_errors import ReplyError, refusal
from keystead.stores.store_contract import Message

_PING = pack_command((b"PING",))


@asynccontextmanager
async def subscription(
    settings: RedisSettings, address: RedisAddress, channels: tuple[str, ...], listeners: set[Listener]
) -> AsyncIterator[Mailbox]:
    """Subscribe. If the connection is lost, the mailbox fails: messages may have been missed.

    The listener is in `listeners` meanwhile, so that its store can stop it.
    """
    mailbox = Mailbox()

    async def greet(connection: RedisConnection) -> None:
        await sign_in(connection, settings.user, settings.password)

    connection = await dial(settings, address, greet)
    listener = Listener(connection, mailbox, len(channels), settings.timeout)
    listeners.add(listener)
    try:
        await listener.subscribe(channels)
        yield mailbox
    finally:
        listeners.discard(listener)
        listener.stop("the subscription ended")


class Listener:
    """Takes over a connection: it carries only messages, and replies to pings, which show that it is alive."""

    def __init__(self, connection: RedisConnection, mailbox: Mailbox, channels: int, timeout: float) -> None:
        self._connection = connection
        self._mailbox = mailbox
        self._awaited = channels
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._subscribed: asyncio.Future[None] = self._loop.create_future()
        self._heard_at = self._loop.time()
        self._timer = self._loop.call_later(timeout / 2, self._ping)

    async def subscribe(self, channels: tuple[str, ...]) -> None:
        self._connection.listen(self._hear, self._lose)
        self._connection.push(pack_command(("SUBSCRIBE", *channels)))
        try:
            async with asyncio.timeout(self._timeout):
                await self._subscribed
        except TimeoutError:
            raise StoreUnavailable(f"{self._connection.address} did not answer within {self._timeout:g} s") from None

    def stop(self, reason: str) -> None:
        """Readers get an error with this reason."""
        self._timer.cancel()
        self._connection.close(reason)

    def _hear(self, reply: Any) -> None:
        self._heard_at = self._loop.time()
        if isinstance(reply, ReplyError):
            if not self._subscribed.done():
                self._subscribed.set_exception(refusal(self._connection.address, reply))
        elif reply[0] == b"message":
            self._mailbox.put(Message(reply[1].decode("utf-8", "surrogateescape"), reply[2]))
        elif reply[0] == b"subscribe":
            self._awaited -= 1
            if self._awaited == 0 and not self._subscribed.done():
                self._subscribed.set_result(None)

    def _ping(self) -> None:
        if self._loop.time() - self._heard_at > self._timeout:
            self._connection.close(f"{self._connection.address} did not answer within {self._timeout:g} s")
            return
        self._connection.push(_PING)
        self._timer = self._loop.call_later(self._timeout / 2, self._ping)

    def _lose(self, reason: str) -> None:
        error = StoreUnavailable(
            f"messages may have been missed: {reason}; subscribe again, and catch up from stored data"
        )
        if not self._subscribed.done():
            self._subscribed.set_exception(error)
        self._mailbox.fail(error)
