"""Requests, as fast as they are answered: `python -m bench.load CONNECTIONS`, a process of its own.

For each line `{"port": …, "seconds": …, "cookies": […]}` it keeps that many connections busy with `GET /me` for so long,
each with the next of the cookies, and prints how many were answered and in how many seconds.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator


class Client(asyncio.Protocol):
    """One connection: the next request when the answer to the one before is there in full."""

    def __init__(self, requests: Iterator[bytes], done: asyncio.Future[None]) -> None:
        self.answered = 0
        self.stopped = False
        self._requests = requests
        self._done = done
        self._buffer = b""
        self._needed = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def begin(self) -> None:
        self._transport.write(next(self._requests))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._needed:
            end = self._buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            head = self._buffer[:end].lower()
            if not head.startswith(b"http/1.1 200") or b"content-length:" not in head:
                self._fail(f"the answer begins with {self._buffer[:80]!r}")
                return
            self._needed = end + 4 + int(head.partition(b"content-length:")[2].split(b"\r\n", 1)[0])
        if len(self._buffer) < self._needed:
            return
        if b'"name"' not in self._buffer:
            self._fail("the answer has no name")
            return
        self._buffer, self._needed = b"", 0
        self.answered += 1
        if self.stopped:
            self._transport.close()
        else:
            self._transport.write(next(self._requests))

    def connection_lost(self, error: Exception | None) -> None:
        if not self._done.done():
            if self.stopped:
                self._done.set_result(None)
            else:
                self._done.set_exception(RuntimeError("the server closed the connection"))

    def _fail(self, why: str) -> None:
        self._done.set_exception(RuntimeError(why))
        self._transport.close()


async def load(port: int, seconds: float, cookies: list[str], connections: int) -> tuple[int, float]:
    """How many requests were answered, and in how many seconds."""
    loop = asyncio.get_running_loop()
    head = f"GET /me HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAccept: application/json\r\n"
    requests = itertools.cycle([f"{head}Cookie: {cookie}\r\n\r\n".encode() for cookie in cookies])
    clients: list[Client] = []
    ends = [loop.create_future() for _ in range(connections)]
    for end in ends:
        _, client = await loop.create_connection(lambda end=end: Client(requests, end), "127.0.0.1", port)  # type: ignore[misc]
        clients.append(client)
    began = time.perf_counter()
    for client in clients:
        client.begin()
    await asyncio.wait(ends, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    answered, took = sum(client.answered for client in clients), time.perf_counter() - began
    for client in clients:
        client.stopped = True
    await asyncio.gather(*ends)
    return answered, took


def main() -> None:
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[1:] or cores)
    for line in sys.stdin:
        asked = json.loads(line)
        answered, took = asyncio.run(load(asked["port"], asked["seconds"], asked["cookies"], int(sys.argv[1])))
        print(json.dumps({"answered": answered, "seconds": took}), flush=True)


if __name__ == "__main__":
    main()
