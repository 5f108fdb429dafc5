"""Near reads on Redis and Valkey: client-side caching with invalidation by the server.

A connection of its own reads the keys (`CLIENT TRACKING`, opted in read by read). The server remembers what it read,
and sends an invalidation on the same connection when a key changes: so replies and invalidations arrive in order, and
are handled in order. A copy is used only while that connection lives, and while the server has answered a request that
was sent within the bound. So when anything goes wrong unnoticed, such as a network that swallows packets, the answers
stop, and the copies with them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Iterable
from typing import Any, Final

from keystead.errors import StoreError, StoreRefused
from keystead.stores.commands import Reply
from keystead.stores.near_reads import Copy, NearRead, NearReads, ReadNow
from keystead.stores.reconnecting_link import ConnectionLost
from keystead.stores.redis.redis_connection import RedisConnection, call, pack_command
from keystead.stores.redis.redis_link import Greet, Locate, dial
from keystead.stores.redis.redis_settings import RedisAddress, RedisSettings
from keystead.stores.redis.reply_errors import ReplyError, refusal

_CACHE_NEXT: Final = pack_command((b"CLIENT", b"CACHING", b"YES"))
_EARLY: Final = 0.5  # of the bound: then the server is asked again, before a read has to wait for it
_PAUSE_S: Final = 0.1  # before connecting again
_REFUSED_PAUSE_S: Final = 30.0  # the server does not let this user track keys


class RedisNearReads(NearReads):
    """The copies of what one server holds.

    run             reads without copies, while there is no connection for them
    keeps_missing   whether it is kept, too, that a key does not exist
    """

    def __init__(
        self, settings: RedisSettings, locate: Locate, greet: Greet, run: ReadNow, *, keeps_missing: bool = True
    ) -> None:
        super().__init__()
        self.keeps_missing = keeps_missing
        self._settings = settings
        self._locate = locate
        self._greet = greet
        self._run = run
        self._loop = asyncio.get_running_loop()
        self._time = self._loop.time
        self._connection: RedisConnection | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._connect_at = 0.0  # not before
        self._left = 0  # how often it was left
        self._filling: dict[bytes, set[_Fill]] = {}
        self._asked: asyncio.Future[list[Any]] | None = None  # whether the server still answers

    # --- the connection ------------------------------------------------------------------------------------

    @property
    def address(self) -> RedisAddress | None:
        """The server that the copies are of."""
        return None if self._connection is None else self._connection.address

    def leave(self, reason: str) -> None:
        """Drop the connection, also one that is being made, and all copies."""
        self._left += 1
        if self._connection is not None:
            self._connection.close(reason)

    async def close(self) -> None:
        self._connect_at = math.inf
        self.leave("the store was closed")
        if self._connecting is not None:
            self._connecting.cancel()
            await asyncio.wait({self._connecting})

    def _start_connecting(self) -> None:
        if (self._connecting is None or self._connecting.done()) and self._loop.time() >= self._connect_at:
            self._connecting = asyncio.create_task(self._connect())

    async def _connect(self) -> None:
        left = self._left
        try:
            connection = await dial(self._settings, await self._locate(), self._greet_and_track)
        except StoreError as error:
            pause_s = _REFUSED_PAUSE_S if isinstance(error, StoreRefused) else _PAUSE_S
            self._connect_at = max(self._connect_at, self._loop.time() + pause_s)
            return
        if left != self._left:
            connection.close("it may lead to another server than that of other reads")
            return
        connection.on_end = self._forget
        self._connection = connection
        if connection.lost is not None:
            self._forget(connection.lost)

    async def _greet_and_track(self, connection: RedisConnection) -> None:
        await self._greet(connection)
        connection.on_push = self._hear
        # From HELLO on, replies have the shapes of RESP3, in which invalidations come.
        for reply in await call(connection, (b"HELLO", b"3"), (b"CLIENT", b"TRACKING", b"ON", b"OPTIN")):
            if isinstance(reply, ReplyError):
                raise refusal(connection.address, reply)

    def _forget(self, reason: str) -> None:
        self._connection = None
        self.copies.clear()

    # --- reading -------------------------------------------------------------------------------------------

    def read(self, read: NearRead, bound_s: float) -> list[Reply] | Awaitable[list[Reply]]:
        copy, connection = read.copy, self._connection
        if copy is None or copy.copies is not self.copies:
            copy = self.copies.find(read)
        if copy is None or connection is None:
            return self._fill(read)
        now = self._time()
        if now >= copy.expires_at:
            return self._fill(read)
        copy.is_used = True
        age = now - connection.answered_at
        if age > bound_s * _EARLY:
            asked = self._ask(connection, now, copy.keys[0])
            if age > bound_s:
                return self._wait(asked, read, bound_s)
        self.hits += 1
        return copy.replies

    async def _wait(self, asked: asyncio.Future[list[Any]], read: NearRead, bound_s: float) -> list[Reply]:
        """Once the server has answered, all copies that it has not invalidated hold again."""
        try:
            async with asyncio.timeout(self._settings.timeout):
                await asyncio.shield(asked)
        except (ConnectionLost, TimeoutError):
            return await self._fill(read)
        copy, connection, now = self.copies.find(read), self._connection, self._loop.time()
        if copy is None or connection is None or now >= copy.expires_at or now - connection.answered_at > bound_s:
            return await self._fill(read)
        self.hits += 1
        return copy.replies

    def _ask(self, connection: RedisConnection, now: float, key: bytes) -> asyncio.Future[list[Any]]:
        """Ask whether the server still answers: about a key, since a node of a cluster that has lost its slots, or the
        others, would answer a PING."""
        if self._asked is None or self._asked.done():
            request = pack_command((b"EXISTS", key))
            self._asked = connection.send(request, 1, now, lambda replies: self._check(connection, replies[0]))
            self._asked.add_done_callback(_ignore_error)
        return self._asked

    def _check(self, connection: RedisConnection, reply: Any) -> None:
        if isinstance(reply, ReplyError):
            connection.close(f"{connection.address} cannot be asked: {reply}")

    async def _fill(self, read: NearRead) -> list[Reply]:
        self.misses += 1
        connection = self._connection
        if connection is None or connection.congested is not None:
            self._start_connecting()
            return await self._run(read.calls)
        fill = _Fill(self, read, connection, self._loop.time())
        for key in read.keys:
            self._filling.setdefault(key, set()).add(fill)
        try:
            await connection.send(fill.payload, fill.count, fill.sent_at, fill.accept)
        except ConnectionLost:
            pass
        finally:
            self._end_fill(fill)
        # Errors, such as a key of another kind, are the store's to explain.
        return await self._run(read.calls) if fill.replies is None else fill.replies

    def _end_fill(self, fill: _Fill) -> None:
        for key in fill.read.keys:
            fills = self._filling[key]
            fills.discard(fill)
            if not fills:
                del self._filling[key]

    def keep(self, fill: _Fill, replies: list[Reply], expires_at: float) -> None:
        if fill.is_current and fill.connection is self._connection:
            self.copies.add(Copy(fill.read, replies, expires_at))

    # --- dropping ------------------------------------------------------------------------------------------

    def drop(self, keys: Iterable[bytes]) -> None:
        """Drop copies of keys that have changed, and those under way, some of whose replies may be from before it."""
        for key in keys:
            for fill in self._filling.get(key, ()):
                fill.is_current = False
            self.copies.drop((key,))

    def drop_all(self) -> None:
        self.drop([*self._filling, *self.copies.keys])

    def _hear(self, pushed: list[Any]) -> None:
        if pushed and pushed[0] == b"invalidate":
            if pushed[1] is None:  # by FLUSHALL
                self.drop_all()
            else:
                self.drop(pushed[1])


class _Fill:
    """A read under way. The connection passes its replies to `accept`, before it parses what comes after them."""

    __slots__ = ("_near", "connection", "count", "is_current", "payload", "read", "replies", "sent_at")

    def __init__(self, near: RedisNearReads, read: NearRead, connection: RedisConnection, now: float) -> None:
        self._near = near
        self.read = read
        self.connection = connection
        self.sent_at = now
        self.is_current = True
        self.replies: list[Reply] | None = None
        calls, reads = read.with_lifetimes, len(read.calls)
        packed = [pack_command((one.spec.name, *one.args)) for one in calls]
        self.payload = b"".join([*(_CACHE_NEXT + one for one in packed[:reads]), *packed[reads:]])
        self.count = len(calls) + reads

    def accept(self, replies: list[Any]) -> None:
        if any(isinstance(reply, ReplyError) for reply in replies):
            return
        reads = len(self.read.calls)
        self.replies, expires_in_ms, exist = self.read.split([*replies[1 : 2 * reads : 2], *replies[2 * reads :]])
        if exist or self._near.keeps_missing:
            self._near.keep(self, self.replies, self.sent_at + expires_in_ms / 1000)


def _ignore_error(asked: asyncio.Future[list[Any]]) -> None:
    if not asked.cancelled():
        asked.exception()
