"""Database outages: reported in time, and no process is kept from exiting."""

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection, insert, select, text

from keystead.errors import Contended, StoreUnavailable
from keystead.parts.tables import insert_new, open_tables
from tests.every_database import on_databases
from tests.parts.tables.things import TEST_TABLES, THINGS
from tests.servers import MariadbServer, PostgresServer

ROOT = Path(__file__).parents[3]
EXITS = """
import asyncio, sys
from keystead.errors import StoreUnavailable
from keystead.parts.tables import open_tables
from tests.parts.tables.things import TEST_TABLES
from tests.parts.tables.worker import add_one

async def main():
    tables = open_tables(sys.argv[1], TEST_TABLES)
    await tables.open()
    print("open", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    try:
        await tables.write(add_one)
    except StoreUnavailable as error:
        print(error.outcome, flush=True)

asyncio.run(main())
"""


def names(connection: Connection) -> list[str]:
    return list(connection.execute(select(THINGS.c.name)).scalars())


@on_databases("mariadb")
def test_a_hanging_server_times_out_and_the_process_exits(database_url: str, mariadb_server: MariadbServer) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", EXITS, f"{database_url}?timeout=300ms"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        mariadb_server.pause()
        try:
            said, _ = process.communicate("go\n", timeout=300)  # the server stays silent until then
        finally:
            mariadb_server.resume()
    assert (said, process.returncode) == ("not-sent\n", 0)
    assert mariadb_server.query("SELECT * FROM keystead_test_things") == []


@on_databases("postgres")
async def test_a_connection_lost_before_the_commit_is_retried_and_one_lost_in_it_is_an_unknown_outcome(
    database_url: str, postgres_server: PostgresServer
) -> None:
    tries: list[int] = []

    def severed(connection: Connection) -> None:
        insert_new(connection, THINGS, {"name": f"{len(tries)}", "number": 1})
        tries.append(connection.execute(text("SELECT pg_backend_pid()")).scalar_one())
        postgres_server.query(f"SELECT pg_terminate_backend({tries[-1]}, 5000)")

    def severed_once(connection: Connection) -> None:
        if not tries:
            severed(connection)
        connection.execute(insert(THINGS).values(name="kept", number=1))

    async with open_tables(database_url, TEST_TABLES) as tables:
        await tables.write(severed_once)
        assert await tables.read(names) == ["kept"]
        with pytest.raises(StoreUnavailable, match="may have taken effect") as raised:
            await tables.write(severed)
        assert (raised.value.outcome, len(tries)) == ("unknown", 2)


async def test_a_locked_file_times_out_and_works_after_it_is_unlocked(tmp_path: Path) -> None:
    async with open_tables(f"sqlite:///{tmp_path}/kept.db?timeout=200ms", TEST_TABLES) as tables:
        with closing(sqlite3.connect(tmp_path / "kept.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises((Contended, StoreUnavailable)):
                await tables.write(lambda connection: insert_new(connection, THINGS, {"name": "a", "number": 1}))
            assert await tables.read(names) == [], "who reads waits for nobody"
            other.execute("ROLLBACK")
        await tables.write(lambda connection: insert_new(connection, THINGS, {"name": "b", "number": 1}))
        assert await tables.read(names) == ["b"]


@on_databases("postgres", "mariadb")
async def test_more_callers_than_connections_all_get_their_turn(database_url: str) -> None:
    async with open_tables(f"{database_url}?pool=2", TEST_TABLES) as tables:
        await asyncio.gather(
            *(
                tables.write(lambda connection, at=at: insert_new(connection, THINGS, {"name": f"{at}", "number": at}))  # type: ignore[misc]
                for at in range(40)
            )
        )
        assert len(await tables.read(names)) == 40
