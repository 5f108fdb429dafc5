"""One connection that many callers share (multiplexing), for protocols whose replies arrive in the order of requests.

A reply belongs to the first caller in the queue. A cancelled caller keeps its place, and its reply is discarded there,
so it can never reach another caller.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Generic, TypeAlias, TypeVar, cast

from keystead.errors import StoreUnavailable
from keystead.stores.reconnecting_link import ConnectionLost

A = TypeVar("A")
R = TypeVar("R")
Accept: TypeAlias = Callable[[list[R]], None]


class MultiplexedConnection(asyncio.Protocol, Generic[A, R]):
    """`timeout`: how long a caller may wait for its replies before the connection is dropped."""

    def __init__(self, loop: asyncio.AbstractEventLoop, address: A, timeout: float) -> None:
        self.address = address
        self.lost: str | None = None  # the reason, once it is lost
        self._loop = loop
        self._timeout = timeout
        # The future for the replies, their number, the start, and `accept`. Tuples, since every call makes one.
        self._expected: deque[tuple[asyncio.Future[list[R]], int, float, Accept[R] | None]] = deque()
        self._replies: list[R] = []  # of the first caller in the queue, so far
        self._out: list[bytes] = []  # payloads of the last callers in the queue, not sent yet
        self._timer: asyncio.TimerHandle | None = None
        self._transport: asyncio.Transport | None = None

    def send(self, payload: bytes, count: int, now: float, accept: Accept[R] | None = None) -> asyncio.Future[list[R]]:
        """Send requests; the future gets `count` replies, or ConnectionLost.

        `now` is the time of the event loop, which most callers need themselves. `accept` gets the replies as soon as
        they are parsed; whoever awaits the future gets them later, after data that arrived with them.
        """
        future: asyncio.Future[list[R]] = self._loop.create_future()
        if self.lost is not None:
            future.set_exception(ConnectionLost(self.lost, False))
            return future
        self._expected.append((future, count, now, accept))
        if not self._out:
            # One turn later, so that all tasks that are ready now share one write and one round trip (a pipeline).
            self._loop.call_soon(self._flush)
        self._out.append(payload)
        if self._timer is None:
            self._timer = self._loop.call_at(now + self._timeout, self._check_timeout)
        return future

    def close(self, reason: str) -> None:
        """Drop the connection; callers that wait get ConnectionLost."""
        if self._transport is not None:
            self._transport.abort()
        self._end(reason)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def connection_lost(self, error: Exception | None) -> None:
        self._end(f"{self.address} closed the connection" + (f" ({error})" if error else ""))

    def _flush(self) -> None:
        if self.lost is None and self._transport is not None and self._out:
            self._transport.write(self._out[0] if len(self._out) == 1 else b"".join(self._out))
        self._out.clear()

    def _check_timeout(self) -> None:
        """The first caller decides, even if cancelled: replies arrive in order, so no other is served before it."""
        self._timer = None
        if not self._expected:
            return
        deadline = self._expected[0][2] + self._timeout
        if deadline <= self._loop.time():
            self.close(f"{self.address} did not answer within {self._timeout:g} s")
        else:
            self._timer = self._loop.call_at(deadline, self._check_timeout)

    def _end(self, reason: str) -> None:
        if self.lost is not None:
            return
        self.lost = reason
        if self._timer is not None:
            self._timer.cancel()
        sent = len(self._expected) - len(self._out)
        for place, (future, _, _, _) in enumerate(self._expected):
            if not future.done():
                future.set_exception(ConnectionLost(reason, place < sent))
        self._expected.clear()


@asynccontextmanager
async def connecting(connection: MultiplexedConnection[A, R], limit_s: float) -> AsyncIterator[None]:
    """Connect and greet in this block, within the time limit. After an error the connection is closed.

    Raises StoreUnavailable if the server is unreachable or too slow, and errors of the block.
    """
    address = connection.address
    try:
        async with asyncio.timeout(limit_s):
            yield
    except TimeoutError:
        connection.close("it did not answer")
        raise StoreUnavailable(f"{address} did not answer within {limit_s:g} s") from None
    except (OSError, ConnectionLost, UnicodeError) as error:  # UnicodeError: an invalid host name
        connection.close("it failed")
        raise StoreUnavailable(f"cannot reach {address}: {error}; is the server running there?") from None
    except BaseException:
        connection.close("it is unusable")
        raise
