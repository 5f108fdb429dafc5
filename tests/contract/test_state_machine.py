"""Whatever is played on it, a store answers as a real server does."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from keystead import connect
from keystead.stores.sqlite.store import MEMORY, SqliteStore, wall_ms
from keystead.testing.oracle import Oracle
from keystead.testing.servers import Server
from keystead.testing.state_machine import PLAY, Subject, machine_of, oracle_on


@asynccontextmanager
async def sqlite_at(path: str) -> AsyncIterator[Subject]:
    """A store on a clock that can be moved."""
    ahead_ms = 0

    def now_ms() -> int:
        return wall_ms() + ahead_ms

    def advance(ms: int) -> None:
        nonlocal ahead_ms
        ahead_ms += ms

    async with SqliteStore(path, clock=now_ms) as store:
        yield Subject(store, now_ms, advance)


@asynccontextmanager
async def redis_at(server: Server) -> AsyncIterator[Subject]:
    """A store on a server whose deadlines can be moved."""
    with server.wire() as wire:
        admin = Oracle(wire)
        admin.empty()
        async with connect(server.url) as store:
            yield Subject(store, admin.now_ms, admin.advance)


def play(
    open_subject: Callable[[], AbstractAsyncContextManager[Subject]],
    open_oracle: Callable[[], AbstractContextManager[Oracle]],
    examples: int,
) -> None:
    run_state_machine_as_test(machine_of(open_subject, open_oracle), settings=settings(PLAY, max_examples=examples))


@pytest.mark.timeout(300)
def test_memory_answers_as_redis_does(redis: Server) -> None:
    play(lambda: sqlite_at(MEMORY), lambda: oracle_on(redis), 120)


@pytest.mark.timeout(300)
def test_sqlite_answers_as_redis_does(redis: Server, tmp_path: Path) -> None:
    numbers = count()
    play(lambda: sqlite_at(f"{tmp_path}/{next(numbers)}.db"), lambda: oracle_on(redis), 60)


@pytest.mark.timeout(300)
def test_sqlite_answers_as_valkey_does(valkey: Server, tmp_path: Path) -> None:
    numbers = count()
    play(lambda: sqlite_at(f"{tmp_path}/{next(numbers)}.db"), lambda: oracle_on(valkey), 60)


@pytest.mark.timeout(300)
def test_the_redis_store_answers_as_redis_does(redis: Server, valkey: Server) -> None:
    play(lambda: redis_at(valkey), lambda: oracle_on(redis), 60)
