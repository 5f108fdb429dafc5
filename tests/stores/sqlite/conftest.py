"""Shared by the tests of the embedded store: a file, a frozen clock, and the raw tables."""

import sqlite3
from collections.abc import AsyncIterator, Callable
from contextlib import closing
from pathlib import Path

import pytest

from keystead.stores.sqlite import SqliteStore

TABLES = ("keys", "fields", "scored", "items", "entries", "garbage", "messages", "subscribers")


class Clock:
    """A frozen clock in milliseconds since 1970, moved by tests."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "store.db")


@pytest.fixture
def clock() -> Clock:
    return Clock(1_800_000_000_000)


@pytest.fixture
async def store(path: str, clock: Clock) -> AsyncIterator[SqliteStore]:
    async with SqliteStore(path, clock=clock) as store:
        yield store


Counts = Callable[[], dict[str, int]]


@pytest.fixture
def rows(path: str) -> Counts:
    """The number of rows of each non-empty table, read outside of the store."""

    def count() -> dict[str, int]:
        with closing(sqlite3.connect(path)) as connection:
            counts = {table: connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in TABLES}
        return {table: number for table, number in counts.items() if number}

    return count
