"""An open-loop load generator: `python -m bench.open_load` sends requests at a fixed rate.

For each input line `{"port": …, "rate": …, "seconds": …, "ask": …}` it starts that many requests per second, each on a
free connection, and prints the latencies of the 200 responses and the number of 503, after a second of warm-up. The
time of a request begins when it is due, even if no connection is free.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import deque
from typing import Any

CONNECTIONS = 1_500  # more than `requests_at_once` by default
WARM_UP_S = 1.0  # what is answered then does not count


class Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self, load: Load) -> None:
        self._load = load
        self._buffer = b""
        self._due = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def begin(self, due: float) -> None:
        self._due = due
        self._transport.write(self._load.request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, blank, body = self._buffer.partition(b"\r\n\r\n")
        if not blank or len(body) < int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0] or 0):
            return
        self._buffer = b""
        self._load.answered(self, head.startswith(b"HTTP/1.1 200"), head.startswith(b"HTTP/1.1 503"), self._due)


class Load:
    def __init__(self, request: bytes) -> None:
        self.request = request
        self.free: list[Connection] = []
        self.late: deque[float] = deque()
        self.latencies: list[float] = []
        self.refused = 0

    def answered(self, connection: Connection, accepted: bool, refused: bool, due: float) -> None:
        if accepted:
            self.latencies.append(time.perf_counter() - due)
        elif refused:
            self.refused += 1
        else:
            raise RuntimeError("neither accepted nor refused")
        if self.late:
            connection.begin(self.late.popleft())
        else:
            self.free.append(connection)

    async def run(self, port: int, rate: float, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(CONNECTIONS):
            _, connection = await loop.create_connection(lambda: Connection(self), "127.0.0.1", port)
            self.free.append(connection)
        began = time.perf_counter()
        sent, is_warm = 0, False
        while (now := time.perf_counter()) - began < seconds + WARM_UP_S:
            if not is_warm and now - began >= WARM_UP_S:
                is_warm = True
                self.latencies.clear()
                self.refused = 0
            while sent < (now - began) * rate:
                due = began + sent / rate
                sent += 1
                if self.free:
                    self.free.pop().begin(due)
                else:
                    self.late.append(due)
            await asyncio.sleep(0.0005)
        self.late.clear()
        for _ in range(1_000):  # those in progress
            if len(self.free) == CONNECTIONS:
                break
            await asyncio.sleep(0.01)


async def _answer(asked: dict[str, Any]) -> dict[str, Any]:
    head = f"{asked['ask']} HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: a browser\r\n\r\n"
    load = Load(head.encode())
    await load.run(asked["port"], asked["rate"], asked["seconds"])
    return {"latencies": sorted(load.latencies), "refused": load.refused}


if __name__ == "__main__":
    for line in sys.stdin:
        print(json.dumps(asyncio.run(_answer(json.loads(line)))), flush=True)
