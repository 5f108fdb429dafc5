"""Callers that share commits are isolated: from cancellation, timeouts, errors, size and endless loops of others."""

import asyncio
import os
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from keystead.errors import CommandError, NotANumber, StoreFull, StoreUnavailable, WrongKind
from keystead.stores import Outcome, Reply
from keystead.stores.commands import Call
from keystead.stores.sql.interpreter import HANDLERS
from keystead.stores.sql.key_tables import KeyTables
from keystead.stores.sqlite import SqliteStore
from keystead.stores.sqlite.group_commit import GROUP_COMMANDS, GroupCommit
from tests.stores.sqlite.left import threads
from tests.stores.sqlite.processes import until

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def locked(path: str) -> AsyncIterator[None]:
    """Another connection holds the file, so that writes wait in the queue."""
    with closing(sqlite3.connect(path, isolation_level=None)) as holder:
        holder.execute("BEGIN IMMEDIATE")
        yield
        holder.execute("ROLLBACK")


async def _queued(store: SqliteStore, batches: int) -> None:
    await until(lambda: store._commits.waiting == batches, f"{batches} batches wait")


# --- cancelled and timed out -------------------------------------------------------------------------------


async def test_a_caller_cancelled_before_its_turn_writes_nothing_and_affects_no_other(path: str) -> None:
    async with SqliteStore(path, timeout=20) as store:
        async with locked(path):
            tasks = [asyncio.ensure_future(store.run([("INCRBY", f"k{number}", 1)])) for number in range(10)]
            await _queued(store, 10)
            for task in tasks[::2]:
                task.cancel()
            assert [type(outcome) for outcome in await asyncio.gather(*tasks[::2], return_exceptions=True)] == [
                asyncio.CancelledError
            ] * 5
        assert await asyncio.gather(*tasks[1::2]) == [[1]] * 5
        assert sorted([key async for page in store.scan() for key in page]) == [b"k1", b"k3", b"k5", b"k7", b"k9"]


async def test_callers_cancelled_at_any_moment_leave_every_other_caller_its_own_reply(path: str) -> None:
    async with SqliteStore(path) as store:

        async def ask(number: int) -> None:
            [reply, value] = await store.run([("SET", f"k{number}", f"v{number}"), ("GET", f"k{number}")])
            assert (reply, value) == (b"OK", f"v{number}".encode())

        for turns in range(12):  # cancelled after so many turns of the loop: queued, run, committing, done
            tasks = [asyncio.ensure_future(ask(number)) for number in range(40)]
            for _ in range(turns):
                await asyncio.sleep(0)
            for task in tasks[::3]:
                task.cancel()
            outcomes = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(outcome is None for at, outcome in enumerate(outcomes) if at % 3)
            assert all(outcome is None or isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)


async def test_a_timed_out_caller_has_written_nothing_and_others_continue(path: str) -> None:
    async with SqliteStore(path, timeout=0.2) as store:
        async with locked(path):
            early = asyncio.ensure_future(store.run([("SET", "early", "1")]))
            with pytest.raises(StoreUnavailable, match=r"within 0\.2 s") as raised:
                await early
            assert raised.value.outcome == "not-sent"
            late = asyncio.ensure_future(store.run([("SET", "late", "1")]))
            await _queued(store, 1)
        assert await late == [b"OK"]
        assert await store.run([("EXISTS", "early"), ("EXISTS", "late")]) == [0, 1]


async def test_a_hanging_commit_has_an_unknown_outcome(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = threading.Event()
    commit = GroupCommit._commit

    def hang(lane: GroupCommit, results: list[Any]) -> list[Any]:
        disk.wait(300)
        return commit(lane, results)

    monkeypatch.setattr(GroupCommit, "_commit", hang)
    async with SqliteStore(path, timeout=0.2) as store:
        for work in ([("SET", "light", "1")], [("RPUSH", "heavy", *map(str, range(500)))]):
            disk.clear()
            with pytest.raises(StoreUnavailable) as raised:
                await store.run(work)
            assert raised.value.outcome == "unknown"
            disk.set()
            await until(lambda: not store._commits.busy, "the disk answers again")
        assert await store.run([("EXISTS", "light", "heavy")]) == [2]
        assert await store.run([("SET", "next", "1")]) == [b"OK"]


async def test_closing_while_the_disk_hangs_leaves_no_caller_waiting(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = threading.Event()
    monkeypatch.setattr(GroupCommit, "_commit", lambda lane, results: (disk.wait(300), results)[1])
    store, before = SqliteStore(path, timeout=0.2), threads()
    await store.open()
    writing = asyncio.ensure_future(store.run([("SET", "a", "1")]))
    await until(lambda: store._commits.busy and store._commits.waiting == 0, "the commit is under way")
    try:
        await store.close()
        with pytest.raises(StoreUnavailable) as raised:
            await writing
        assert raised.value.outcome == "unknown"
    finally:
        disk.set()
        await until(lambda: threads() <= before, "its thread has ended")


# --- prepared steps ----------------------------------------------------------------------------------------


async def _add_in_one_group(store: SqliteStore, path: str) -> list[Reply]:
    """The replies of 40 callers that increment one number in different ways."""
    add = store.prepared(lambda key: [("INCRBY", key, 1)], 1)
    async with locked(path):
        tasks: list[asyncio.Future[Any]] = []
        for _ in range(10):
            tasks += [
                asyncio.ensure_future(add(b"n")),
                asyncio.ensure_future(store.run([("INCRBY", "n", 1)])),
                asyncio.ensure_future(store.atomically([("INCRBY", "n", 1)])),
                asyncio.ensure_future(store.atomically([("INCRBY", "n", 1), ("RPUSH", "list", "x")])),
            ]
        await _queued(store, 40)
    answers = await asyncio.gather(*tasks)
    return [answer[0] if isinstance(answer, list) else answer.replies[0] for answer in answers]


async def test_prepared_steps_and_other_writes_of_a_group_see_each_other_in_order(path: str) -> None:
    async with SqliteStore(path) as store:
        assert await _add_in_one_group(store, path) == list(range(1, 41))
        assert await store.run([("GET", "n"), ("LLEN", "list")]) == [b"40", 10]


async def test_prepared_steps_of_a_group_that_was_undone_are_repeated(
    path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with SqliteStore(path) as store:
        flush, faults = store._writing.flush, [sqlite3.OperationalError("a fault"), sqlite3.OperationalError("another")]

        def fail_twice() -> None:
            if faults and store._writing._strings._held:
                raise faults.pop()
            flush()

        monkeypatch.setattr(store._writing, "flush", fail_twice)
        add = store.prepared(lambda key, other: [("INCRBY", key, 1), ("SET", other, key)], 2)
        outcomes = await asyncio.gather(*(add(b"n", b"o%d" % number) for number in range(5)), return_exceptions=True)
        assert faults == []
        failed = [outcome for outcome in outcomes if isinstance(outcome, StoreUnavailable)]
        assert len(failed) == 1  # the second fault met it alone
        assert [outcome.replies for outcome in outcomes if isinstance(outcome, Outcome)] == [
            [number, b"OK"] for number in range(1, 5)
        ]
        assert await store.run([("GET", "n"), ("EXISTS", *(f"o{number}" for number in range(5)))]) == [b"4", 4]


# --- one's errors are one's own ----------------------------------------------------------------------------


async def test_errors_of_one_caller_are_not_those_of_its_group(path: str) -> None:
    async with SqliteStore(path) as store:
        await store.run([("SET", "text", "x"), ("RPUSH", "list", "i")])
        outcomes = await asyncio.gather(
            store.run([("SET", "a", "1")]),
            store.run([("INCRBY", "text", 1), ("SET", "b", "1")]),
            store.atomically([("SET", "c", "1"), ("GET", "list")]),
            store.run([("SET", "d", "1")]),
            return_exceptions=True,
        )
        assert outcomes[0] == outcomes[3] == [b"OK"]
        assert isinstance(outcomes[1], NotANumber)
        assert outcomes[1].replies == [outcomes[1], b"OK"]
        assert isinstance(outcomes[2], WrongKind)
        assert await store.run([("MGET", "a", "b", "c", "d")]) == [[b"1", b"1", None, b"1"]]


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (ValueError("a fault of the program"), ValueError),
        (MemoryError(), MemoryError),
        (OverflowError("too large"), StoreFull),  # what the driver says of a value of 2 GiB
    ],
)
async def test_an_unexpected_error_of_one_batch_does_not_affect_others(
    path: str, monkeypatch: pytest.MonkeyPatch, fault: Exception, said: type[Exception]
) -> None:
    def fail(tables: KeyTables, call: Call) -> Reply:
        raise fault

    monkeypatch.setitem(HANDLERS, "LSET", fail)
    async with SqliteStore(path) as store:
        outcomes = await asyncio.gather(
            store.run([("SET", "a", "1")]),
            store.run([("SET", "b", "1"), ("LSET", "list", 0, "x")]),
            store.run([("SET", "c", "1")]),
            return_exceptions=True,
        )
        assert [outcomes[0], outcomes[2]] == [[b"OK"]] * 2
        assert isinstance(outcomes[1], said)
        assert await store.run([("MGET", "a", "b", "c")]) == [[b"1", None, b"1"]]
        assert await store.run([("SET", "d", "1")]) == [b"OK"]


async def test_a_database_error_that_rolled_back_the_transaction_is_raised(path: str) -> None:
    async with SqliteStore(path) as store:
        [pages] = store._writer.execute("PRAGMA page_count").fetchone()
        store._writer.execute(f"PRAGMA max_page_count = {pages + 4}")
        for large in (
            ("RPUSH", "list", b"x" * 100_000),
            ("SET", "s", b"x" * 100_000),
            ("HSET", "h", "f", b"x" * 99_999),
        ):
            with pytest.raises(StoreFull):
                await store.atomically([("SET", "first", "x"), large])
            assert await store.run([("DBSIZE",)]) == [0]


async def test_an_id_given_in_a_group_that_was_undone_never_leads_to_another_key(path: str) -> None:
    async with SqliteStore(path) as store:
        [pages] = store._writer.execute("PRAGMA page_count").fetchone()
        store._writer.execute(f"PRAGMA max_page_count = {pages + 4}")
        with pytest.raises(StoreFull):
            await store.run([("SET", "undone", "0"), ("RPUSH", "list", b"x" * 100_000)])
        await store.run([("SET", "other", "of another")])
        await store.run([("SET", "undone", "1")])
        assert await store.run([("GET", "other"), ("GET", "undone")]) == [b"of another", b"1"]


# --- sizes -------------------------------------------------------------------------------------------------


async def test_strings_set_over_together_are_set_whatever_became_of_some_of_them(path: str) -> None:
    """They go to SQLite in one call, which counts on each to be there still, without a deadline."""
    names = [f"k{number}" for number in range(8)]
    async with SqliteStore(path) as store:
        await asyncio.gather(*(store.run([("SET", name, "old")]) for name in names))
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("DELETE FROM keys WHERE key = ?", (b"k1",))
        await store.run([("PEXPIRE", "k2", 60_000), ("DEL", "k3", "k4"), ("RPUSH", "k4", "item")])
        values = {name: f"new {name}" for name in names}
        writes = [*((name, "passing") for name in names), *values.items()]
        replies = await asyncio.gather(*(store.run([("SET", name, value)]) for name, value in writes))
        assert replies == [[b"OK"]] * len(writes)
        assert await store.run([("MGET", *names)]) == [[value.encode() for value in values.values()]]
        assert await store.run([("PTTL", "k2"), ("DBSIZE",)]) == [-1, len(names)]


async def test_strings_set_over_between_other_commands_keep_their_order(path: str) -> None:
    async with SqliteStore(path) as store:
        await store.run([("SET", "a", "0"), ("SET", "b", "0")])
        commands: list[tuple[str, ...]] = [
            ("SET", "a", "1"),
            ("SET", "b", "1"),
            ("SET", "a", "2"),
            ("INCRBY", "a", "10"),
            ("SET", "b", "5"),
            ("SET", "a", "7", "GET"),
            ("LPUSH", "b", "x"),
            ("SET", "a", "8"),
            ("SET", "b", "9"),
        ]
        replies = await asyncio.gather(*(store.run([command]) for command in commands), return_exceptions=True)
        assert isinstance(replies.pop(6), WrongKind)
        assert replies == [[b"OK"], [b"OK"], [b"OK"], [12], [b"OK"], [b"12"], [b"OK"], [b"OK"]]
        assert await store.run([("MGET", "a", "b")]) == [[b"8", b"9"]]


async def test_ten_thousand_commands_in_one_batch_get_ten_thousand_replies(path: str) -> None:
    async with SqliteStore(path) as store:
        replies = await store.run([("INCRBY", f"k{number % 100}", 1) for number in range(10_000)])
        assert replies == [number // 100 + 1 for number in range(10_000)]
        assert await store.run([("GET", f"k{number % 100}") for number in range(10_000)]) == [b"100"] * 10_000
        outcome = await store.atomically([("SET", f"a{number}", "x") for number in range(10_000)])
        assert outcome.replies == [b"OK"] * 10_000


async def test_more_callers_than_fit_one_group_are_all_served(path: str) -> None:
    async with SqliteStore(path) as store:
        calls = [store.run([("INCRBY", "n", 1)]) for _ in range(3 * GROUP_COMMANDS)]
        assert sorted(total for [total] in await asyncio.gather(*calls)) == list(range(1, 3 * GROUP_COMMANDS + 1))


async def test_a_value_of_fifty_megabytes_round_trips(path: str) -> None:
    value = b"0123456789" * 5_000_000
    async with SqliteStore(path) as store:
        assert await store.run([("SET", "big", value), ("SET", "small", "x")]) == [b"OK", b"OK"]
        assert (await store.run([("GET", "big")]))[0] == value
        await store.run([("DEL", "big")])
    async with SqliteStore(path) as store:
        assert await store.run([("EXISTS", "big", "small")]) == [1]


async def test_a_value_over_the_limit_is_a_typed_error_of_its_own_batch(path: str) -> None:
    async with SqliteStore(path) as store:
        store._writer.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, 1_000_000)  # the real one takes a gigabyte to reach
        outcomes = await asyncio.gather(
            store.run([("SET", "a", "1")]),
            store.run([("SET", "big", b"x" * 1_000_001)]),
            store.run([("HSET", "h", "f", b"x" * 1_000_001)]),
            store.atomically([("SET", "b", "1"), ("SET", "big", b"x" * 1_000_001)]),
            store.run([("SET", "c", "1")]),
            return_exceptions=True,
        )
        assert [outcomes[0], outcomes[4]] == [[b"OK"]] * 2
        assert all(isinstance(outcome, StoreFull | CommandError) for outcome in outcomes[1:4])
        assert await store.run([("EXISTS", "a", "b", "big", "h", "c")]) == [2]


# --- what runs where ---------------------------------------------------------------------------------------


@pytest.fixture
def ran_in(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """The thread that ran each command."""
    seen: dict[str, list[str]] = {}

    def watched(name: str, handler: Callable[[KeyTables, Call], Reply]) -> Callable[[KeyTables, Call], Reply]:
        def run(tables: KeyTables, call: Call) -> Reply:
            reply = handler(tables, call)
            seen.setdefault(name, []).append(threading.current_thread().name)
            return reply

        return run

    for name, handler in list(HANDLERS.items()):
        monkeypatch.setitem(HANDLERS, name, watched(name, handler))
    return seen


HERE, READER, WRITER = "MainThread", "keystead-read", "keystead-commit"


async def test_small_reads_run_where_they_are_called_and_large_ones_beside_the_event_loop(
    path: str, ran_in: dict[str, list[str]]
) -> None:
    async with SqliteStore(path, timeout=300) as store:
        await store.run(
            [
                ("HSET", "h", *map(str, range(200_000))),
                ("SADD", "s", *map(str, range(1_000))),
                ("ZADD", "z", *map(str, range(2_000))),
                ("RPUSH", "l", *map(str, range(1_000))),
                ("HSET", "small", "f", "v"),
                *(("XADD", "x", "*", "f", "v") for _ in range(1_000)),
            ]
        )
        ran_in.clear()
        [fields] = await store.run([("HGETALL", "h")])
        assert len(fields) == 100_000
        await store.run([("SMEMBERS", "s")])
        await store.run([("ZRANGE", "z", 0, -1)])
        await store.run([("ZCOUNT", "z", "-inf", "inf")])
        await store.run([("LRANGE", "l", 0, -1)])
        await store.run([("XRANGE", "x", "-", "+")])
        await store.run([("MGET", *map(str, range(10_000)))])
        await store.run([("HMGET", "h", *map(str, range(10_000)))])
        await store.run([("DBSIZE",)])
        await store.run([("TYPE", "h")] * 1_000)
        assert {name: set(threads) for name, threads in ran_in.items()} == {
            name: {READER}
            for name in (
                "HGETALL",
                "SMEMBERS",
                "ZRANGE",
                "ZCOUNT",
                "LRANGE",
                "XRANGE",
                "MGET",
                "HMGET",
                "DBSIZE",
                "TYPE",
            )
        }
        ran_in.clear()
        await store.run([("GET", "absent"), ("HGETALL", "small"), ("HGET", "h", "0"), ("HLEN", "h"), ("LLEN", "l")])
        assert {name: set(threads) for name, threads in ran_in.items()} == {
            name: {HERE} for name in ("GET", "HGETALL", "HGET", "HLEN", "LLEN")
        }


async def test_large_writes_run_beside_the_event_loop(path: str, ran_in: dict[str, list[str]]) -> None:
    async with SqliteStore(path) as store:
        await store.run([("SET", "a", "1")])
        await store.run([("INCRBY", "n", 1) for _ in range(5_000)])
        await store.run([("HSET", "h", *map(str, range(10_000)))])
        await store.run([("RPUSH", "l", *map(str, range(10_000)))])
        await store.run([("LTRIM", "l", 0, 5)])
        await store.run([("DEL", *map(str, range(10_000)))])
        await store.atomically([("SADD", "s", *map(str, range(5_000)))])
        await store.run([("SET", "b", b"x" * 1_000_000)])
        await store.run([("GETDEL", "b"), ("SET", "b", b"x" * 1_000_000, "PX", 1_000)])
        await store.atomically([("HINCRBY", "h", "n", 1) for _ in range(1_000)])
        assert {name: sorted(set(threads)) for name, threads in ran_in.items()} == {
            "SET": [HERE, WRITER],
            **{name: [WRITER] for name in ("INCRBY", "HSET", "RPUSH", "LTRIM", "DEL", "SADD", "GETDEL", "HINCRBY")},
        }


# --- turns for all -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["file", ":memory:"])
@pytest.mark.parametrize("verb", ["read", "write", "atomic read", "atomic write", "scan"])
async def test_a_task_in_an_endless_loop_lets_others_have_their_turn(tmp_path: object, path: str, verb: str) -> None:
    async with SqliteStore(path if path == ":memory:" else f"{tmp_path}/store.db") as store:
        await store.run([("SET", f"k{number}", "v") for number in range(50)])
        calls = turns = 0

        async def once() -> None:
            match verb:
                case "read":
                    await store.run([("GET", "k1")])
                case "write":
                    await store.run([("SET", "k1", "v")])
                case "atomic read":
                    await store.atomically([("GET", "k1")])
                case "atomic write":
                    await store.atomically([("SET", "k1", "v")])
                case _:
                    async for _page in store.scan(page=10):
                        pass

        async def greedy() -> None:
            nonlocal calls
            while turns < 5 and calls < 10_000:
                await once()
                calls += 1

        async def patient() -> None:
            nonlocal turns
            while turns < 5:
                await asyncio.sleep(0)
                turns += 1

        await asyncio.gather(greedy(), patient())
        assert calls <= 5 * 40


@pytest.mark.parametrize("path", [":memory:"])
async def test_a_caller_timeout_works_also_on_a_store_that_never_waits(path: str) -> None:
    async with SqliteStore(path) as store:
        calls = 0

        async def write() -> None:
            nonlocal calls
            while calls < 100_000:
                await store.run([("INCRBY", "n", 1)])
                calls += 1

        with pytest.raises(TimeoutError):
            await asyncio.wait_for(write(), 0.01)
        assert calls < 100_000


async def test_a_program_that_changes_its_folder_keeps_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    async with SqliteStore("kept.db") as store:
        monkeypatch.chdir(tmp_path / "elsewhere")
        await store.run([("SADD", "many", *map(str, range(1_000)))])
        [members] = await store.run([("SMEMBERS", "many")])  # so many that another connection reads them
        assert len(members) == 1_000
    assert os.listdir(tmp_path / "elsewhere") == []
