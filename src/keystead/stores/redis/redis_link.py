"""The link to a Redis server: its address, authentication, and errors."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable

from keystead.errors import StoreRefused, StoreUnavailable
from keystead.stores.multiplexed_connection import connecting
from keystead.stores.reconnecting_link import ReconnectingLink
from keystead.stores.redis.redis_connection import RedisConnection, call
from keystead.stores.redis.redis_settings import RedisAddress, RedisSettings
from keystead.stores.redis.reply_errors import ReplyError, refusal

Locate = Callable[[], Awaitable[RedisAddress]]
Greet = Callable[[RedisConnection], Awaitable[None]]


class RedisLink(ReconnectingLink[RedisConnection]):
    """`locate` returns the current address of the server; `greet` authenticates, or raises for an unusable server."""

    def __init__(self, settings: RedisSettings, locate: Locate, greet: Greet) -> None:
        super().__init__(settings.url, settings.connect_timeout)
        self._settings = settings
        self._locate = locate
        self._greet = greet

    async def wait_for_connection(self, deadline: float) -> RedisConnection:
        """A working connection whose send buffer has room. Raises StoreUnavailable before the deadline."""
        while True:
            connection = await super().wait_for_connection(deadline)
            writable = connection.congested
            if writable is None:
                return connection
            remaining = deadline - self._loop.time()
            if remaining > 0:
                await asyncio.wait({asyncio.ensure_future(asyncio.shield(writable))}, timeout=remaining)
            if connection.congested is writable:
                raise StoreUnavailable(f"{connection.address} accepted no data within {self._settings.timeout:g} s")

    def drop(self, connection: RedisConnection, reason: str) -> None:
        """Drop a connection to the wrong server, or to one that does not work."""
        connection.close(reason)

    async def _connect(self) -> RedisConnection:
        return await dial(self._settings, await self._locate(), self._greet)


async def dial(settings: RedisSettings, address: RedisAddress, greet: Greet) -> RedisConnection:
    """Connect and greet, within `connect_timeout`. Raises StoreUnavailable, StoreRefused or StoreReadOnly."""
    loop = asyncio.get_running_loop()
    connection = RedisConnection(loop, address, settings.timeout)
    async with connecting(connection, settings.connect_timeout):
        try:
            if address.path:
                await loop.create_unix_connection(lambda: connection, address.path)
            else:
                hostname = address.host if settings.tls else None
                await loop.create_connection(
                    lambda: connection, address.host, address.port, ssl=settings.tls, server_hostname=hostname
                )
        except ssl.SSLError as error:
            raise StoreRefused(
                f"no TLS connection to {address}: {error.reason or error}; check rediss://, ca and verify"
            ) from None
        await greet(connection)
    return connection


async def sign_in(connection: RedisConnection, user: str | None, password: str | None, database: int = 0) -> None:
    """Authenticate, select the database and PING: the first commands on every connection."""
    commands: list[tuple[str | bytes | int, ...]] = [("PING",)]
    if user is not None or password is not None:
        # AUTH also for a user without a password: otherwise the connection would act as the default user.
        commands.insert(0, ("AUTH", user or "default", password or ""))
    if database:
        commands.append(("SELECT", database))
    for reply in await call(connection, *commands):
        if isinstance(reply, ReplyError):
            raise refusal(connection.address, reply)
