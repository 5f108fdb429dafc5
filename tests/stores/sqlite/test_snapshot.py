"""Reads of one turn share a transaction, and still see every commit."""

import asyncio
import os
import sqlite3

import pytest

from keystead.stores.sqlite import SqliteStore, snapshot
from keystead.stores.sqlite.group_commit import CALLS_A_TURN


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


async def test_a_commit_of_another_process_is_seen_from_the_next_turn_on(path: str) -> None:
    async with SqliteStore(path) as store:
        await store.run([("SET", "a", "0")])
        for n in range(1, 20):
            assert await store.run([("GET", "a")]) == [b"%d" % (n - 1)]
            commit_elsewhere(path, b"%d" % n)
            await asyncio.sleep(0)
            assert await store.run([("GET", "a"), ("MGET", "a")]) == [b"%d" % n, [b"%d" % n]]


async def test_reads_are_fresh_even_if_no_turn_ends(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    now_ns = 1
    monkeypatch.setattr("time.monotonic_ns", lambda: now_ns)
    async with SqliteStore(path) as store:
        await store.run([("SET", "a", "0")])
        assert await store.run([("GET", "a")]) == [b"0"]
        commit_elsewhere(path, b"1")
        now_ns += snapshot.LONGEST_NS
        assert await store.run([("GET", "a")]) == [b"1"]


async def test_an_error_of_the_disk_that_ends_the_transaction_ends_nothing_else(path: str) -> None:
    async with SqliteStore(path) as store:
        await store.run([("SET", "a", "0")])
        await store.run([("GET", "a")])
        store._reader.execute("ROLLBACK")  # as SQLite does by itself after such an error
        assert await store.run([("SET", "a", "1"), ("GET", "a")]) == [b"OK", b"1"]
        assert await store.run([("GET", "a")]) == [b"1"]


async def test_reads_of_one_turn_share_a_transaction_that_ends_with_the_turn(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.monotonic_ns", lambda: 1)  # ten reads may take longer than a transaction is kept
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


@pytest.mark.matrix
async def test_the_log_restarts_despite_permanent_readers(path: str) -> None:
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
