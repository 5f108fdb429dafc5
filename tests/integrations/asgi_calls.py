"""Calls of an ASGI application without a server."""

from dataclasses import dataclass
from typing import Any


@dataclass
class HasScopeOnly:
    """A request as far as `session_of` needs one."""

    scope: Any


async def call(app: Any, path: str, cookie: bytes = b"") -> list[tuple[bytes, bytes]]:
    """The headers of the response."""
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"example.com"), (b"cookie", cookie)]
    await app({"type": "http", "method": "GET", "path": path, "headers": headers}, None, send)
    return list(sent[0]["headers"])
