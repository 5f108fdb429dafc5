"""A small HTTP/1.1 client with keep-alive, for one server.

It knows what a general-purpose client does not tell: whether any of a request may have reached the server.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from keystead.stores.reconnecting_link import ConnectionLost

IDLE_S: Final = 30.0  # an idle connection is not used again after this, unless the server states less
_HEAD_BYTES: Final = 64 << 10
_NO_BODY: Final = frozenset({204, 304})


@dataclass(slots=True)
class Response:
    status: int
    headers: dict[bytes, bytes]  # names in lower case
    body: bytes = b""


class HttpConnection:
    """One connection: one request at a time."""

    def __init__(self, address: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._address = address
        self._reader = reader
        self._writer = writer
        self._usable_until = 0.0

    @classmethod
    async def open(
        cls, address: str, host: str, port: int, tls: ssl.SSLContext | None, limit_s: float
    ) -> HttpConnection:
        """Connect. Raises ConnectionLost: nothing was sent. A certificate that is not valid raises ssl.SSLError."""
        try:
            async with asyncio.timeout(limit_s):
                reader, writer = await asyncio.open_connection(host, port, ssl=tls, limit=_HEAD_BYTES)
        except ssl.SSLError:
            raise
        except TimeoutError:
            raise ConnectionLost(f"{address} did not accept a connection within {limit_s:g} s", False) from None
        except (OSError, UnicodeError) as error:  # UnicodeError: an invalid host name
            raise ConnectionLost(f"cannot reach {address}: {error}", False) from None
        _keep_alive(writer.get_extra_info("socket"))
        return cls(address, reader, writer)

    @property
    def is_usable(self) -> bool:
        """Whether it may be used again: it is not closed, and not idle for so long that the server may close it."""
        loop = asyncio.get_running_loop()
        return not (self._reader.at_eof() or self._writer.is_closing()) and loop.time() < self._usable_until

    def close(self) -> None:
        self._writer.transport.abort()

    async def request(self, head: bytes, body: bytes) -> Response:
        """Send a request and read the whole response. Raises ConnectionLost: the server may have got the request."""
        response = await self.begin(head, body)
        response.body = b"".join([part async for part in self.parts(response)])
        return response

    async def begin(self, head: bytes, body: bytes = b"") -> Response:
        """Send a request and read the head of the response."""
        self._usable_until = 0.0
        try:
            self._writer.write(b"%b%d\r\n\r\n%b" % (head, len(body), body))
            await self._writer.drain()
            while True:
                response = _parse_head(await self._reader.readuntil(b"\r\n\r\n"))
                if response.status >= 200:
                    return response
        except (OSError, EOFError, asyncio.LimitOverrunError) as error:
            raise self._cut(error) from None
        except ValueError:
            self.close()
            raise ConnectionLost(f"{self._address} does not speak HTTP; check the URL", True) from None

    async def parts(self, response: Response) -> AsyncIterator[bytes]:
        """The body, as it arrives. Afterwards the connection can be used again, if the server keeps it open."""
        try:
            if response.headers.get(b"transfer-encoding", b"").lower().endswith(b"chunked"):
                while size := int((await self._reader.readuntil(b"\r\n")).partition(b";")[0], 16):
                    yield await self._reader.readexactly(size)
                    await self._reader.readexactly(2)
                while await self._reader.readuntil(b"\r\n") != b"\r\n":  # trailers
                    pass
            elif b"content-length" in response.headers:
                yield await self._reader.readexactly(int(response.headers[b"content-length"]))
            elif response.status not in _NO_BODY:
                while part := await self._reader.read(_HEAD_BYTES):
                    yield part
                return
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
            raise self._cut(error) from None
        if response.headers.get(b"connection", b"").lower() != b"close":
            self._usable_until = asyncio.get_running_loop().time() + _idle_s(response.headers)

    def _cut(self, error: Exception) -> ConnectionLost:
        self.close()
        reason = "" if isinstance(error, EOFError | ValueError) or not str(error) else f" ({error})"
        return ConnectionLost(f"{self._address} closed the connection before it had answered{reason}", True)


class HttpPool:
    """The idle connections to one server. `open` is called for more."""

    def __init__(self, address: str, host: str, port: int, tls: ssl.SSLContext | None, connect_timeout: float) -> None:
        self._address, self._host, self._port, self._tls = address, host, port, tls
        self._connect_timeout = connect_timeout
        self._idle: list[HttpConnection] = []
        self._used: set[HttpConnection] = set()

    async def take(self, fresh: bool = False) -> HttpConnection:
        """An idle connection, the latest first, or a new one. Raises ConnectionLost or ssl.SSLError."""
        while self._idle and not fresh:
            connection = self._idle.pop()
            if connection.is_usable:
                break
            connection.close()
        else:
            connection = await HttpConnection.open(
                self._address, self._host, self._port, self._tls, self._connect_timeout
            )
        self._used.add(connection)
        return connection

    def give_back(self, connection: HttpConnection) -> None:
        self._used.discard(connection)
        if connection.is_usable:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        for connection in (*self._idle, *self._used):
            connection.close()
        self._idle.clear()


def request_head(path: str, host: str, headers: Sequence[tuple[str, str]]) -> bytes:
    """The head of a POST request, up to the length of its body."""
    lines = [f"POST {path} HTTP/1.1", f"host: {host}", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, "content-length: "]).encode("latin-1")


def _parse_head(head: bytes) -> Response:
    """Raises ValueError."""
    first, *lines = head[:-4].split(b"\r\n")
    version, status = first.split(b" ", 2)[:2]
    if not version.startswith(b"HTTP/1."):
        raise ValueError(version)
    pairs = (line.split(b":", 1) for line in lines)
    headers = {name.strip().lower(): value.strip() for name, value in pairs}
    if version == b"HTTP/1.0":
        headers.setdefault(b"connection", b"close")
    return Response(int(status), headers)


def _idle_s(headers: dict[bytes, bytes]) -> float:
    """How long the server keeps an idle connection, less a second; `Keep-Alive: timeout=5` states it."""
    for word in headers.get(b"keep-alive", b"").replace(b",", b" ").split():
        name, _, number = word.partition(b"=")
        if name.lower() == b"timeout" and number.isdigit():
            return min(IDLE_S, int(number) - 1.0)
    return IDLE_S


def _keep_alive(connection: socket.socket) -> None:
    """Notice within half a minute that a silent server is gone: a subscription may wait for hours."""
    with suppress(OSError, AttributeError):  # not every system has all of them
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 10)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 4)
