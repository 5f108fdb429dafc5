"""Several processes on one file: no lost writes, one winner, immediate visibility."""

import asyncio
import json
import sqlite3
from contextlib import closing

import pytest

from keystead.stores.sqlite import SqliteStore
from tests.stores.sqlite.processes import all_succeeded, line_of, say, started, until

pytestmark = pytest.mark.anyio


async def test_four_processes_incrementing_one_counter_lose_nothing(path: str) -> None:
    seen = all_succeeded([("increment", path, 500)] * 4)
    # No two increments saw the same total, so none was lost on the way either.
    assert sorted(int(total) for lines in seen for total in lines) == list(range(1, 2_001))
    async with SqliteStore(path) as store:
        assert await store.run([("GET", "counter")]) == [b"2000"]


async def test_four_processes_that_commit_each_increment_alone_lose_nothing(path: str) -> None:
    seen = all_succeeded([("increment_one_after_another", path, 100)] * 4)
    assert sorted(int(total) for lines in seen for total in lines) == list(range(1, 401))
    assert all(lines == sorted(lines, key=int) for lines in seen)


async def test_starting_and_ending_processes_keep_acknowledged_writes(path: str) -> None:
    # Closing any descriptor of SQLite's files would drop the locks that this process holds on them.
    seen = all_succeeded([("come_and_go", path, 15)] * 4)
    assert sorted(int(total) for lines in seen for total in lines) == list(range(1, 601))
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_expired_keys_are_swept_despite_constant_writes_of_other_processes(path: str) -> None:
    all_succeeded([("expire_at_once", path, 60)] * 3)
    async with SqliteStore(path) as store:

        def rows() -> int:
            return int(store._reader.execute("SELECT count(*) FROM keys").fetchone()[0])

        await until(lambda: rows() == 0, "all that expired is swept")


async def test_of_four_processes_that_race_for_a_key_one_wins(path: str) -> None:
    won = all_succeeded([("claim", path, name, 200) for name in "abcd"])
    assert sorted(int(number) for lines in won for number in lines) == list(range(200))
    async with SqliteStore(path) as store:
        for name, lines in zip("abcd", won, strict=True):
            for number in lines:
                assert await store.run([("GET", f"claim:{number}")]) == [name.encode()]


async def test_compare_and_set_never_overwrites_a_concurrent_write(path: str) -> None:
    all_succeeded([("swap", path, 40)] * 4)
    async with SqliteStore(path) as store:
        assert await store.run([("GET", "value")]) == [b"160"]
        # Each value was replaced exactly once: nobody wrote over a value that was not the latest.
        assert await store.run([("LRANGE", "log", 0, -1)]) == [[b"%d" % number for number in range(160)]]


@pytest.mark.parametrize("attempt", range(3))
async def test_processes_that_create_the_file_at_the_same_moment_all_get_it(path: str, attempt: int) -> None:
    all_succeeded([("open_at_once", path)] * 6)
    async with SqliteStore(path) as store:
        assert await store.run([("GET", "opened")]) == [b"6"]


async def test_a_write_acknowledged_in_one_process_is_visible_in_another(path: str) -> None:
    async with SqliteStore(path) as store:
        with started("obey", path) as other:
            assert line_of(other) == "ready"
            for number in range(50):
                await store.run([("SET", "here", str(number))])
                say(other, json.dumps(["GET", "here"]))
                assert line_of(other) == str(number)
                say(other, json.dumps(["SET", "there", str(number)]))
                assert line_of(other) == "OK"
                assert await store.run([("GET", "there")]) == [b"%d" % number]
                # The thread for large reads sees the latest commit too.
                assert await store.run([("DBSIZE",)]) == [2]


async def test_reads_do_not_wait_for_a_process_that_is_writing(path: str) -> None:
    async with SqliteStore(path) as store:
        await store.run([("SET", "a", "1")])
        with started("hold_the_lock", path, "IMMEDIATE") as holder:
            assert line_of(holder) == "ready"
            pending = asyncio.ensure_future(store.run([("SET", "a", "2")]))
            await until(lambda: store._commits.waiting == 1, "a write waits")
            assert await store.run([("GET", "a")]) == [b"1"]
            assert await store.run([("DBSIZE",)]) == [1]
            assert [page async for page in store.scan()] == [[b"a"]]
            assert not pending.done()
            say(holder, "let go")
            assert await pending == [b"OK"]
            assert await store.run([("GET", "a")]) == [b"2"]


async def test_an_atomic_step_is_never_half_seen_by_another_connection(path: str) -> None:
    async with SqliteStore(path) as writer, SqliteStore(path) as reader:
        await writer.atomically([("SET", "left", 0), ("SET", "right", 0)])

        async def write() -> None:
            for number in range(1, 200):
                await writer.atomically([("SET", "left", number), ("SET", "right", number)])

        writing = asyncio.ensure_future(write())
        looks = 0
        while not writing.done():
            [left, right] = (await reader.atomically([("GET", "left"), ("GET", "right")])).replies
            assert left == right
            looks += 1
        await writing
        assert looks > 10


async def test_commits_are_synced_to_disk_before_they_are_acknowledged(path: str) -> None:
    async with SqliteStore(path) as store:
        assert store._writer.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL
        assert store._writer.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
