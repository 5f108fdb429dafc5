"""Reads of one turn share a transaction, and still see every commit at once."""

import asyncio
import os
import sqlite3

import pytest

from keystead.stores.sqlite import SqliteStore
from keystead.stores.sqlite.lane import CALLS_A_TURN


class Turns:
    """Counts the turns of the event loop since it was made."""

    def __init__(self) -> None:
        self.count = 0
        self._loop = asyncio.get_running_loop()
        self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self.count += 1


def commit_elsewhere(path: str, value: bytes) -> None:
    """What another process does: a connection that the store knows nothing of."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("UPDATE keys SET value = ? WHERE key = ?", (value, b"a"))
    other.close()


@pytest.mark.parametrize("index", ["mapped", "not to be had"])
async def test_a_commit_of_another_process_is_seen_within_the_same_turn(
    path: str, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if index == "not to be had":

        def refuse(*arguments: object, **named: object) -> None:
            raise OSError

        monkeypatch.setattr("mmap.mmap", refuse)
    async with SqliteStore(path) as store:
        await store.run([("SET", "a", "0")])
        await asyncio.sleep(0)
        turns = Turns()
        for n in range(1, 10):
            assert await store.run([("GET", "a")]) == [b"%d" % (n - 1)]
            commit_elsewhere(path, b"%d" % n)
            assert await store.run([("GET", "a"), ("MGET", "a")]) == [b"%d" % n, [b"%d" % n]]
        assert turns.count == 0


async def test_reads_of_one_turn_share_a_transaction_that_ends_with_the_turn(path: str) -> None:
    async with SqliteStore(path) as store:
        await store.run([("SET", "a", "1")])
        await asyncio.sleep(0)
        statements: list[str] = []
        store._reader.set_trace_callback(statements.append)
        for _ in range(10):
            await store.run([("GET", "a")])
        assert statements.count("BEGIN ") + statements.count("BEGIN") == 1
        assert store._reader.in_transaction
        await asyncio.sleep(0)
        assert not store._reader.in_transaction


async def test_the_log_starts_over_although_somebody_always_reads(path: str) -> None:
    async with SqliteStore(path) as store:

        async def read() -> None:
            while not done.is_set():
                await store.run([("GET", "a")])

        done = asyncio.Event()
        reader = asyncio.create_task(read())
        for n in range(200):
            await store.run([("SET", f"k:{i}", b"%1000d" % n) for i in range(500)])
        done.set()
        await reader
        # 100,000 rows of a kilobyte; a log that never starts over would hold all of them.
        assert os.stat(f"{path}-wal").st_size < 64 << 20


async def test_a_task_that_only_reads_lets_the_transaction_end_every_few_reads(path: str) -> None:
    async with SqliteStore(path) as store:
        turns = Turns()
        for _ in range(CALLS_A_TURN):
            await store.run([("GET", "a")])
        assert turns.count == 1
