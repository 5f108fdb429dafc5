"""A batch keeps its order if the server becomes available in the middle of it.

No real server can do that at a given command, so this one is scripted.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import hiredis
import pytest

import keystead
from keystead.errors import StoreUnavailable
from keystead.testing.reply_comparison import replies_of
from tests.listening import listening, port_of

FAST = "?timeout=1s&connect_timeout=1s"
LOADING = b"-LOADING the dataset\r\n"
DOWN = b"-CLUSTERDOWN the cluster is down\r\n"


class Told:
    """Stores strings, and replies to the next commands with scripted errors."""

    def __init__(self) -> None:
        self.port = 0
        self.held: dict[bytes, bytes] = {}
        self.errors: list[bytes | None] = []

    def answer(self, name: bytes, *args: bytes) -> bytes:
        if name in (b"GET", b"SET") and self.errors and (error := self.errors.pop(0)) is not None:
            return error
        match name:
            case b"GET":
                value = self.held.get(args[0])
                return b"$-1\r\n" if value is None else b"$%d\r\n%b\r\n" % (len(value), value)
            case b"SET":
                self.held[args[0]] = args[1]
                return b"+OK\r\n"
            case b"CLUSTER":
                return b"*1\r\n*3\r\n:0\r\n:16383\r\n*2\r\n$9\r\n127.0.0.1\r\n:%d\r\n" % self.port
            case b"DEL" | b"EXISTS":
                return b":0\r\n"
        return b"+OK\r\n"


@asynccontextmanager
async def telling() -> AsyncIterator[Told]:
    told = Told()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        commands = hiredis.Reader()
        while data := await reader.read(100_000):
            commands.feed(data)
            while (command := commands.gets()) is not False:
                writer.write(told.answer(*command))

    async with listening(serve) as server:
        told.port = port_of(server)
        yield told


SCHEMES = pytest.mark.parametrize(("scheme", "error"), [("redis", LOADING), ("redis+cluster", DOWN)])


@SCHEMES
async def test_a_command_overtaken_by_a_later_write_is_not_retried(scheme: str, error: bytes) -> None:
    async with telling() as told, keystead.connect(f"{scheme}://127.0.0.1:{told.port}{FAST}") as store:
        told.errors = [error, None]
        [first, second] = await replies_of(store, [("SET", "k", "1"), ("SET", "k", "2")])
        assert isinstance(first, StoreUnavailable)
        assert first.outcome == "not-sent"
        assert second == b"OK"
        assert told.held == {b"k": b"2"}


@SCHEMES
async def test_a_read_behind_a_write_that_is_repeated_is_repeated_too(scheme: str, error: bytes) -> None:
    async with telling() as told, keystead.connect(f"{scheme}://127.0.0.1:{told.port}{FAST}") as store:
        told.errors = [error, None]
        assert await store.run([("SET", "k", "1"), ("GET", "k")]) == [b"OK", b"1"]


@SCHEMES
async def test_a_read_before_a_write_keeps_its_reply(scheme: str, error: bytes) -> None:
    async with telling() as told, keystead.connect(f"{scheme}://127.0.0.1:{told.port}{FAST}") as store:
        told.errors = [None, None, error]
        batch = [("GET", "k"), ("SET", "k", "1"), ("SET", "other", "1")]
        assert await store.run(batch) == [None, b"OK", b"OK"]
        assert told.held == {b"k": b"1", b"other": b"1"}
