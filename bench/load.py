"""A load generator: `python -m bench.load CONNECTIONS`.

For each input line `{"port": …, "requests": …, "asks": […], "holds": …}` it sends that many requests over its
connections, cycling through `asks`, and prints the seconds until all were answered. A request is `GET /…` and header
lines; `{number}` in it is replaced by a new number each time. Each response must contain the text `holds`. Connections
stay open between lines, and are reopened if the server closed them.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import sys
import time
from collections.abc import Iterator

ANSWER_MAX_BYTES = 10_000


class Turn:
    """The remaining requests and responses of a turn."""

    def __init__(self, requests: Iterator[bytes], count: int, holds: bytes) -> None:
        self._requests = requests
        self._unsent = self._unanswered = count
        self.holds = holds
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def next(self) -> bytes | None:
        if not self._unsent:
            return None
        self._unsent -= 1
        return next(self._requests)

    def count_response(self) -> None:
        self._unanswered -= 1
        if not self._unanswered:
            self.done.set_result(None)

    def fail(self, why: str) -> None:
        if not self.done.done():
            self.done.set_exception(RuntimeError(why))


class Client(asyncio.Protocol):
    """One connection: it sends the next request when the previous response is complete."""

    turn: Turn
    is_open = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._write = transport.write
        self._buffer = b""
        self._length = 0  # of the last response; most have the same length

    def begin(self, turn: Turn) -> None:
        self.turn = turn
        request = turn.next()
        if request is not None:
            self._write(request)

    def data_received(self, data: bytes) -> None:
        if self._buffer:
            data = self._buffer + data
        if len(data) != self._length and not self._is_whole(data):
            self._buffer = data
            return
        if not data.startswith(b"HTTP/1.1 200 ") or self.turn.holds not in data:
            self.turn.fail(f"a response begins with {data[:200]!r}")
            return
        self._buffer, self._length = b"", len(data)
        request = self.turn.next()
        if request is not None:
            self._write(request)
        self.turn.count_response()

    def _is_whole(self, data: bytes) -> bool:
        head, blank, body = data.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0]
        if len(data) > ANSWER_MAX_BYTES or (blank and not length):
            self.turn.fail(f"a response has no length: {data[:200]!r}")
        return bool(blank) and len(body) >= int(length)

    def connection_lost(self, error: Exception | None) -> None:
        self.is_open = False
        self.turn.fail("the server closed a connection")


async def serve(connections: int) -> None:
    opened: dict[int, list[Client]] = {}
    numbers = itertools.count()
    while line := await asyncio.to_thread(sys.stdin.readline):
        asked = json.loads(line)
        port, count = asked["port"], asked["requests"]
        kept = [client for client in opened.get(port, ()) if client.is_open]
        opened[port] = [*kept, *[await _connect(port) for _ in range(connections - len(kept))]]
        turn = Turn(iter(_texts(asked["asks"], port, count, numbers)), count, asked["holds"].encode())
        began = time.perf_counter()
        for client in opened[port]:
            client.begin(turn)
        await turn.done
        print(json.dumps({"seconds": time.perf_counter() - began}), flush=True)


async def _connect(port: int) -> Client:
    _, client = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", port)
    return client


def _texts(asks: list[str], port: int, count: int, numbers: Iterator[int]) -> list[bytes]:
    """All requests of a turn, built before it begins to keep that out of the measurement."""
    texts = []
    for ask in itertools.islice(itertools.cycle(asks), count):
        first, *headers = ask.replace("{number}", str(next(numbers))).split("\n")
        lines = (f"{first} HTTP/1.1", f"Host: 127.0.0.1:{port}", *headers, "", "")
        texts.append("\r\n".join(lines).encode())
    return texts


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
