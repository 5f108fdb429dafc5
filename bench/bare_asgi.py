"""The least that a request costs: ASGI applications by hand, without framework, checks, limits or security headers.

They show how far a target can be reached at all on a machine: the server and the event loop have their share, whatever
the application does. One connection carries the commands of all requests that are ready (a pipeline).
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque
from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any, Final, cast
from urllib.parse import parse_qsl, urlsplit

import hiredis

_DAY_S: Final = 86_400
_JSON: Final = (b"content-type", b"application/json")
# Mark the visitor for today, count, and return the counts and the last visit; the first key counts the requests.
_VISIT: Final = """
redis.call('INCR', KEYS[1])
if redis.call('SET', KEYS[2], ARGV[1], 'NX', 'EX', ARGV[2]) then
  local total, today = redis.call('INCR', KEYS[3]), redis.call('INCR', KEYS[4])
  redis.call('SET', KEYS[5], ARGV[1])
  return {total, today}
end
return {redis.call('GET', KEYS[3]), redis.call('GET', KEYS[4]), redis.call('GET', KEYS[5])}
"""


class _Pipeline(asyncio.Protocol):
    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader = hiredis.Reader()
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._out: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._write = cast("asyncio.Transport", transport).write  # uvloop has its own class

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            self._waiting.popleft().set_result(reply)

    def send(self, *command: str | bytes | int) -> asyncio.Future[Any]:
        future = self._loop.create_future()
        self._waiting.append(future)
        if not self._out:
            self._loop.call_soon(self._flush)
        self._out.append(hiredis.pack_command(command))  # type: ignore[arg-type]  # its stub takes one word
        return future

    def _flush(self) -> None:
        self._write(b"".join(self._out))
        self._out.clear()


class Connection:
    """Connects with the first request."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._opened: _Pipeline | None = None
        self._lock = asyncio.Lock()
        self.script = ""

    async def open(self) -> _Pipeline:
        async with self._lock:
            if self._opened is None:
                place = urlsplit(self._url)
                loop = asyncio.get_running_loop()
                _, opened = await loop.create_connection(_Pipeline, place.hostname or "", place.port or 6379)
                self.script = (await opened.send("SCRIPT", "LOAD", _VISIT)).decode()
                self._opened = opened
            return self._opened

    @property
    def opened(self) -> _Pipeline | None:
        return self._opened


def visits(redis_url: str) -> Callable[..., Awaitable[None]]:
    """`GET /api/visit` with `action=increment` or `display`."""
    connection = Connection(redis_url)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return
        redis = connection.opened or await connection.open()
        query = dict(parse_qsl(scope["query_string"].decode()))
        key = f"bare:{query['id']}"
        if query["action"] == "display":
            values = await redis.send("MGET", key, f"{key}:total", f"{key}:today", f"{key}:last")
            body = values[1] or b"0"
        else:
            headers = dict(scope["headers"])
            visitor = f"{scope['client'][0]}\n{headers.get(b'user-agent', b'')}"
            mark, now = f"{key}:visit:{sha256(visitor.encode()).hexdigest()[:16]}", int(time.time())
            keys = ("requests", mark, f"{key}:total", f"{key}:today", f"{key}:last")
            counts = await redis.send("EVALSHA", connection.script, 5, *keys, now, _DAY_S - now % _DAY_S)
            body = b'{"success":true,"data":{"total":%d,"today":%d}}' % (int(counts[0]), int(counts[1]))
        length = (b"content-length", b"%d" % len(body))
        await send({"type": "http.response.start", "status": 200, "headers": [_JSON, length]})
        await send({"type": "http.response.body", "body": body})

    return app


class SessionByHand:
    """A middleware that does no more than a session needs: the cookie, one GET, and `Cache-Control: no-store`."""

    def __init__(self, app: Callable[..., Awaitable[None]]) -> None:
        self._app = app
        self._connection = Connection(os.environ["BENCH_REDIS"])

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        redis = self._connection.opened or await self._connection.open()
        cookie = next((value for name, value in scope["headers"] if name == b"cookie"), b"")
        scope.setdefault("state", {})["session"] = await redis.send("GET", cookie)

        def send_private(message: Any) -> Awaitable[None]:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message["headers"], (b"cache-control", b"no-store")]}
            sent: Awaitable[None] = send(message)
            return sent

        await self._app(scope, receive, send_private)
