"""Messages of channels as server-sent events, over a connection of their own."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from urllib.parse import quote

from keystead.errors import BadArgument, StoreRefused, StoreUnavailable
from keystead.stores.mailbox import Mailbox
from keystead.stores.reconnecting_link import ConnectionLost
from keystead.stores.store_contract import Message
from keystead.stores.upstash.http_client import HttpConnection
from keystead.stores.upstash.pipeline_queue import PipelineQueue
from keystead.stores.upstash.upstash_settings import UpstashSettings


class Subscription:
    """`POST /subscribe/channel/channel`: `subscribe,CHANNEL,COUNT` for each, then `message,CHANNEL,DATA`.

    If the connection is lost, the mailbox fails: messages may have been missed.
    """

    def __init__(self, queue: PipelineQueue, settings: UpstashSettings, channels: tuple[str, ...]) -> None:
        self._queue = queue
        self._settings = settings
        self._channels = {channel.encode(): channel for channel in channels}
        self._mailbox = Mailbox()
        self._connection: HttpConnection | None = None
        self._reading: asyncio.Task[None] | None = None
        self._subscribed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._awaited = len(self._channels)
        for one in self._channels:
            if any(other.startswith(one + b",") for other in self._channels):
                raise BadArgument(
                    "a channel cannot be told from one whose name continues it after a comma", "SUBSCRIBE"
                )

    async def begin(self) -> Mailbox:
        """Subscribe, and return once the server has confirmed all channels."""
        settings = self._settings
        path = "/subscribe/" + "/".join(quote(channel, safe="") for channel in self._channels)
        head = self._queue.head(path, ("accept", "text/event-stream"))
        try:
            async with asyncio.timeout(settings.timeout):
                self._connection = await self._queue.pool.take(fresh=True)
                response = await self._connection.begin(head)
                parts = self._connection.parts(response)
                if response.status != 200:
                    raise _refusal(settings.address, response.status, b"".join([part async for part in parts]))
                self._reading = asyncio.create_task(self._read(parts))
                await self._subscribed
        except TimeoutError:
            raise StoreUnavailable(f"{settings.address} did not answer within {settings.timeout:g} s") from None
        except ConnectionLost as lost:
            raise StoreUnavailable(str(lost)) from None
        except ssl.SSLError as error:
            raise StoreRefused(f"no TLS connection to {settings.address}: {error.reason or error}") from None
        return self._mailbox

    async def end(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._queue.pool.give_back(self._connection)
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})

    def fail(self, reason: str) -> None:
        """Readers get an error with this reason."""
        error = StoreUnavailable(
            f"messages may have been missed: {reason}; subscribe again, and catch up from stored data"
        )
        if not self._subscribed.done():
            self._subscribed.set_exception(error)
        self._mailbox.fail(error)

    async def _read(self, parts: AsyncIterator[bytes]) -> None:
        try:
            async for event, data in events(parts):
                if event == b"error":
                    self.fail(data.decode("utf-8", "replace"))
                    return
                self._hear(data)
            self.fail(f"{self._settings.address} ended the stream")
        except ConnectionLost as lost:
            self.fail(str(lost))

    def _hear(self, data: bytes) -> None:
        kind, _, rest = data.partition(b",")
        for channel, name in self._channels.items():
            if not rest.startswith(channel + b","):
                continue
            if kind == b"message":
                self._mailbox.put(Message(name, rest[len(channel) + 1 :]))
            elif kind == b"subscribe":
                self._awaited -= 1
                if self._awaited == 0 and not self._subscribed.done():
                    self._subscribed.set_result(None)
            return


def _refusal(address: str, status: int, body: bytes) -> StoreRefused | StoreUnavailable:
    text = f"{address} refused the subscription ({status}): {body[:200].decode('utf-8', 'replace')}"
    return StoreUnavailable(text) if status >= 500 or status == 429 else StoreRefused(text)


async def events(parts: AsyncIterator[bytes]) -> AsyncIterator[tuple[bytes, bytes]]:
    """The name and the data of each event of a stream."""
    reader, rest = _EventReader(), b""
    async for part in parts:
        *lines, rest = (rest + part).split(b"\n")
        for line in lines:
            event = reader.read(line)
            if event is not None:
                yield event


class _EventReader:
    """Reads the lines of a stream.

    A message of several lines comes as several `data:` lines, and an empty line ends it. A server that sends no empty
    lines has one line for each event; the first event, which confirms a channel, tells. Lines end with a line feed
    alone, so that a message may contain a carriage return; if the very first line ends with both, all of them do.
    """

    def __init__(self) -> None:
        self._ending: bytes | None = None
        self._has_empty_lines = False
        self._name = b""
        self._data: list[bytes] = []

    def read(self, line: bytes) -> tuple[bytes, bytes] | None:
        """The name and the data of the event that this line ends."""
        if self._ending is None:
            self._ending = b"\r" if line.endswith(b"\r") else b""
        line = line.removesuffix(self._ending)
        field, _, value = line.partition(b":")
        if field == b"data":
            self._data.append(value.removeprefix(b" "))
        elif field == b"event":
            self._name = value.strip()
        self._has_empty_lines = self._has_empty_lines or not line
        if not self._data or (line and self._has_empty_lines):
            return None
        event = self._name, b"\n".join(self._data)
        self._name, self._data = b"", []
        return event
