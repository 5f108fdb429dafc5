"""Round trips between a client and its server, counted on the wire by a proxy."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress


class CountingProxy:
    """Relays data between clients and a server on loopback, and counts round trips.

    A round trip begins when a client sends data after a reply to everything before has begun. Data sent together or
    without waiting counts once.
    """

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self.port = 0
        self.trips = 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    async def relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", self._server_port)
        is_waiting = False

        async def requests() -> None:
            nonlocal is_waiting
            while data := await reader.read(65_536):
                if not is_waiting:
                    self.trips += 1
                is_waiting = True
                to_server.write(data)

        async def replies() -> None:
            nonlocal is_waiting
            while data := await from_server.read(65_536):
                is_waiting = False
                writer.write(data)

        tasks = [asyncio.create_task(requests()), asyncio.create_task(replies())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            for stream in (writer, to_server):
                stream.close()
                with suppress(OSError):
                    await stream.wait_closed()


@asynccontextmanager
async def count_round_trips(server_port: int) -> AsyncIterator[CountingProxy]:
    between = CountingProxy(server_port)
    server = await asyncio.start_server(between.relay, "127.0.0.1", 0)
    between.port = server.sockets[0].getsockname()[1]
    try:
        yield between
    finally:
        server.close()
