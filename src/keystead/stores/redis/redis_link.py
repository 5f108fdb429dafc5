"""A connection that is made again when it is lost.

While there is none, calls wait for one, but no longer than `connect_timeout` from the moment it was lost: after that
they fail at once, so that a store that is down does not hold up everything in front of it. Meanwhile the link
goes on trying by itself, and works again as soon as the server does.
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
from collections.abc import Awaitable, Callable

from keystead.errors import StoreClosed, StoreError, StoreReadOnly, StoreRefused, StoreUnavailable
from keystead.stores.redis.redis_connection import RedisConnection, RedisConnectionLost, ReplyError, call
from keystead.stores.redis.redis_settings import RedisAddress, RedisSettings

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.4

Locate = Callable[[], Awaitable[RedisAddress]]
Greet = Callable[[RedisConnection], Awaitable[None]]


class RedisLink:
    """`locate` says where the server is now; `greet` makes sure that it is one we can use."""

    def __init__(self, settings: RedisSettings, locate: Locate, greet: Greet) -> None:
        self.connection: RedisConnection | None = None
        self._settings = settings
        self._locate = locate
        self._greet = greet
        self._loop = asyncio.get_running_loop()
        self._connecting: asyncio.Task[None] | None = None
        self._lost_at = 0.0
        self._reason: StoreError | None = None
        self._closed = False

    async def open(self) -> None:
        """Connect once; raises what is wrong."""
        self.connection = await self._attempt()

    def stop(self) -> None:
        """Let go of everything, at once: whoever is cancelled while closing has closed."""
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self.connection is not None:
            self.connection.close("the store was closed")

    async def close(self) -> None:
        self.stop()
        if self._connecting is not None:
            await asyncio.wait({self._connecting})

    async def connected(self, deadline: float) -> RedisConnection:
        """A working connection that takes more to send, or StoreUnavailable before the deadline."""
        while True:
            if self._closed:
                raise StoreClosed("the store is closed")
            connection = self.connection
            if connection is not None and connection.lost is None:
                writable = connection.congested
                if writable is None:
                    return connection
                await self._until({asyncio.ensure_future(asyncio.shield(writable))}, deadline)
                if connection.congested is writable:
                    raise StoreUnavailable(
                        f"{connection.address} takes nothing more within {self._settings.timeout:g} s"
                    )
                continue
            if self._connecting is None or self._connecting.done():
                self._lost_at = self._loop.time()
                self._reason = None
                self._connecting = asyncio.create_task(self._reconnect())
            await self._until({self._connecting}, min(deadline, self._lost_at + self._settings.connect_timeout))
            if not self._connecting.done():
                raise StoreUnavailable(str(self._reason or f"no connection to {self._settings.url}"))

    def drop(self, connection: RedisConnection, reason: str) -> None:
        """This connection leads to the wrong server, or to none that works."""
        connection.close(reason)

    async def _until(self, tasks: set[asyncio.Task[None]] | set[asyncio.Future[None]], when: float) -> None:
        remaining = when - self._loop.time()
        if remaining > 0:
            await asyncio.wait(tasks, timeout=remaining)

    async def _reconnect(self) -> None:
        pause = FIRST_PAUSE_S
        while True:
            try:
                self.connection = await self._attempt()
                return
            except StoreError as error:
                self._reason = error
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311 - spreads clients apart, guards nothing
            pause = min(pause * 1.5, LONGEST_PAUSE_S)

    async def _attempt(self) -> RedisConnection:
        return await dial(self._settings, await self._locate(), self._greet)


async def dial(settings: RedisSettings, address: RedisAddress, greet: Greet) -> RedisConnection:
    """Connect and greet, within `connect_timeout`. Raises StoreUnavailable, StoreRefused or StoreReadOnly."""
    loop = asyncio.get_running_loop()
    connection = RedisConnection(loop, address, settings.timeout)
    try:
        async with asyncio.timeout(settings.connect_timeout):
            if address.path:
                await loop.create_unix_connection(lambda: connection, address.path)
            else:
                transport, _ = await loop.create_connection(
                    lambda: connection,
                    address.host,
                    address.port,
                    ssl=settings.tls,
                    server_hostname=address.host if settings.tls else None,
                )
                sock = transport.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            await greet(connection)
    except TimeoutError:
        connection.close("it did not answer")
        raise StoreUnavailable(f"{address} did not answer within {settings.connect_timeout:g} s") from None
    except ssl.SSLError as error:
        connection.close("no TLS")
        raise StoreRefused(
            f"no TLS connection to {address}: {error.reason or error}; check rediss://, ca and verify"
        ) from None
    except (OSError, RedisConnectionLost, UnicodeError) as error:  # UnicodeError: no host can have this name
        connection.close("it failed")
        raise StoreUnavailable(f"cannot reach {address}: {error}; is the server running there?") from None
    except BaseException:
        connection.close("it was refused")
        raise
    return connection


async def sign_in(connection: RedisConnection, user: str | None, password: str | None, database: int = 0) -> None:
    """The first words on every connection."""
    commands: list[tuple[str | bytes | int, ...]] = [("PING",)]
    if user is not None or password is not None:
        # A user without a password is asked for, too: without AUTH this would go on as another one, the default.
        commands.insert(0, ("AUTH", user or "default", password or ""))
    if database:
        commands.append(("SELECT", database))
    for reply in await call(connection, *commands):
        if isinstance(reply, ReplyError):
            raise refusal(connection.address, reply)


def refusal(address: RedisAddress, error: ReplyError) -> StoreError:
    text = str(error)
    word = text.partition(" ")[0]
    if word in (
        "LOADING",
        "MASTERDOWN",
        "BUSY",
        "MISCONF",
        "NOREPLICAS",
        "CLUSTERDOWN",
        "TRYAGAIN",
        "UNKILLABLE",
    ):
        return StoreUnavailable(f"{address} cannot serve now: {text}")
    if word == "READONLY":
        return StoreReadOnly(
            f"{address} is a replica, which cannot be written; give the address of its master, or redis+sentinel://"
        )
    if word in ("WRONGPASS", "NOAUTH"):
        return StoreRefused(f"{address} does not let this user in; check user and password of the URL")
    if word == "NOPERM":
        return StoreRefused(f"{address} does not let this user do that: {text}")
    return StoreRefused(f"{address} refused: {text}")
