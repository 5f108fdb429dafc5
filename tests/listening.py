"""Servers of a few lines, in the process of a test, which leave no connection open when it ends."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
_TURNS = 5  # of the event loop, until a connection that the system has accepted is one that is known here


@asynccontextmanager
async def listening(
    serve: Serve, host: str = "127.0.0.1", port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncIterator[asyncio.Server]:
    """A server that calls this for each connection, and closes it afterwards. All are closed when the block is left."""
    connections: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # It is noted at once. A coroutine would be run by the next turn of the loop, which may be the test's last.
        connections[writer] = asyncio.create_task(served(reader, writer))

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
                await serve(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(connected, host, port, ssl=tls)
    try:
        yield server
    finally:
        # No more are accepted; those that just were become known. A server that is closed between both would lose them.
        for one in server.sockets:
            asyncio.get_running_loop().remove_reader(one.fileno())
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        server.close()
        for writer, task in connections.items():
            task.cancel()
            writer.transport.abort()  # also where somebody has not read all of an answer
        await asyncio.gather(*connections.values(), return_exceptions=True)
        await asyncio.gather(*(writer.wait_closed() for writer in connections), return_exceptions=True)
        await server.wait_closed()


def port_of(server: asyncio.Server) -> int:
    port: int = server.sockets[0].getsockname()[1]
    return port
