"""A TCP proxy that misbehaves on demand: delays, holds everything back, cuts after so many bytes, resets."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from types import TracebackType
from typing import Self

from tests.listening import listening, port_of

CHUNK_BYTES = 64 * 1024


class Proxy:
    """A proxy for the server of a port. Faults apply to all connections, current and future.

    `forwarded_bytes` counts what went on to the server; `connections` counts how often somebody connected.
    """

    def __init__(self, server_port: int) -> None:
        self.port = 0
        self.connections = 0
        self.forwarded_bytes = 0
        self.delay: Callable[[], float] = lambda: 0.0  # seconds, asked anew for each chunk in each direction
        self._server_port = server_port
        self._flows = asyncio.Event()
        self._flows.set()
        self._replies_left: int | None = None
        self._replies_until_held: int | None = None
        self._requests_until_held: int | None = None
        self._requests_left: int | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._listener = AsyncExitStack()
        self._listens = False

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    # --- faults --------------------------------------------------------------------------------------------

    def black_hole(self) -> None:
        """Connections are accepted and stay open, and nothing passes until `resume`."""
        self._flows.clear()

    def cut_replies_after(self, count: int) -> None:
        """Reset the connection once: when this many bytes of replies have passed and more would. The server has then
        run what it answers to. With 0, no byte of the next reply passes."""
        self._replies_left = count

    def hold_replies_after(self, count: int) -> None:
        """When this many bytes of replies have passed, nothing more does until `resume`."""
        self._replies_until_held = count

    def hold_requests_after(self, count: int) -> None:
        """When this many bytes of requests have passed, nothing more does until `resume`."""
        self._requests_until_held = count

    def cut_requests_after(self, count: int) -> None:
        """Reset the connection once: when this many bytes of requests have passed and more would."""
        self._requests_left = count

    def reset(self) -> None:
        """Reset every connection of this moment. New ones are welcome."""
        for writer in self._writers:
            writer.transport.abort()

    def lead_to(self, port: int) -> None:
        """Future connections go to another server, as after a change of a name or a virtual address."""
        self._server_port = port

    async def refuse(self) -> None:
        """Simulate a server that is down: connections are reset, and new ones refused."""
        await self._stop_listening()

    async def accept(self) -> None:
        """Let connections in again after `refuse`. Other faults stay."""
        if not self._listens:
            await self._listen()

    async def resume(self) -> None:
        """Let everything pass again, also what was held back."""
        self.delay = lambda: 0.0
        self._replies_left = self._requests_left = self._replies_until_held = self._requests_until_held = None
        self._flows.set()
        await self.accept()

    # --- running -------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        await self._listen()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stop_listening()

    async def _listen(self) -> None:
        server = await self._listener.enter_async_context(listening(self._accept, port=self.port))
        self.port, self._listens = port_of(server), True

    async def _stop_listening(self) -> None:
        await self._listener.aclose()
        self._listens = False

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        try:
            onward_reader, onward_writer = await asyncio.open_connection("127.0.0.1", self._server_port)
        except OSError:
            writer.transport.abort()
            self._writers.discard(writer)
            return
        self._writers.add(onward_writer)
        pumps = {
            asyncio.create_task(self._pump(reader, onward_writer, self._passing_requests)),
            asyncio.create_task(self._pump(onward_reader, writer, self._passing_replies)),
        }
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            for end in (writer, onward_writer):
                end.transport.abort()
                self._writers.discard(end)
            await asyncio.gather(*pumps, return_exceptions=True)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passing: Callable[[bytes], bytes | None]
    ) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                if pause := self.delay():
                    await asyncio.sleep(pause)
                await self._flows.wait()
                allowed = passing(data)
                if allowed is None:
                    writer.write(data)
                    await writer.drain()
                    continue
                writer.write(allowed)
                await writer.drain()
                return

    def _passing_requests(self, data: bytes) -> bytes | None:
        """None: all of it. Otherwise what may still pass before the cut."""
        if self._requests_until_held is not None:
            self._requests_until_held -= len(data)
            if self._requests_until_held <= 0:
                self._flows.clear()
                self._requests_until_held = None
        if self._requests_left is not None:
            if self._requests_left < len(data):
                allowed, self._requests_left = data[: self._requests_left], None
                self.forwarded_bytes += len(allowed)
                return allowed
            self._requests_left -= len(data)
        self.forwarded_bytes += len(data)
        return None

    def _passing_replies(self, data: bytes) -> bytes | None:
        if self._replies_until_held is not None:
            self._replies_until_held -= len(data)
            if self._replies_until_held <= 0:
                self._flows.clear()
                self._replies_until_held = None
        if self._replies_left is not None:
            if self._replies_left < len(data):
                allowed, self._replies_left = data[: self._replies_left], None
                return allowed
            self._replies_left -= len(data)
        return None
