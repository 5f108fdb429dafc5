"""A multiplexed connection to a Memcached server, with the meta protocol: every request has exactly one reply."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from keystead.stores.memcached.memcached_settings import MemcachedAddress
from keystead.stores.multiplexed_connection import MultiplexedConnection


class MetaReply(NamedTuple):
    """`code`: VA (a value), HD (done), EN or NF (not found), NS (not stored), EX (lost the race), or an error."""

    code: bytes
    words: list[bytes]  # after the code
    data: bytes = b""
    lines: tuple[bytes, ...] = ()  # of `stats`

    def number(self, letter: bytes) -> int:
        """The number behind this letter, as in `c42`."""
        return next(int(word[1:]) for word in self.words if word[:1] == letter)


class MemcachedConnection(MultiplexedConnection[MemcachedAddress, MetaReply]):
    def __init__(self, loop: asyncio.AbstractEventLoop, address: MemcachedAddress, timeout: float) -> None:
        super().__init__(loop, address, timeout)
        self._received = bytearray()
        self._lines: list[bytes] = []
        self._head: tuple[list[bytes], int] | None = None  # of a value that has not arrived completely

    def request(self, payload: bytes, count: int = 1) -> asyncio.Future[list[MetaReply]]:
        return self.send(payload, count, self._loop.time())

    def data_received(self, data: bytes) -> None:
        self._received += data
        try:
            while (reply := self._next()) is not None:
                if reply.code in (b"ERROR", b"CLIENT_ERROR") and len(self._replies) + 1 < self._expected[0][1]:
                    raise ValueError  # the rest of a rejected request is parsed as further requests
                self._replies.append(reply)
                if len(self._replies) == self._expected[0][1]:
                    future = self._expected.popleft()[0]
                    if not future.done():
                        future.set_result(self._replies)
                    self._replies = []
        except (ValueError, IndexError):
            self.close(f"{self.address} does not speak the Memcached protocol; is it a Memcached server?")

    def _next(self) -> MetaReply | None:
        """The next reply; None: it has not arrived completely."""
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
