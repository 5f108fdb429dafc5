"""Tables: transactions are all or nothing, on every database."""

import asyncio
import sys
import threading
from asyncio.subprocess import PIPE
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Connection, insert, select, update

from keystead.errors import BadUrl, BadValue, StoreClosed, StoreDamaged, StoreError, StoreRefused, StoreUnavailable
from keystead.parts.tables import insert_new, locked_row, open_tables, url_beside
from tests.every_database import on_databases
from tests.parts.tables.things import TEST_TABLES, THINGS
from tests.parts.tables.worker import add_one
from tests.servers import PostgresServer

ROOT = Path(__file__).parents[3]


def numbers(connection: Connection) -> dict[str, int]:
    return {row.name: row.number for row in connection.execute(select(THINGS.c.name, THINGS.c.number))}


@on_databases()
async def test_names_are_compared_byte_by_byte_and_words_come_back(database_url: str) -> None:
    names = ["a", "A", "á", "a ", " a", "ä", "a\u0308", "😀", "", "x" * 40]

    def fill(connection: Connection) -> list[bool]:
        return [
            insert_new(connection, THINGS, {"name": name, "words": f"{name} 😀\n", "number": at})
            for at, name in enumerate(names)
        ]

    async with open_tables(database_url, TEST_TABLES) as tables:
        assert await tables.write(fill) == [True] * len(names)
        assert await tables.write(fill) == [False] * len(names)
        assert await tables.read(numbers) == {name: at for at, name in enumerate(names)}
        words = await tables.read(
            lambda connection: connection.execute(select(THINGS.c.words).where(THINGS.c.name == "a ")).scalar_one()
        )
        assert words == "a  😀\n"


@on_databases()
async def test_a_name_that_not_every_database_can_keep_is_refused_and_words_are_made_readable(
    database_url: str,
) -> None:
    async with open_tables(database_url, TEST_TABLES) as tables:
        for name in ("a\0b", "\ud800", "x" * 41, "😀" * 11):
            with pytest.raises(BadValue):
                await tables.write(
                    lambda connection, name=name: connection.execute(insert(THINGS).values(name=name, number=1))  # type: ignore[misc]
                )
        await tables.write(
            lambda connection: connection.execute(insert(THINGS).values(name="a", words="x\0y\ud800z", number=1))
        )
        kept = await tables.read(lambda connection: connection.execute(select(THINGS.c.words)).scalars().all())
        assert kept == ["x\ufffdy\ufffdz"]


@on_databases()
async def test_a_transaction_that_fails_leaves_nothing(database_url: str) -> None:
    def half(connection: Connection) -> None:
        insert_new(connection, THINGS, {"name": "a", "number": 1})
        raise ZeroDivisionError

    async with open_tables(database_url, TEST_TABLES) as tables:
        with pytest.raises(ZeroDivisionError):
            await tables.write(half)
        assert await tables.read(numbers) == {}


@on_databases()
async def test_a_constraint_violation_is_reported_without_values(database_url: str) -> None:
    row = insert(THINGS).values(name="a-secret-word", number=1)
    async with open_tables(database_url, TEST_TABLES) as tables:
        await tables.write(lambda connection: connection.execute(row).rowcount)
        with pytest.raises(StoreError, match="violates a constraint of its table") as raised:
            await tables.write(lambda connection: connection.execute(row).rowcount)
        assert "a-secret-word" not in str(raised.value)
        assert raised.value.__cause__ is None


@on_databases("sqlite", "postgres", "mariadb")
async def test_cancelling_before_the_commit_changes_nothing(database_url: str) -> None:
    inside, go_on = threading.Event(), threading.Event()

    def slow(connection: Connection) -> None:
        insert_new(connection, THINGS, {"name": "a", "number": 1})
        inside.set()
        go_on.wait(300)

    async with open_tables(database_url, TEST_TABLES) as tables:
        task = asyncio.create_task(tables.write(slow))
        await asyncio.to_thread(inside.wait, 10)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()
        await tables.write(lambda connection: insert_new(connection, THINGS, {"name": "b", "number": 2}))
        assert await tables.read(numbers) == {"b": 2}


@on_databases("postgres", "mariadb")
async def test_a_deadlock_is_retried_and_both_succeed(database_url: str) -> None:
    both = threading.Barrier(2)
    tries = {"ab": 0, "ba": 0}

    def crossing(order: str) -> Callable[[Connection], None]:
        def work(connection: Connection) -> None:
            tries[order] += 1
            for at, name in enumerate(order):
                row = update(THINGS).where(THINGS.c.name == name)
                connection.execute(row.values(number=THINGS.c.number + 1))
                if at == 0 and tries[order] == 1:
                    both.wait(300)  # each has one row now, and wants that of the other

        return work

    async with open_tables(database_url, TEST_TABLES) as tables:
        for name in "ab":
            await tables.write(
                lambda connection, name=name: insert_new(connection, THINGS, {"name": name, "number": 0})  # type: ignore[misc]
            )
        await asyncio.gather(*(tables.write(crossing(order)) for order in tries))
        assert await tables.read(numbers) == {"a": 2, "b": 2}
    assert sum(tries.values()) > 2, "nobody was in the way"


@on_databases("postgres", "mariadb")
async def test_concurrent_locks_of_one_row_need_no_retry(database_url: str) -> None:
    asked = select(THINGS.c.number).where(THINGS.c.name == "a")
    runs = 0

    def add(connection: Connection) -> int:
        nonlocal runs
        runs += 1
        number: int = locked_row(connection, asked, THINGS, {"name": "a", "number": 0}).number
        connection.execute(update(THINGS).values(number=number + 1))
        return number

    async with open_tables(database_url, TEST_TABLES) as tables:
        assert await tables.write(add) == 0
        found = await asyncio.gather(*(tables.write(add) for _ in range(60)))
        assert (sorted(found), runs) == (list(range(1, 61)), 61)


@on_databases("sqlite", "postgres", "mariadb")
async def test_two_processes_that_start_together_create_the_tables_once(database_url: str) -> None:
    command = (sys.executable, "-m", "tests.parts.tables.worker", database_url, "20")
    workers = [await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=PIPE, stdout=PIPE) for _ in range(2)]
    for one in workers:
        assert one.stdout is not None
        assert await one.stdout.readline() == b"ready\n"
    async with asyncio.timeout(60):
        await asyncio.gather(*(one.communicate(b"go\n") for one in workers))
    assert [one.returncode for one in workers] == [0, 0]
    async with open_tables(database_url, TEST_TABLES) as tables:
        await asyncio.gather(*(tables.write(add_one) for _ in range(10)))
        assert await tables.read(numbers) == {"a": 50}


@on_databases("postgres")
async def test_connections_that_a_server_ended_are_made_again(
    database_url: str, postgres_server: PostgresServer
) -> None:
    async with open_tables(database_url, TEST_TABLES) as tables:
        await tables.write(add_one)
        postgres_server.query(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE application_name = 'keystead' AND pid <> pg_backend_pid()"
        )
        await tables.write(add_one)
        assert await tables.read(numbers) == {"a": 2}


async def test_a_server_outage_is_reported_without_the_password() -> None:
    for scheme in ("postgresql", "mysql"):
        with pytest.raises(StoreUnavailable, match="is the server running there") as raised:
            await open_tables(f"{scheme}://app:hunter22@127.0.0.1:1/app", TEST_TABLES).open()
        assert "hunter22" not in str(raised.value)


@on_databases("postgres", "mariadb")
async def test_a_missing_database_is_reported(database_url: str) -> None:
    elsewhere = database_url.rpartition("/")[0] + "/nowhere"
    with pytest.raises(StoreRefused, match="there is no such database"):
        await open_tables(elsewhere, TEST_TABLES).open()


async def test_closed_tables_raise_store_closed_and_can_be_reopened(tmp_path: Path) -> None:
    tables = open_tables(f"sqlite:///{tmp_path}/a.db", TEST_TABLES)
    with pytest.raises(StoreClosed, match="not open"):
        await tables.read(numbers)
    for _ in range(2):
        async with tables:
            await tables.open()
            assert await tables.read(numbers) == {}
    with pytest.raises(StoreClosed, match="not open"):
        await tables.read(numbers)


async def test_a_file_of_another_program_is_left_unchanged(tmp_path: Path) -> None:
    from keystead import connect

    async with connect(f"sqlite:///{tmp_path}/store.db"):
        pass
    before = (tmp_path / "store.db").read_bytes()
    with pytest.raises(StoreDamaged, match="choose another file"):
        await open_tables(f"sqlite:///{tmp_path}/store.db", TEST_TABLES).open()
    assert (tmp_path / "store.db").read_bytes() == before


def test_a_store_without_tables_is_refused_with_advice() -> None:
    with pytest.raises(BadUrl, match="redis:// cannot have tables; write sqlite:///"):
        open_tables("redis://127.0.0.1:6379/0", TEST_TABLES)


@pytest.mark.parametrize(
    ("store", "beside"),
    [
        ("sqlite:///keystead.db", "sqlite:///keystead.tables.db"),
        ("sqlite:////var/lib/a.b/kept?timeout=2s", "sqlite:////var/lib/a.b/kept.tables?timeout=2s"),
        ("memory://", "memory://"),
        ("postgresql://app@db/app", "postgresql://app@db/app"),
        ("mysql://app@db/app", "mysql://app@db/app"),
        ("redis://127.0.0.1:6379/0", None),
    ],
)
def test_tables_are_beside_the_store(store: str, beside: str | None) -> None:
    assert url_beside(store) == beside
