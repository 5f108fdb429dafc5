"""Whatever is played on it, a store answers as a real server does."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from keystead import connect
from keystead.stores import Guarantees
from keystead.stores.database.database_store import DatabaseStore
from keystead.stores.memcached import MemcachedStore
from keystead.stores.memcached.memcached_settings import MemcachedSettings
from keystead.stores.sqlite.sqlite_store import MEMORY, SqliteStore, wall_ms
from keystead.testing.oracle import Oracle
from keystead.testing.state_machine import PLAY, StoreUnderTest, machine_of, oracle_on
from tests.servers import DatabaseServer, MemcachedServer, Server


@asynccontextmanager
async def sqlite_at(path: str) -> AsyncIterator[StoreUnderTest]:
    """A store on a clock that can be moved."""
    ahead_ms = 0

    def now_ms() -> int:
        return wall_ms() + ahead_ms

    def advance(ms: int) -> None:
        nonlocal ahead_ms
        ahead_ms += ms

    async with SqliteStore(path, clock=now_ms) as store:
        yield StoreUnderTest(store, now_ms, advance)


@asynccontextmanager
async def redis_at(server: Server) -> AsyncIterator[StoreUnderTest]:
    """A store on a server whose deadlines can be moved."""
    with server.wire() as wire:
        admin = Oracle(wire)
        admin.empty()
        async with connect(server.url) as store:
            yield StoreUnderTest(store, admin.now_ms, admin.advance)


@asynccontextmanager
async def database_at(server: DatabaseServer) -> AsyncIterator[StoreUnderTest]:
    """A store on a database whose clock is the server's, and so many milliseconds ahead of it."""
    ahead_ms = 0

    def advance(ms: int) -> None:
        nonlocal ahead_ms
        ahead_ms += ms

    server.empty()
    opened = connect(server.url)
    assert isinstance(opened, DatabaseStore)
    async with type(opened)(opened.settings, ahead_ms=lambda: ahead_ms) as store:
        # It runs on this machine, so its clock is ours.
        yield StoreUnderTest(store, lambda: wall_ms() + ahead_ms, advance)


@asynccontextmanager
async def memcached_at(server: MemcachedServer) -> AsyncIterator[StoreUnderTest]:
    """A store on a clock that can be moved: the deadlines in its values go by it, and the server's come later."""
    ahead_ms = 0

    def now_ms() -> int:
        return wall_ms() + ahead_ms

    def advance(ms: int) -> None:
        nonlocal ahead_ms
        ahead_ms += ms

    server.empty()
    async with MemcachedStore(MemcachedSettings.of(server.url), clock=now_ms) as store:
        yield StoreUnderTest(store, now_ms, advance)


def play(
    open_subject: Callable[[], AbstractAsyncContextManager[StoreUnderTest]],
    open_oracle: Callable[[], AbstractContextManager[Oracle]],
    examples: int,
    guarantees: Guarantees | None = None,
) -> None:
    machine = machine_of(open_subject, open_oracle, guarantees or Guarantees())
    run_state_machine_as_test(machine, settings=settings(PLAY, max_examples=examples))


few_and_many = pytest.mark.parametrize("examples", [10, pytest.param(120, marks=pytest.mark.matrix)])


@few_and_many
def test_memory_answers_as_redis_does(redis: Server, examples: int) -> None:
    play(lambda: sqlite_at(MEMORY), lambda: oracle_on(redis), examples)


@few_and_many
def test_sqlite_answers_as_redis_does(redis: Server, tmp_path: Path, examples: int) -> None:
    numbers = count()
    play(lambda: sqlite_at(f"{tmp_path}/{next(numbers)}.db"), lambda: oracle_on(redis), examples)


@few_and_many
def test_sqlite_answers_as_valkey_does(valkey: Server, tmp_path: Path, examples: int) -> None:
    numbers = count()
    play(lambda: sqlite_at(f"{tmp_path}/{next(numbers)}.db"), lambda: oracle_on(valkey), examples)


@few_and_many
def test_the_redis_store_answers_as_redis_does(redis: Server, valkey: Server, examples: int) -> None:
    play(lambda: redis_at(valkey), lambda: oracle_on(redis), examples)


@few_and_many
def test_postgresql_answers_as_redis_does(redis: Server, postgres: DatabaseServer, examples: int) -> None:
    play(lambda: database_at(postgres), lambda: oracle_on(redis), examples)


@few_and_many
def test_mariadb_answers_as_redis_does(redis: Server, mariadb: DatabaseServer, examples: int) -> None:
    play(lambda: database_at(mariadb), lambda: oracle_on(redis), examples)


@few_and_many
def test_memcached_answers_as_redis_does(redis: Server, memcached: MemcachedServer, examples: int) -> None:
    guarantees = connect(memcached.url).guarantees
    play(lambda: memcached_at(memcached), lambda: oracle_on(redis), examples, guarantees)
