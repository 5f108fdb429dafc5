"""Schema migrations: from each version to the next, once, and never back."""

import pytest
from sqlalchemy import Connection, inspect, text

from keystead.errors import BadDeclaration, StoreDamaged, StoreRefused
from keystead.parts.tables import TableChange, TableSet, open_tables
from tests.every_database import on_databases
from tests.parts.tables.things import FIRST, TEST_TABLES
from tests.servers import PostgresServer

ran: list[int] = []


def _colour(connection: Connection) -> None:
    ran.append(2)
    if "colour" not in {column["name"] for column in inspect(connection).get_columns("keystead_test_things")}:
        connection.execute(text("ALTER TABLE keystead_test_things ADD COLUMN colour VARCHAR(20)"))


def _interrupted(connection: Connection) -> None:
    _colour(connection)
    raise ZeroDivisionError


LATER = TableSet("test", (FIRST, TableChange(2, "gives things a colour", _colour)))
FAILS = TableSet("test", (FIRST, TableChange(2, "gives things a colour", _interrupted)))


def columns(connection: Connection) -> set[str]:
    return {str(column["name"]) for column in inspect(connection).get_columns("keystead_test_things")}


@on_databases("sqlite", "postgres", "mariadb")
async def test_only_the_steps_that_are_missing_are_run(database_url: str) -> None:
    ran.clear()
    [plan] = await open_tables(database_url, LATER).upgrade(dry_run=True)
    assert (plan.found, plan.version, [one.what for one in plan.changes]) == (
        0,
        2,
        ["makes the things", "gives things a colour"],
    )
    [plan] = await open_tables(database_url, TEST_TABLES).upgrade()
    assert (plan.found, plan.version, ran) == (0, 1, [])
    [plan] = await open_tables(database_url, LATER).upgrade()
    assert (plan.found, plan.version, ran) == (1, 2, [2])
    async with open_tables(database_url, LATER) as tables:
        assert await tables.read(columns) == {"name", "words", "number", "colour"}
        indexes = await tables.read(lambda connection: inspect(connection).get_indexes("keystead_test_things"))
        assert "keystead_test_things_by_number" in {one["name"] for one in indexes}
    assert ran == [2]


@on_databases("sqlite", "postgres", "mariadb")
async def test_a_step_that_was_interrupted_is_run_again(database_url: str) -> None:
    await open_tables(database_url, TEST_TABLES).upgrade()
    with pytest.raises(ZeroDivisionError):
        await open_tables(database_url, FAILS).open()
    async with open_tables(database_url, LATER) as tables:
        assert "colour" in await tables.read(columns)


@on_databases("postgres", "mariadb")
async def test_a_step_may_take_longer_than_a_transaction_may(database_url: str) -> None:
    def slow(connection: Connection) -> None:
        connection.execute(text("SELECT pg_sleep(2.5)" if connection.dialect.name == "postgresql" else "DO SLEEP(2.5)"))

    long = TableSet("test", (FIRST, TableChange(2, "takes its time", slow)))
    [plan] = await open_tables(f"{database_url}?timeout=300ms", long).upgrade()
    assert plan.version == 2


@on_databases("sqlite", "postgres", "mariadb")
async def test_tables_of_a_later_version_are_left_alone(database_url: str) -> None:
    await open_tables(database_url, LATER).upgrade()
    with pytest.raises(StoreDamaged, match=r"created by a later Keystead \(version 2, this one knows 1\)"):
        await open_tables(database_url, TEST_TABLES).open()


@on_databases("postgres")
async def test_a_user_without_ddl_rights_can_use_existing_tables(
    database_url: str, postgres_server: PostgresServer
) -> None:
    postgres_server.query("DROP ROLE IF EXISTS keystead_test_worker")
    postgres_server.query("CREATE ROLE keystead_test_worker LOGIN")
    url = database_url.replace("//postgres@", "//keystead_test_worker@")
    try:
        with pytest.raises(StoreRefused, match="denies this to the user"):
            await open_tables(url, TEST_TABLES).open()
        await open_tables(database_url, TEST_TABLES).upgrade()
        postgres_server.query("GRANT SELECT ON keystead_tables, keystead_test_things TO keystead_test_worker")
        async with open_tables(url, TEST_TABLES) as tables:
            assert await tables.read(columns) == {"name", "words", "number"}
    finally:
        postgres_server.query("DROP OWNED BY keystead_test_worker; DROP ROLE keystead_test_worker")


@on_databases("memory")
async def test_each_set_has_its_own_version(database_url: str) -> None:
    other = TableSet("other", (TableChange(1, "does nothing", lambda connection: None),))
    plans = await open_tables(database_url, LATER, other).upgrade()
    assert [(plan.name, plan.version) for plan in plans] == [("test", 2), ("other", 1)]


def test_steps_are_numbered_from_one_without_a_gap() -> None:
    with pytest.raises(BadDeclaration, match="numbered 1, 2, 3"):
        TableSet("test", (TableChange(2, "makes the things", FIRST.do),))
