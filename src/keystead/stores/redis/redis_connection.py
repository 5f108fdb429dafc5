"""A multiplexed connection to a Redis server, with back-pressure and pub/sub."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import hiredis

from keystead.stores.multiplexed_connection import Accept, MultiplexedConnection
from keystead.stores.reconnecting_link import ConnectionLost
from keystead.stores.redis.redis_settings import RedisAddress
from keystead.stores.redis.reply_errors import ReplyError

HIGH_WATER_BYTES = 1 << 20
# The number of callers per write, if many are ready in one turn: the server starts on these while the others are still
# being packed. With a single write the server would be idle until then, and this process after that.
TOGETHER = 16
SPARED_S = 0.005  # a deadline earlier than the timeout by less than this needs no separate timer

# hiredis states the type of a tuple with exactly one argument.
pack_command = cast("Callable[[tuple[str | bytes | int, ...]], bytes]", hiredis.pack_command)
_MISSING = object()


class RedisConnection(MultiplexedConnection[RedisAddress, Any]):
    def __init__(self, loop: asyncio.AbstractEventLoop, address: RedisAddress, timeout: float) -> None:
        super().__init__(loop, address, timeout)
        # Back-pressure: to be awaited before sending more, while the server does not keep up.
        self.congested: asyncio.Future[None] | None = None
        self.scripts: set[bytes] = set()  # digests of the scripts that were sent over this connection
        self.answered_at = 0.0  # when the latest request that was answered was sent, by the clock of the event loop
        self.on_push: Callable[[list[Any]], None] | None = None  # what the server sends unasked, in RESP3
        self.on_end: Callable[[str], None] | None = None
        self._reader = hiredis.Reader(replyError=ReplyError, notEnoughData=_MISSING)
        self._out_bytes = 0
        self._transport_is_full = False
        self._hear: Callable[[Any], None] | None = None
        self._lose: Callable[[str], None] | None = None

    # --- for callers ---------------------------------------------------------------------------------------

    def send(
        self, payload: bytes, count: int, now: float, accept: Accept[Any] | None = None
    ) -> asyncio.Future[list[Any]]:
        # As in the base class, inlined: the hottest path.
        future: asyncio.Future[list[Any]] = self._loop.create_future()
        if self.lost is not None:
            future.set_exception(ConnectionLost(self.lost, False))
            return future
        self._expected.append((future, count, now, accept))
        out = self._out
        if not out:
            self._loop.call_soon(self._flush)
        out.append(payload)
        self._out_bytes += len(payload)
        if self._out_bytes > HIGH_WATER_BYTES and self.congested is None:
            # Many large values in one turn: later calls wait, or all of them would be copied into one write.
            self.congested = self._loop.create_future()
        if self._timer is None:
            self._timer = self._loop.call_at(now + self._timeout, self._check_timeout)
        if len(out) >= TOGETHER:
            self._flush()
        return future

    async def send_until(self, deadline: float, payload: bytes, count: int) -> list[Any]:
        """`send` with a deadline, for a caller that has used some of its time already.

        After a timeout the caller keeps its place in the queue, and the others their connection.
        """
        now = self._loop.time()
        if now >= deadline:
            raise ConnectionLost(f"the deadline passed before {self.address} was asked", False)
        if deadline - now > self._timeout - SPARED_S:
            return await self.send(payload, count, now)  # the timer of the connection suffices
        try:
            async with asyncio.timeout_at(deadline):
                return await self.send(payload, count, now)
        except TimeoutError:
            raise ConnectionLost(f"{self.address} did not answer in time", True) from None

    def is_silent(self, for_s: float) -> bool:
        """Whether a caller has waited for a reply for longer than this."""
        return bool(self._expected) and self._loop.time() - self._expected[0][2] > for_s

    # --- for a subscription, which has the connection to itself ---------------------------------------------

    def listen(self, hear: Callable[[Any], None], lose: Callable[[str], None]) -> None:
        """From now on, pass everything received to `hear`, and the end of the connection to `lose`."""
        self._hear, self._lose = hear, lose
        if self.lost is not None:
            lose(self.lost)

    def push(self, payload: bytes) -> None:
        """Send without expecting a reply in the queue."""
        if self.lost is None and self._transport is not None:
            self._transport.write(payload)

    # --- for the event loop --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        cast("asyncio.Transport", transport).set_write_buffer_limits(high=HIGH_WATER_BYTES)

    def pause_writing(self) -> None:
        self._transport_is_full = True
        if self.congested is None:
            self.congested = self._loop.create_future()

    def resume_writing(self) -> None:
        self._transport_is_full = False
        if self.congested is not None:
            self.congested.set_result(None)
            self.congested = None

    def data_received(self, data: bytes) -> None:
        next_reply, queue, replies = self._reader.gets, self._expected, self._replies
        try:
            self._reader.feed(data)
            if self._hear is not None:
                while (heard := next_reply()) is not _MISSING:
                    self._hear(heard)
                return
            on_push = self.on_push
            while (reply := next_reply()) is not _MISSING:
                if on_push is not None and type(reply) is hiredis.PushNotification:
                    on_push(reply)
                    continue
                replies.append(reply)
                if len(replies) == queue[0][1]:
                    future, _, self.answered_at, accept = queue.popleft()
                    if accept is not None:
                        accept(replies)
                    if not future.done():
                        future.set_result(replies)
                    self._replies = replies = []
        except (hiredis.ProtocolError, IndexError):
            self.close(f"{self.address} does not speak the Redis protocol; is it a Redis server?")

    def _flush(self) -> None:
        super()._flush()
        self._out_bytes = 0
        if self.congested is not None and not self._transport_is_full:
            self.resume_writing()

    def _end(self, reason: str) -> None:
        if self.lost is not None:
            return
        super()._end(reason)
        self.resume_writing()
        if self._lose is not None:
            self._lose(reason)
        if self.on_end is not None:
            self.on_end(reason)


async def call(connection: RedisConnection, *commands: tuple[str | bytes | int, ...]) -> list[Any]:
    """Run commands of the store itself, which need not be in the table."""
    now = asyncio.get_running_loop().time()
    return await connection.send(b"".join(map(pack_command, commands)), len(commands), now)
