"""A connection to one server that is made again when it is lost.

While there is none, calls wait for one, but no longer than `connect_timeout` from the moment it was lost: after that
they fail at once, so that a server that is down does not hold up everything in front of it. Meanwhile the link goes
on trying by itself.
"""

from __future__ import annotations

import asyncio
import random
import re
import socket

from keystead.errors import StoreClosed, StoreError, StoreRefused, StoreUnavailable
from keystead.stores.memcached.item_format import HEADER_BYTES
from keystead.stores.memcached.memcached_connection import MemcachedConnection, MemcachedConnectionLost, MetaReply
from keystead.stores.memcached.memcached_settings import MemcachedAddress, MemcachedSettings

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.02, 0.4
OLDEST_VERSION = (1, 6, 10)  # which has the meta commands as they are now
ITEM_OVERHEAD_BYTES = 1_024  # what an item has beside its value: its head, key, flags and room for chunks


class MemcachedLink:
    def __init__(self, settings: MemcachedSettings, address: MemcachedAddress) -> None:
        self.address = address
        self.value_max_bytes = 0  # known once it was open
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._connection: MemcachedConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._lost_at = 0.0
        self._reason: StoreError | None = None
        self._closed = False

    async def open(self) -> None:
        """Connect once; raises what is wrong."""
        self._connection = await self._attempt()

    async def close(self) -> None:
        self._closed = True
        if self._connection is not None:
            self._connection.close("the store was closed")
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait({self._connecting})

    async def ask(self, requests: list[bytes], deadline: float, *, writes: bool) -> list[MetaReply]:
        """The answer to each request. Reads are asked again where the connection was lost, writes only if unsent.

        Raises StoreUnavailable; its outcome is "unknown" where writes may have taken effect.
        """
        payload = b"".join(requests)
        while True:
            connection = await self._connected(deadline)
            try:
                async with asyncio.timeout_at(deadline):
                    return await connection.send(payload, len(requests))
            except TimeoutError:
                raise _lost(f"{self.address} did not answer in time", unknown=writes) from None
            except MemcachedConnectionLost as lost:
                if lost.sent and writes:
                    raise _lost(str(lost), unknown=True) from None
                if self._loop.time() >= deadline:
                    raise _lost(str(lost), unknown=False) from None

    async def _connected(self, deadline: float) -> MemcachedConnection:
        while True:
            if self._closed:
                raise StoreClosed("the store is closed")
            if self._connection is not None and self._connection.lost is None:
                return self._connection
            if self._connecting is None or self._connecting.done():
                self._lost_at = self._loop.time()
                self._reason = None
                self._connecting = asyncio.create_task(self._reconnect())
            remaining = min(deadline, self._lost_at + self._settings.connect_timeout) - self._loop.time()
            if remaining > 0:
                await asyncio.wait({self._connecting}, timeout=remaining)
            if not self._connecting.done():
                raise StoreUnavailable(str(self._reason or f"no connection to {self.address}"))

    async def _reconnect(self) -> None:
        pause = FIRST_PAUSE_S
        while True:
            try:
                self._connection = await self._attempt()
                return
            except StoreError as error:
                self._reason = error
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))  # noqa: S311 - spreads clients apart, guards nothing
            pause = min(pause * 1.5, LONGEST_PAUSE_S)

    async def _attempt(self) -> MemcachedConnection:
        """Connect and greet, within `connect_timeout`. Raises StoreUnavailable or StoreRefused."""
        address, within = self.address, self._settings.connect_timeout
        connection = MemcachedConnection(self._loop, address, self._settings.timeout)
        try:
            async with asyncio.timeout(within):
                transport, _ = await self._loop.create_connection(lambda: connection, address.host, address.port)
                transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                await self._greet(connection)
        except TimeoutError:
            connection.close("it did not answer")
            raise StoreUnavailable(f"{address} did not answer within {within:g} s") from None
        except (OSError, MemcachedConnectionLost, UnicodeError) as error:  # UnicodeError: no host can have this name
            connection.close("it failed")
            raise StoreUnavailable(f"cannot reach {address}: {error}; is the server running there?") from None
        except (ValueError, IndexError):
            connection.close("it is no Memcached")
            raise StoreRefused(f"{address} answers as no Memcached does; is it one?") from None
        except BaseException:
            connection.close("it is of no use")
            raise
        return connection

    async def _greet(self, connection: MemcachedConnection) -> None:
        """Sign in, and see that this is a Memcached that can do what a store needs."""
        settings, address = self._settings, self.address
        if settings.user is not None:
            secret = f"{settings.user} {settings.password or ''}".encode()
            [answer] = await connection.send(b"set keystead 0 0 %d\r\n%b\r\n" % (len(secret), secret), 1)
            if answer.code != b"STORED":
                raise StoreRefused(f"{address} does not let this user in; check the user and the password of the URL")
        [answer] = await connection.send(b"version\r\n", 1)
        if answer.code == b"CLIENT_ERROR":
            raise StoreRefused(f"{address} asks for a user and a password: write memcached://user:password@host:11211")
        version = tuple(map(int, re.findall(rb"\d+", answer.words[0])[:3])) if answer.words else ()
        if answer.code != b"VERSION" or version < OLDEST_VERSION:
            oldest = ".".join(map(str, OLDEST_VERSION))
            raise StoreRefused(f"{address} is no Memcached {oldest} or later, which Keystead needs")
        [answer] = await connection.send(b"stats settings\r\n", 1)
        said = dict(line.split(b" ", 2)[1:] for line in answer.lines)
        if said.get(b"cas_enabled", b"yes") != b"yes":
            raise StoreRefused(f"{address} runs without compare-and-set; start it without -C")
        largest = int(said.get(b"item_size_max", b"1048576"))
        self.value_max_bytes = max(largest - ITEM_OVERHEAD_BYTES - HEADER_BYTES, 0)


def _lost(sentence: str, *, unknown: bool) -> StoreUnavailable:
    if unknown:
        return StoreUnavailable(f"{sentence}; what was being written may or may not have been", "unknown")
    return StoreUnavailable(sentence)
