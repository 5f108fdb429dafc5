"""A server of the Upstash REST API in a few lines: it records every request, and answers as a test says."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from tests.listening import listening, port_of

TOKEN = "the-token"


@dataclass
class Request:
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int

    @property
    def commands(self) -> list[list[str]]:
        found: list[list[str]] = json.loads(self.body)
        return found


Writer: TypeAlias = asyncio.StreamWriter
# Writes the response to a request; False: the connection ends.
Respond: TypeAlias = Callable[[Request, Writer], Awaitable[bool]]


@dataclass
class RestServer:
    """`respond` is called for each request after the first, which opens the store."""

    port: int = 0
    respond: Respond | None = None
    requests: list[Request] = field(default_factory=list)
    connections: int = 0

    def url(self, options: str = "") -> str:
        return f"upstash+http://:{TOKEN}@127.0.0.1:{self.port}{options}"

    @property
    def seen(self) -> list[list[str]]:
        """The commands of all requests since the store was opened."""
        return [command for request in self.requests[1:] for command in request.commands]

    async def serve(self, reader: asyncio.StreamReader, writer: Writer) -> None:
        self.connections += 1
        number = self.connections
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value.strip() for name, value in (line.split(":", 1) for line in lines)}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            request = Request(first.split(" ")[1], headers, body, number)
            self.requests.append(request)
            is_first = len(self.requests) == 1
            goes_on = await (run if is_first or self.respond is None else self.respond)(request, writer)
            if not goes_on:
                return


async def run(request: Request, writer: Writer) -> bool:
    """A database that holds nothing."""
    return answer(writer, 200, [_reply(command) for command in request.commands])


def _reply(command: list[str]) -> dict[str, Any]:
    match command:
        case ["ECHO", _]:
            return {"result": "a2V5c3RlYWQ="}
        case ["GET", _]:
            return {"result": None}
        case ["SET", *_]:
            return {"result": "OK"}
        case ["EVALSHA", *_]:
            return {"error": "NOSCRIPT No matching script. Please use EVAL."}
    return {"result": 0}


def answer(writer: Writer, status: int, content: Any, *headers: str) -> bool:
    body = content if isinstance(content, bytes) else json.dumps(content).encode()
    head = [f"HTTP/1.1 {status} Whatever", "content-type: application/json", f"content-length: {len(body)}", *headers]
    writer.write("\r\n".join([*head, "", ""]).encode() + body)
    return True


@asynccontextmanager
async def rest_server(respond: Respond | None = None, tls: ssl.SSLContext | None = None) -> AsyncIterator[RestServer]:
    server = RestServer(respond=respond)
    async with listening(server.serve, tls=tls) as running:
        server.port = port_of(running)
        yield server
