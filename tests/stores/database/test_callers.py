"""Concurrent callers in one or several processes, and conflicts with other programs."""

import asyncio
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from keystead import Store, connect
from keystead.errors import StoreFull, StoreUnavailable, WrongKind
from keystead.stores import holds
from keystead.stores.database.database_session import Statement
from keystead.stores.postgres.postgres_dialect import PostgresDialect
from keystead.stores.worker_thread import Done, WorkerJob, WorkerThread
from tests.servers import DatabaseServer, MariadbServer, PostgresServer
from tests.stores.database.others import (
    connections,
    deadlocks,
    end_connections,
    fresh,
    in_a_thread,
    other,
    until_one_waits,
)
from tests.stores.sqlite.processes import until

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[3]


async def test_sixteen_tasks_that_read_and_write_the_same_keys_meet_no_error(
    server: DatabaseServer, store: Store
) -> None:
    dice = random.Random(4)
    keys = [f"k{n}" for n in range(6)]
    added = dict.fromkeys(keys, 0)

    async def mixed(by: Store) -> None:
        for _ in range(25):
            first, second = dice.sample(keys, 2)
            match dice.randrange(6):
                case 0:
                    await by.run([("INCRBY", first, 1), ("GET", second)])
                    added[first] += 1
                case 1:
                    await by.atomically([("INCRBY", first, 1), ("INCRBY", second, 1)])
                    added[first] += 1
                    added[second] += 1
                case 2:
                    await by.run([("MGET", *keys), ("HGETALL", "h"), ("ZRANGE", "z", 0, -1)])
                case 3:
                    await by.run([("HSET", "h", first, 1, second, 2), ("HDEL", "h", first), ("SADD", "s", first)])
                case 4:
                    await by.run([("ZADD", "z", 1, first), ("RPUSH", "l", first), ("LPOP", "l"), ("ZREM", "z", second)])
                case _:
                    await by.atomically([holds("none", None), ("XADD", "x", "MAXLEN", 5, "*", "f", first)])

    async with connect(server.url) as second_store:
        await asyncio.gather(*(mixed(store if n % 2 else second_store) for n in range(16)))
    totals = await store.run([("GET", key) for key in keys])
    assert [int(total or 0) for total in totals] == [added[key] for key in keys]


async def test_a_read_sees_all_of_an_atomic_step_or_nothing(server: DatabaseServer, store: Store) -> None:
    async with connect(server.url) as reader:
        done = False

        async def write() -> None:
            nonlocal done
            for n in range(40):
                await store.atomically([("SET", "a", n), ("HSET", "h", "n", n), ("ZADD", "z", n, "m"), ("SET", "b", n)])
            done = True

        async def read() -> None:
            while not done:
                a, h, scored, b = await reader.run(
                    [("GET", "a"), ("HGETALL", "h"), ("ZRANGE", "z", 0, -1, "WITHSCORES"), ("GET", "b")]
                )
                if a is not None:
                    assert (h, scored, b) == ({b"n": a}, [[b"m", float(a)]], a)

        await asyncio.gather(write(), read(), read())


async def test_a_deadlock_with_another_program_is_retried_transparently(server: DatabaseServer, store: Store) -> None:
    await store.run([("SET", "a", 1), ("HSET", "h", "f", 1)])
    before = deadlocks(server)
    with other(server) as somebody:
        somebody.touch_fields()
        writing = asyncio.create_task(store.run([("SET", "a", 2), ("HSET", "h", "f", 2)]))
        await until_one_waits(server)

        def close_the_circle() -> None:
            somebody.touch_row("a")
            somebody.do("COMMIT")

        thread = in_a_thread(close_the_circle)
        assert await writing == [b"OK", 0]
        thread.join(300)
    await until(lambda: deadlocks(server) > before, "the deadlock is counted")
    assert await store.run([("GET", "a"), ("HGET", "h", "f")]) == [b"2", b"2"]


async def test_a_serialization_failure_is_retried_transparently(
    postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers use READ COMMITTED, which never fails like this; so this test uses a stricter level."""
    postgres_server.empty()
    tried = 0

    def strict(dialect: PostgresDialect) -> Statement:
        nonlocal tried
        tried += 1
        return Statement("BEGIN ISOLATION LEVEL REPEATABLE READ READ WRITE")

    monkeypatch.setattr(PostgresDialect, "begin", property(strict))
    async with connect(postgres_server.url) as store:
        await store.run([("SET", "a", 1)])
        tried = 0
        with other(postgres_server) as somebody:
            somebody.lock_key(b"a")
            adding = asyncio.create_task(store.run([("INCRBY", "a", 10)]))
            await until_one_waits(postgres_server)  # its state is that of before the change which follows
            somebody.do("UPDATE keystead.keys SET value = '5' WHERE key = 'a'")
            somebody.do("COMMIT")
            assert await adding == [15]
        assert tried == 2
        assert await store.run([("GET", "a")]) == [b"15"]


async def test_a_timeout_waiting_for_a_key_has_the_outcome_not_sent(server: DatabaseServer) -> None:
    async with connect(f"{server.url}?timeout=3s") as store:
        await store.run([("SET", "a", 1), ("SET", "free", 1)])
        with other(server) as somebody:
            somebody.lock_key(b"a")
            writing = asyncio.create_task(store.run([("SET", "a", 2)]))
            await until_one_waits(server)
            assert await store.run([("GET", "a"), ("GET", "free")]) == [b"1", b"1"]  # reads never wait
            assert await store.run([("SET", "free", 2)]) == [b"OK"]
            with pytest.raises(StoreUnavailable, match=r"did not answer within 3 s") as caught:
                await writing
            assert caught.value.outcome == "not-sent"
        assert await store.run([("GET", "a"), ("SET", "a", 3)]) == [b"1", b"OK"]


async def test_writes_of_one_process_to_a_key_are_ordered(store: Store) -> None:
    writes = [asyncio.ensure_future(store.run([("SET", "a", n), ("RPUSH", "seen", n)])) for n in range(50)]
    await asyncio.gather(*writes)
    assert await store.run([("GET", "a"), ("LRANGE", "seen", 0, -1)]) == [b"49", [b"%d" % n for n in range(50)]]


async def test_a_process_has_no_more_connections_than_its_url_allows(server: DatabaseServer) -> None:
    end_connections(server)
    await until(lambda: connections(server) == 0, "those of other tests are gone")
    async with connect(f"{server.url}?pool=3") as store:

        async def work(n: int) -> None:
            for turn in range(10):
                await store.run([("SET", f"k{n}", turn), ("ZRANGE", "z", 0, -1)] if turn % 2 else [("GET", f"k{n}")])

        working = asyncio.gather(*(work(n) for n in range(40)))
        most = 0
        while not working.done():
            most = max(most, connections(server))
            await asyncio.sleep(0.005)
        await working
        assert 1 <= most <= 3
    await until(lambda: connections(server) == 0, "all are closed")


@pytest.mark.everyday("postgres")
async def test_a_program_that_forgets_to_close_ends_and_has_lost_nothing(server: DatabaseServer, store: Store) -> None:
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "tests.stores.database.programs", "forgets", server.url],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (0, "ends\n"), done.stderr
    assert await store.run([("MGET", *(f"k{n}" for n in range(20)))]) == [[b"%d" % n for n in range(20)]]


async def test_a_refused_batch_does_not_affect_others_of_its_group(
    mariadb_server: MariadbServer,
) -> None:
    mariadb_server.empty()
    async with connect(mariadb_server.url) as store:
        too_large = (store.guarantees.value_max_bytes or 0) + 10_000
        good, bad = await asyncio.gather(
            store.run([("SET", "good", 1)]), store.run([("SET", "bad", b"x" * too_large)]), return_exceptions=True
        )
        assert good == [b"OK"]
        assert isinstance(bad, StoreFull)
        assert await store.run([("GET", "good"), ("EXISTS", "bad")]) == [b"1", 0]


def _adding(url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.stores.database.programs", "increments", url, "15"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.everyday("postgres")
async def test_no_increment_of_two_processes_is_lost_though_they_make_the_tables_together(
    server: DatabaseServer,
) -> None:
    """On a new database."""
    url = fresh(server)
    processes = [_adding(url) for _ in range(2)]
    try:
        for process in processes:
            assert process.stdout is not None
            assert await asyncio.to_thread(process.stdout.readline) == "ready\n"
        outputs = [asyncio.to_thread(process.communicate, "go\n", 60) for process in processes]
        await asyncio.gather(*outputs)
        assert [process.returncode for process in processes] == [0, 0]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    async with connect(url) as store:
        replies = await store.run(
            [("GET", "total"), ("HGET", "totals", "all"), *(("GET", f"shared:{n}") for n in range(3))]
        )
    assert replies == [b"180", b"180", b"156", b"144", b"60"]


async def test_reads_of_mariadb_need_no_thread(mariadb_server: MariadbServer, monkeypatch: pytest.MonkeyPatch) -> None:
    mariadb_server.empty()
    large = bytes(range(256)) * 4_000  # arrives in many pieces
    jobs: list[Callable[[], Any]] = []

    def submit(worker: WorkerThread, job: Callable[[], Any], done: Done, *, is_held: bool = False) -> WorkerJob:
        jobs.append(job)
        return submit_job(worker, job, done, is_held=is_held)

    async with connect(mariadb_server.url) as store:
        await store.run([("SET", "large", large), ("SET", "a", 1), ("HSET", "hash", "field", "value")])
        submit_job = WorkerThread.submit
        monkeypatch.setattr(WorkerThread, "submit", submit)
        assert await store.run([("GET", "large")]) == [large]
        assert await store.run([("MGET", "a", "large", "none"), ("HGET", "hash", "field")]) == [
            [b"1", large, None],
            b"value",
        ]
        with pytest.raises(WrongKind):
            await store.run([("GET", "hash")])
        together = await asyncio.gather(*(store.run([("GET", "a")]) for _ in range(40)))
        assert together == [[b"1"]] * 40
        assert jobs == []
        await store.run([("SET", "a", 2)])
        assert jobs != []
        assert await store.run([("GET", "a")]) == [b"2"]
