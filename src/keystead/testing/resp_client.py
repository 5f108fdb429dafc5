"""A blocking RESP3 connection that returns replies as the server sent them.

Used by the oracle of the state machine. It shares no code with the stores under test.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class WireError(Exception):
    """An error reply, with the text of the server."""


class Wire:
    """One connection to a Redis or Valkey server: a port of this machine, or a socket file."""

    def __init__(
        self,
        address: int | Path,
        *,
        password: str | None = None,
        certificate: Path | None = None,
        timeout: float = 10.0,
    ) -> None:
        if isinstance(address, Path):
            self._socket = socket.socket(socket.AF_UNIX)
            self._socket.settimeout(timeout)
            self._socket.connect(str(address))
        else:
            self._socket = socket.create_connection(("127.0.0.1", address), timeout)
        if certificate is not None:
            context = ssl.create_default_context(cafile=str(certificate))
            self._socket = context.wrap_socket(self._socket, server_hostname="127.0.0.1")
        self._input = self._socket.makefile("rb")
        try:
            self.call("HELLO", 3, *(() if password is None else ("AUTH", "default", password)))
        except BaseException:
            self.close()
            raise

    def call(self, *command: str | bytes | float) -> Any:
        """The reply. Raises WireError for an error reply."""
        [reply] = self.replies([command])
        if isinstance(reply, WireError):
            raise reply
        return reply

    def replies(self, commands: Sequence[Sequence[str | bytes | float]]) -> list[Any]:
        """The replies in order, with a WireError in place of each error reply."""
        self._socket.sendall(b"".join(_pack(command) for command in commands))
        return [self._reply() for _ in commands]

    def close(self) -> None:
        self._input.close()
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _line(self) -> bytes:
        line = self._input.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server closed the connection")
        return line[:-2]

    def _bytes(self, length: int) -> bytes:
        data = self._input.read(length + 2)
        if len(data) != length + 2:
            raise ConnectionError("the server closed the connection")
        return data[:-2]

    def _reply(self) -> Any:
        line = self._line()
        sort, rest = line[:1], line[1:]
        match sort:
            case b"+":
                return rest
            case b"-":
                return WireError(rest.decode("utf-8", "replace"))
            case b":" | b"(":
                return int(rest)
            case b",":
                return float(rest)
            case b"#":
                return rest == b"t"
            case b"_":
                return None
            case b"$" if rest != b"-1":
                return self._bytes(int(rest))
            case b"=":
                return self._bytes(int(rest))[4:]
            case b"!":
                return WireError(self._bytes(int(rest)).decode("utf-8", "replace"))
            case b"*" if rest != b"-1":
                return [self._reply() for _ in range(int(rest))]
            case b"~":
                members = [self._reply() for _ in range(int(rest))]
                # Sets with unhashable members occur only in a server's description of itself.
                return set(members) if all(isinstance(member, bytes) for member in members) else members
            case b"%":
                return {self._reply(): self._reply() for _ in range(int(rest))}
            case b"$" | b"*":
                return None
        raise ConnectionError(f"unknown reply type: {line[:40]!r}")


def _pack(command: Sequence[str | bytes | float]) -> bytes:
    parts = [_encode(part) for part in command]
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%b\r\n" % (len(part), part) for part in parts)


def _encode(part: str | bytes | float) -> bytes:
    if isinstance(part, bytes):
        return part
    return part.encode() if isinstance(part, str) else repr(part).encode()
