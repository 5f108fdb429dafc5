"""Requests, as fast as they are answered: `python -m bench.load CONNECTIONS`, a process of its own.

For each line `{"port": …, "requests": …, "asks": […], "holds": …}` it sends so many requests on that many connections,
each the next of those that are asked, and prints in how many seconds all were answered. What is asked begins with `GET
/…` and goes on with header lines; `{number}` in it is another number each time. Each answer has to hold a text.
Connections stay open from line to line; one that its server has closed meanwhile is opened again.
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
    """The requests that are still to be sent and answered."""

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

    def answered(self) -> None:
        self._unanswered -= 1
        if not self._unanswered:
            self.done.set_result(None)

    def fail(self, why: str) -> None:
        if not self.done.done():
            self.done.set_exception(RuntimeError(why))


class Client(asyncio.Protocol):
    """One connection: the next request when the answer to the one before is there in full."""

    turn: Turn
    is_open = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._write = transport.write
        self._buffer = b""
        self._length = 0  # of an answer; most are as long as the one before

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
            self.turn.fail(f"an answer begins with {data[:200]!r}")
            return
        self._buffer, self._length = b"", len(data)
        request = self.turn.next()
        if request is not None:
            self._write(request)
        self.turn.answered()

    def _is_whole(self, data: bytes) -> bool:
        head, blank, body = data.partition(b"\r\n\r\n")
        length = head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0]
        if len(data) > ANSWER_MAX_BYTES or (blank and not length):
            self.turn.fail(f"an answer has no length: {data[:200]!r}")
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
        opened[port] = [*kept, *[await _connected(port) for _ in range(connections - len(kept))]]
        turn = Turn(iter(_texts(asked["asks"], port, count, numbers)), count, asked["holds"].encode())
        began = time.perf_counter()
        for client in opened[port]:
            client.begin(turn)
        await turn.done
        print(json.dumps({"seconds": time.perf_counter() - began}), flush=True)


async def _connected(port: int) -> Client:
    _, client = await asyncio.get_running_loop().create_connection(Client, "127.0.0.1", port)
    return client


def _texts(asks: list[str], port: int, count: int, numbers: Iterator[int]) -> list[bytes]:
    """All requests of a turn, made before it begins: what making them costs is no matter of a server."""
    texts = []
    for ask in itertools.islice(itertools.cycle(asks), count):
        first, *headers = ask.replace("{number}", str(next(numbers))).split("\n")
        lines = (f"{first} HTTP/1.1", f"Host: 127.0.0.1:{port}", *headers, "", "")
        texts.append("\r\n".join(lines).encode())
    return texts


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
