"""The link to one Memcached server: requests, authentication, and the limits of the server."""

from __future__ import annotations

import asyncio
import re

from keystead.errors import StoreRefused, StoreUnavailable
from keystead.stores.memcached.item_format import HEADER_BYTES
from keystead.stores.memcached.memcached_connection import MemcachedConnection, MetaReply
from keystead.stores.memcached.memcached_settings import MemcachedAddress, MemcachedSettings
from keystead.stores.multiplexed_connection import connecting
from keystead.stores.reconnecting_link import ConnectionLost, ReconnectingLink, unknown_write

OLDEST_VERSION = (1, 6, 10)  # the first with the current meta commands
ITEM_OVERHEAD_BYTES = 1_024  # of an item besides its value: header, key, flags and room for chunks


class MemcachedLink(ReconnectingLink[MemcachedConnection]):
    def __init__(self, settings: MemcachedSettings, address: MemcachedAddress) -> None:
        super().__init__(str(address), settings.connect_timeout)
        self.address = address
        self.value_max_bytes = 0  # known once the link is open
        self._settings = settings

    async def ask(self, requests: list[bytes], deadline: float, *, writes: bool) -> list[MetaReply]:
        """The reply to each request. After a lost connection, reads are retried, and writes only if unsent.

        Raises StoreUnavailable; its outcome is "unknown" if writes may have taken effect.
        """
        payload = b"".join(requests)
        while True:
            connection = await self.wait_for_connection(deadline)
            try:
                async with asyncio.timeout_at(deadline):
                    return await connection.request(payload, len(requests))
            except TimeoutError:
                reason = f"{self.address} did not answer in time"
                raise (unknown_write(reason) if writes else StoreUnavailable(reason)) from None
            except ConnectionLost as lost:
                if lost.sent and writes:
                    raise unknown_write(lost) from None
                if self._loop.time() >= deadline:
                    raise StoreUnavailable(str(lost)) from None

    async def _connect(self) -> MemcachedConnection:
        """Connect and greet, within `connect_timeout`. Raises StoreUnavailable or StoreRefused."""
        connection = MemcachedConnection(self._loop, self.address, self._settings.timeout)
        async with connecting(connection, self._settings.connect_timeout):
            await self._loop.create_connection(lambda: connection, self.address.host, self.address.port)
            try:
                await self._greet(connection)
            except (ValueError, IndexError):
                raise StoreRefused(f"{self.address} does not respond like Memcached; is it one?") from None
        return connection

    async def _greet(self, connection: MemcachedConnection) -> None:
        """Authenticate, and check that this Memcached has what a store needs."""
        settings, address = self._settings, self.address
        if settings.user is not None:
            secret = f"{settings.user} {settings.password or ''}".encode()
            [answer] = await connection.request(b"set keystead 0 0 %d\r\n%b\r\n" % (len(secret), secret))
            if answer.code != b"STORED":
                raise StoreRefused(f"{address} denies access; check user and password of the URL")
        [answer] = await connection.request(b"version\r\n")
        if answer.code == b"CLIENT_ERROR":
            raise StoreRefused(f"{address} needs a user and a password: write memcached://user:password@host:11211")
        version = tuple(map(int, re.findall(rb"\d+", answer.words[0])[:3])) if answer.words else ()
        if answer.code != b"VERSION" or version < OLDEST_VERSION:
            oldest = ".".join(map(str, OLDEST_VERSION))
            raise StoreRefused(f"{address} is not Memcached {oldest} or later, which Keystead needs")
        [answer] = await connection.request(b"stats settings\r\n")
        stated = dict(line.split(b" ", 2)[1:] for line in answer.lines)
        if stated.get(b"cas_enabled", b"yes") != b"yes":
            raise StoreRefused(f"{address} runs without compare-and-set; start it without -C")
        largest = int(stated.get(b"item_size_max", b"1048576"))
        self.value_max_bytes = max(largest - ITEM_OVERHEAD_BYTES - HEADER_BYTES, 0)
