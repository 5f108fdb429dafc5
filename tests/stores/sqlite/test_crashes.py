"""kill -9 during concurrent writes: acknowledged writes survive, and the file opens."""

import os
import signal
import sqlite3
from contextlib import closing

import pytest

from keystead.stores.sqlite import SqliteStore
from tests.stores.sqlite.processes import started

pytestmark = pytest.mark.anyio

TIMES = 20


@pytest.mark.matrix
async def test_every_acknowledged_write_survives_kill_9_twenty_times_on_one_growing_file(path: str) -> None:
    singles: list[str] = []
    pairs: list[str] = []
    for run in range(TIMES):
        with started("write_until_killed", path, run) as process:
            assert process.stdout is not None
            # Each time at another point of the writing, so that each part of a commit is hit now and then.
            lines = [process.stdout.readline() for _ in range(64 + 61 * run)]
            os.kill(process.pid, signal.SIGKILL)
            lines += process.stdout.readlines()  # what was told before the kill is in the pipe
        for line in lines:
            kind, name = line.split()
            (singles if kind == "single" else pairs).append(name)

        with closing(sqlite3.connect(path)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        async with SqliteStore(path) as store:
            assert await _values(store, "single", singles) == singles
            assert await _values(store, "left", pairs) == pairs
            await _assert_both_or_neither(store, run)
            await _assert_counters_tell_the_truth(store, run)
    assert len(singles) > TIMES * 64 / 2
    assert len(pairs) > TIMES * 20


async def _values(store: SqliteStore, prefix: str, names: list[str]) -> list[str]:
    [found] = await store.run([("MGET", *(f"{prefix}:{name}" for name in names))]) if names else [[]]
    return ["(missing)" if value is None else value.decode() for value in found]


async def _assert_both_or_neither(store: SqliteStore, run: int) -> None:
    """Also of the steps that were under way: what one part of an atomic step wrote, all of its parts wrote."""
    left = {key.removeprefix(b"left:") async for page in store.scan(f"left:{run}:*") for key in page}
    right = {key.removeprefix(b"right:") async for page in store.scan(f"right:{run}:*") for key in page}
    [pairs] = await store.run([("LRANGE", f"pairs:{run}", 0, -1)])
    assert left == right == set(pairs)
    assert len(pairs) == len(set(pairs))


async def _assert_counters_tell_the_truth(store: SqliteStore, run: int) -> None:
    """A batch of `run` is one commit here: each task's counter counts exactly its single keys."""
    for task in range(32):
        singles = [key async for page in store.scan(f"single:{run}:{task}:*") for key in page]
        [count] = await store.run([("GET", f"count:{run}:{task}")])
        assert int(count or 0) == len(singles)
