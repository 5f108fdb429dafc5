"""Readers of server-sent events over plain sockets."""

from __future__ import annotations

import asyncio
import json
import random
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

PATH = "/api/notifications/stream"


@dataclass(frozen=True)
class StreamEvent:
    kind: str
    place: int | None
    data: str


class Stream:
    """One connection, read event by event."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def head(self) -> tuple[int, dict[str, str]]:
        try:
            raw = (await self._reader.readuntil(b"\r\n\r\n")).decode()
        except asyncio.IncompleteReadError:
            raise EOFError from None
        first, *lines = raw.strip().split("\r\n")
        fields = (line.partition(":") for line in lines)
        return int(first.split()[1]), {name.lower(): value.strip() for name, _, value in fields}

    async def next(self) -> StreamEvent:
        """The next event; comments and blocks without a kind are skipped. Raises EOFError at the end."""
        while True:
            try:
                block = await self._reader.readuntil(b"\n\n")
            except asyncio.IncompleteReadError:
                raise EOFError from None
            fields = {}
            for line in block.decode().splitlines():
                name, colon, value = line.partition(": ")
                if colon and name in ("id", "event", "data"):
                    fields[name] = value
            if "event" in fields:
                place = int(fields["id"]) if "id" in fields else None
                return StreamEvent(fields["event"], place, fields.get("data", ""))

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


@asynccontextmanager
async def stream(port: int, token: str, *, after: int | None = None, small: bool = False) -> AsyncIterator[Stream]:
    """An open stream. `small` uses a small buffer, to simulate a slow reader."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=4096 if small else 2**16)
    last = "" if after is None else f"Last-Event-ID: {after}\r\n"
    # HTTP/1.0, to avoid chunked responses.
    writer.write(f"GET {PATH} HTTP/1.0\r\nHost: x\r\nAuthorization: Bearer {token}\r\n{last}\r\n".encode())
    opened = Stream(reader, writer)
    try:
        yield opened
    finally:
        await opened.close()


@dataclass
class Follower:
    """A reader that keeps `Last-Event-ID` like a browser, and repeatedly loses the connection.

    ports     of the servers of one application; each connection picks one
    notices   the received notices, as positions and item numbers
    others    all other events, except the `hello` of each connection
    """

    ports: Sequence[int]
    token: str
    chance: random.Random
    last: int = 0
    connections: int = 0
    notices: list[tuple[int | None, int]] = field(default_factory=list)
    others: list[StreamEvent] = field(default_factory=list)

    async def follow(self, count: int) -> None:
        """Read until this many notices have arrived, reconnecting if a server is killed."""
        while len(self.notices) < count:
            try:
                async with stream(self.chance.choice(self.ports), self.token, after=self.last) as opened:
                    status, _ = await opened.head()
                    if status == 200:
                        self.connections += 1
                        await self._read(opened, min(self.chance.randrange(1, 40), count - len(self.notices)))
                        continue
            except (OSError, EOFError):
                pass
            await asyncio.sleep(0.05)

    async def _read(self, opened: Stream, count: int) -> None:
        while count:
            one = await opened.next()
            if one.place is not None:
                self.last = one.place
            if one.kind == "notice":
                self.notices.append((one.place, json.loads(one.data)["refId"]))
                count -= 1
            elif one.kind != "hello":
                self.others.append(one)


def free_port() -> int:
    """An unused port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
