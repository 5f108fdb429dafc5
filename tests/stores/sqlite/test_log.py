"""The log: it stays small however much is written, and is empty when the store is closed."""

import asyncio
import os
from pathlib import Path

import pytest

from keystead.stores.sqlite import SqliteStore

pytestmark = pytest.mark.anyio

MEGABYTE = 1 << 20


def _log(path: str) -> int:
    return Path(path + "-wal").stat().st_size


@pytest.mark.matrix
async def test_the_log_stays_bounded_under_continuous_small_writes(path: str) -> None:
    async with SqliteStore(path) as store:
        largest = 0

        async def write(task: int) -> None:
            nonlocal largest
            for number in range(700):
                await store.run([("SET", f"{task}:{number}", b"x" * 300)])
                largest = max(largest, _log(path))

        await asyncio.gather(*map(write, range(64)))
        assert 0 < largest < 128 * MEGABYTE  # of 190 that go through it
    assert os.listdir(Path(path).parent) == ["store.db"]


async def test_the_log_stays_bounded_under_continuous_large_writes(path: str) -> None:
    async with SqliteStore(path) as store:
        largest = 0

        async def write(task: int) -> None:
            nonlocal largest
            for number in range(250):
                await store.run([("SET", f"{task}:{number % 20}", b"%d" % number * 20_000)])
                largest = max(largest, _log(path))

        await asyncio.gather(*map(write, range(8)))
        assert 0 < largest < 64 * MEGABYTE  # of 110


async def test_the_log_stays_bounded_while_reads_never_pause(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("keystead.stores.sqlite.sqlite_store.CHECKPOINT_ROWS", 2_000)
    monkeypatch.setattr("keystead.stores.sqlite.sqlite_store.CHECKPOINT_FRAMES", 1_000)
    async with SqliteStore(path) as store:
        largest, writing = 0, True

        async def write(task: int) -> None:
            nonlocal largest
            for number in range(200):
                await store.run([("SET", f"{task}:{number}", b"x" * 1_000)])
                largest = max(largest, _log(path))

        async def look() -> None:
            while writing:
                await store.run([("DBSIZE",)])
                await store.run([("GET", "0:1"), ("EXISTS", "0:1", "0:2")])

        looking = asyncio.ensure_future(look())
        await asyncio.gather(*map(write, range(64)))
        writing = False
        await looking
        assert 0 < largest < 32 * MEGABYTE  # of 60
