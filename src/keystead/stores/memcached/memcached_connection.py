"""One multiplexed connection for many callers, with Memcached's meta protocol.

Every request has exactly one reply, and replies arrive in the order of the requests, so a reply belongs to the first
caller in the queue. A cancelled caller keeps its place, and its reply is discarded there.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass
from typing import NamedTuple, cast

from keystead.stores.memcached.memcached_settings import MemcachedAddress
from keystead.stores.reconnecting_link import ConnectionLost


class MetaReply(NamedTuple):
    """`code`: VA (a value), HD (done), EN or NF (not found), NS (not stored), EX (lost the race), or an error."""

    code: bytes
    words: list[bytes]  # after the code
    data: bytes = b""
    lines: tuple[bytes, ...] = ()  # of `stats`

    def number(self, letter: bytes) -> int:
        """The number behind this letter, as in `c42`."""
        return next(int(word[1:]) for word in self.words if word[:1] == letter)


@dataclass(frozen=True, slots=True)
class _Expected:
    future: asyncio.Future[list[MetaReply]]
    count: int
    since: float


class MemcachedConnection(asyncio.Protocol):
    def __init__(self, loop: asyncio.AbstractEventLoop, address: MemcachedAddress, timeout: float) -> None:
        self.address = address
        self.lost: str | None = None  # the reason, once it is lost
        self._loop = loop
        self._timeout = timeout
        self._expected: deque[_Expected] = deque()
        self._answers: list[MetaReply] = []  # of the first caller in the queue, so far
        self._received = bytearray()
        self._lines: list[bytes] = []
        self._head: tuple[list[bytes], int] | None = None  # of a value that has not arrived completely
        self._out: list[bytes] = []  # payloads of the last callers in the queue, not sent yet
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    # --- for callers ---------------------------------------------------------------------------------------

    def send(self, payload: bytes, count: int) -> asyncio.Future[list[MetaReply]]:
        """Send requests; the future gets as many replies, or ConnectionLost."""
        future: asyncio.Future[list[MetaReply]] = self._loop.create_future()
        if self.lost is not None:
            future.set_exception(ConnectionLost(self.lost, False))
            return future
        now = self._loop.time()
        self._expected.append(_Expected(future, count, now))
        if not self._out:
            # One turn later, so that all tasks that are ready now share one write and one round trip.
            self._loop.call_soon(self._flush)
        self._out.append(payload)
        if self._timer is None:
            self._timer = self._loop.call_at(now + self._timeout, self._overdue)
        return future

    def close(self, reason: str) -> None:
        """Drop the connection; callers that wait get ConnectionLost."""
        if self._transport is not None:
            self._transport.abort()
        self._end(reason)

    # --- for the event loop --------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(f"{self.address} closed the connection" + (f" ({error})" if error else ""))

    def data_received(self, data: bytes) -> None:
        self._received += data
        try:
            while (answer := self._next()) is not None:
                if answer.code in (b"ERROR", b"CLIENT_ERROR") and len(self._answers) + 1 < self._expected[0].count:
                    raise ValueError  # the rest of a rejected request is parsed as further requests
                self._answers.append(answer)
                if len(self._answers) == self._expected[0].count:
                    future = self._expected.popleft().future
                    if not future.done():
                        future.set_result(self._answers)
                    self._answers = []
        except (ValueError, IndexError):
            self.close(f"{self.address} does not speak the Memcached protocol; is it a Memcached server?")

    def _next(self) -> MetaReply | None:
        """The next answer, if it is there as a whole."""
        received = self._received
        while self._head is None:
            end = received.find(b"\r\n")
            if end < 0:
                return None
            line = bytes(received[:end])
            del received[: end + 2]
            code, *words = line.split(b" ")
            if code == b"STAT":
                self._lines.append(line)
            elif code == b"VA":
                self._head = words[1:], int(words[0])
            else:
                lines, self._lines = tuple(self._lines), []
                return MetaReply(code, words, lines=lines)
        words, size = self._head
        if len(received) < size + 2:
            return None
        data = bytes(received[:size])
        if received[size : size + 2] != b"\r\n":
            raise ValueError
        del received[: size + 2]
        self._head = None
        return MetaReply(b"VA", words, data)

    def _flush(self) -> None:
        if self.lost is None and self._transport is not None:
            self._transport.write(b"".join(self._out))
        self._out.clear()

    def _overdue(self) -> None:
        """The first caller decides, even if cancelled: replies arrive in order, so no other is served before it."""
        self._timer = None
        if not self._expected:
            return
        deadline = self._expected[0].since + self._timeout
        if deadline <= self._loop.time():
            self.close(f"{self.address} did not answer within {self._timeout:g} s")
        else:
            self._timer = self._loop.call_at(deadline, self._overdue)

    def _end(self, reason: str) -> None:
        if self.lost is not None:
            return
        self.lost = reason
        if self._timer is not None:
            self._timer.cancel()
        sent = len(self._expected) - len(self._out)
        for place, expected in enumerate(self._expected):
            if not expected.future.done():
                expected.future.set_exception(ConnectionLost(reason, place < sent))
        self._expected.clear()
