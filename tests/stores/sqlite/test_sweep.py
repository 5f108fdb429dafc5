"""The sweep frees the space of expired keys: completely, in small steps, and never of live keys."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from keystead.stores import required
from keystead.stores.sql.key_tables import DELETE_AT_ONCE
from keystead.stores.sqlite import SqliteStore, sqlite_sweep
from keystead.stores.sqlite.sqlite_tables import SqliteTables
from tests.stores.sqlite.conftest import Clock, Counts
from tests.stores.sqlite.processes import until

pytestmark = pytest.mark.anyio

BIG = 3_000  # entries: far more than are deleted with their key


@pytest.fixture
def wall(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of messages and leases, which is independent of the lifetimes of keys."""
    clock = Clock(1_900_000_000_000)
    monkeypatch.setattr("keystead.stores.sqlite.sqlite_store.wall_ms", clock)
    return clock


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweep a hundred times a second."""
    monkeypatch.setattr("keystead.stores.sqlite.sqlite_store.SWEEP_EVERY_S", 0.01)


async def _make(store: SqliteStore, prefix: str, size: int) -> None:
    numbers = range(size)
    await store.run(
        [
            ("SET", f"{prefix}:string", "x"),
            ("HSET", f"{prefix}:hash", *(str(n) for number in numbers for n in (number, number))),
            ("SADD", f"{prefix}:set", *map(str, numbers)),
            ("ZADD", f"{prefix}:zset", *(str(n) for number in numbers for n in (number, number))),
            ("RPUSH", f"{prefix}:list", *map(str, numbers)),
            *(("XADD", f"{prefix}:stream", f"{number + 1}-1", "f", "v") for number in numbers),
        ]
    )


KINDS = ("string", "hash", "set", "zset", "list", "stream")


async def _expire(store: SqliteStore, prefix: str, ms: int) -> None:
    await store.run([("PEXPIRE", f"{prefix}:{kind}", ms) for kind in KINDS])


@pytest.mark.parametrize("size", [1, DELETE_AT_ONCE, DELETE_AT_ONCE + 1, BIG])
async def test_expired_keys_of_all_kinds_and_sizes_leave_nothing_behind(
    store: SqliteStore, clock: Clock, rows: Counts, size: int
) -> None:
    await _make(store, "dead", size)
    await _expire(store, "dead", 1_000)
    clock.now_ms += 1_000
    await until(lambda: rows() == {}, "everything is swept, with no call to the store")


@pytest.mark.parametrize("size", [1, DELETE_AT_ONCE + 1, BIG])
async def test_deleted_and_overwritten_keys_leave_nothing_behind(store: SqliteStore, rows: Counts, size: int) -> None:
    await _make(store, "deleted", size)
    await store.run([("DEL", *(f"deleted:{kind}" for kind in KINDS))])
    await _make(store, "overwritten", size)
    await store.run([("SET", f"overwritten:{kind}", "x") for kind in KINDS])
    await until(lambda: rows() == {"keys": len(KINDS)}, "only the new strings are left")


async def test_the_living_are_not_touched(store: SqliteStore, clock: Clock, rows: Counts) -> None:
    await _make(store, "living", 200)
    before = rows()
    await _make(store, "later", 200)
    await _expire(store, "later", 1_001)
    await _make(store, "dead", 200)
    await _expire(store, "dead", 1_000)
    both = rows()
    clock.now_ms += 1_000
    await until(lambda: rows() == {table: both[table] * 2 // 3 for table in both}, "the dead are swept, no others")
    clock.now_ms += 1
    await until(lambda: rows() == before, "the later ones are swept too")
    assert await store.run([("LLEN", "living:list"), ("XLEN", "living:stream")]) == [200, 200]


async def test_a_key_that_was_created_again_meanwhile_is_not_removed(
    store: SqliteStore, clock: Clock, rows: Counts
) -> None:
    await _make(store, "again", BIG)
    await _expire(store, "again", 1_000)
    clock.now_ms += 1_000
    # Each under the name of an expired one, whose entries are still to be removed.
    await store.run(
        [
            ("SET", "again:string", "new"),
            ("HSET", "again:hash", "0", "new"),
            ("SADD", "again:set", "0"),
            ("ZADD", "again:zset", 7, "0"),
            ("RPUSH", "again:list", "new"),
            ("XADD", "again:stream", "1-1", "f", "new"),
        ]
    )
    await until(lambda: rows().get("garbage", 0) == 0 and rows()["fields"] == 2, "the old entries are swept")
    assert await store.run(
        [
            ("GET", "again:string"),
            ("HGETALL", "again:hash"),
            ("SMEMBERS", "again:set"),
            ("ZRANGE", "again:zset", 0, -1, "WITHSCORES"),
            ("LRANGE", "again:list", 0, -1),
            ("XRANGE", "again:stream", "-", "+"),
        ]
    ) == [b"new", {b"0": b"new"}, {b"0"}, [[b"0", 7.0]], [b"new"], [[b"1-1", [b"f", b"new"]]]]
    assert rows() == {"keys": 6, "fields": 2, "scored": 1, "items": 1, "entries": 1}


async def test_unswept_keys_are_swept_after_reopening(
    path: str, clock: Clock, rows: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as never:
        never.setattr("keystead.stores.sqlite.sqlite_store.SWEEP_EVERY_S", 3_600)
        async with SqliteStore(path, clock=clock) as store:
            await _make(store, "dead", BIG)
            await _expire(store, "dead", 1_000)
            await _make(store, "deleted", BIG)
            await store.run([("DEL", *(f"deleted:{kind}" for kind in KINDS))])
            clock.now_ms += 1_000
    assert rows()["garbage"] == 5
    async with SqliteStore(path, clock=clock):
        await until(lambda: rows() == {}, "everything is swept, with no call to the store")


async def test_a_sweep_continues_after_the_file_is_unlocked(
    store: SqliteStore, path: str, clock: Clock, rows: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0
    step = SqliteStore._sweep_step

    def counted(store: SqliteStore) -> bool:
        nonlocal tries
        tries += 1
        return step(store)

    monkeypatch.setattr(SqliteStore, "_sweep_step", counted)
    await store.run([("SET", "dead", "x", "PX", 1_000)])
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        clock.now_ms += 1_000
        await until(lambda: tries >= 3, "it gave way, and tried again")
        assert rows() == {"keys": 1}
        holder.execute("ROLLBACK")
    await until(lambda: rows() == {}, "it is swept")


@pytest.mark.parametrize("path", [":memory:"])
async def test_memory_is_swept_too(store: SqliteStore, clock: Clock) -> None:
    await _make(store, "dead", BIG)
    await _expire(store, "dead", 1_000)
    clock.now_ms += 1_000

    def left() -> int:
        tables = ("keys", "fields", "scored", "items", "entries", "garbage")
        return sum(store._writer.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables)

    await until(lambda: left() == 0, "everything is swept")


# --- one step ----------------------------------------------------------------------------------------------


@pytest.fixture
def tables() -> Iterator[SqliteTables]:
    from keystead.stores.sqlite.database_file import prepare

    with closing(prepare(":memory:", 0)) as connection:
        tables = SqliteTables(connection, lambda: 0)
        tables.changes = lambda: connection.total_changes  # type: ignore[attr-defined]
        yield tables


def _step(tables: SqliteTables, limit: int) -> tuple[bool, int]:
    """Whether there may be more, and how many rows the step wrote."""
    changes: Callable[[], int] = tables.changes  # type: ignore[attr-defined]
    before = changes()
    return sqlite_sweep.sweep(tables, 1_000, limit), changes() - before


def _dead_hashes(tables: SqliteTables, count: int, size: int) -> None:
    for number in range(count):
        owner = tables.create(b"%d" % number, 2)
        for field in range(size):
            tables.execute("INSERT INTO fields (owner, field, value) VALUES (?, ?, '')", (owner, field))
        tables.execute("UPDATE keys SET size = ?, expires_at = 1 WHERE id = ?", (size, owner))


@pytest.mark.parametrize(("count", "size"), [(2_000, 0), (2_000, 1), (300, DELETE_AT_ONCE), (20, 500), (1, 5_000)])
def test_a_step_is_small_whatever_there_is_to_remove(tables: SqliteTables, count: int, size: int) -> None:
    _dead_hashes(tables, count, size)
    limit, steps, more = 100, 0, True
    while more:
        more, written = _step(tables, limit)
        # A key, its note in the garbage (in and out), and an entry for each of the limit.
        assert written <= 4 * limit
        steps += 1
    assert steps <= 3 + (count + count * (size + 1)) / limit  # and no step is wasted
    assert not sqlite_sweep.is_due(tables, 1_000)
    for table in ("keys", "fields", "garbage"):
        assert tables.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


def test_a_step_of_old_messages_is_followed_by_another_while_there_are_more(tables: SqliteTables) -> None:
    for number in range(250):
        tables.execute("INSERT INTO messages (channel, data, sent_at) VALUES ('c', ?, ?)", (number, number))
    tables.wall_ms = lambda: sqlite_sweep.MESSAGES_KEPT_MS + 225
    assert sqlite_sweep.is_due(tables, 0)
    assert [_step(tables, 100) for _ in range(3)] == [(True, 100), (True, 100), (False, 25)]
    assert not sqlite_sweep.is_due(tables, 0)
    assert tables.execute("SELECT count(*), min(sent_at) FROM messages").fetchone() == (25, 225)


def test_messages_from_a_clock_that_was_set_back_are_removed(tables: SqliteTables) -> None:
    tables.execute("INSERT INTO messages (channel, data, sent_at) VALUES ('c', '', 4000000000000)")
    assert sqlite_sweep.is_due(tables, 0)
    _step(tables, 100)
    assert not sqlite_sweep.is_due(tables, 0)


def test_steps_become_smaller_when_they_take_long_and_larger_when_they_are_quick() -> None:
    limit = 64
    for _ in range(20):
        limit = sqlite_sweep.next_limit(limit, sqlite_sweep.LONG_S * 2)
    assert limit == sqlite_sweep.FEWEST
    for _ in range(20):
        limit = sqlite_sweep.next_limit(limit, sqlite_sweep.SHORT_S / 2)
    assert limit == sqlite_sweep.MOST
    assert sqlite_sweep.next_limit(100, (sqlite_sweep.LONG_S + sqlite_sweep.SHORT_S) / 2) == 100


async def test_each_sweep_step_is_a_transaction_and_adapts_the_size_of_the_next(
    store: SqliteStore, clock: Clock, rows: Counts, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits: list[int] = []
    real_sweep = sqlite_sweep.sweep

    def seen(tables: SqliteTables, now_ms: int, limit: int) -> bool:
        assert store._writer.in_transaction
        limits.append(limit)
        return real_sweep(tables, now_ms, limit)

    monkeypatch.setattr(sqlite_sweep, "sweep", seen)
    monkeypatch.setattr(sqlite_sweep, "LONG_S", 0.0)  # every step takes too long
    await store.run([("SET", f"dead:{number}", "x", "PX", 1_000) for number in range(200)])
    clock.now_ms += 1_000
    await until(lambda: rows() == {}, "everything is swept")
    assert limits[:4] == [64, 32, 16, 16]
    assert len(limits) >= 9


# --- messages and subscribers ------------------------------------------------------------------------------


async def test_messages_and_registrations_are_swept_when_their_time_is_over(
    path: str, clock: Clock, wall: Clock, rows: Counts
) -> None:
    async with SqliteStore(path, clock=clock) as store:
        async with store.subscribe("channel"):
            await store.run([("PUBLISH", "channel", f"{number}") for number in range(300)])
            assert rows() == {"subscribers": 1, "messages": 300}
        assert rows() == {"messages": 300}
        wall.now_ms += sqlite_sweep.MESSAGES_KEPT_MS + 1
        await until(lambda: rows() == {}, "the messages are swept")


async def test_the_registration_of_a_subscriber_that_is_gone_is_swept(path: str, wall: Clock, rows: Counts) -> None:
    async with SqliteStore(path):
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("INSERT INTO subscribers VALUES ('killed', 'channel', ?)", (wall.now_ms + 30_000,))
        assert rows() == {"subscribers": 1}
        wall.now_ms += 30_001
        await until(lambda: rows() == {}, "its row is swept, though nothing else is due")


# --- ids ---------------------------------------------------------------------------------------------------


async def test_an_id_is_never_given_twice_also_when_all_keys_are_gone(path: str, clock: Clock, rows: Counts) -> None:
    def next_id() -> int:
        with closing(sqlite3.connect(path)) as connection:
            found = connection.execute("SELECT max(id) FROM keys").fetchone()[0]
            assert isinstance(found, int)
            return found

    seen = []
    for _ in range(3):
        async with SqliteStore(path, clock=clock) as store:
            await store.run([("HSET", "h", "f", "v"), ("SET", "s", "x", "PX", 1_000)])
            seen.append(next_id())
            await store.run([("DEL", "h")])
            clock.now_ms += 1_000
            await until(lambda: rows() == {}, "all keys are gone")
    assert seen == sorted(set(seen))


@pytest.mark.parametrize("path", ["file", ":memory:"])
async def test_an_id_of_a_step_that_was_undone_never_leads_to_the_key_that_got_it_afterwards(
    tmp_path: object, path: str
) -> None:
    async with SqliteStore(path if path == ":memory:" else f"{tmp_path}/store.db") as store:
        for undone in (
            [("SET", "undone", "0"), required(("GET", "missing"))],
            [("SET", "undone", "0"), ("GET", "undone"), required(("SET", "missing", "x", "XX"))],
            [("INCRBY", "undone", 1), required(("GETDEL", "missing"))],
            [("SET", "undone", "0", "PX", 1_000_000), required(("DEL", "missing"))],
        ):
            assert not await store.atomically(undone)  # type: ignore[arg-type]
            await store.run([("SET", "other", "of another")])
            assert await store.run([("GET", "undone")]) == [None]
            await store.run([("SET", "undone", "1")])
            assert await store.run([("MGET", "other", "undone"), ("GET", "other"), ("GET", "undone")]) == [
                [b"of another", b"1"],
                b"of another",
                b"1",
            ]
            await store.run([("DEL", "other", "undone")])
