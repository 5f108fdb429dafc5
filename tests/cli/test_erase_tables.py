"""`keystead erase` of rows in relational tables."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from keystead import connect
from keystead.cli.erase_command import erase
from keystead.kits.membership.service.ledger import Ledger
from keystead.kits.membership.service.tables import MEMBERSHIP_TABLES
from keystead.kits.teamwork import TeamworkKeys, UserSession
from keystead.kits.teamwork.service.people import People
from keystead.kits.teamwork.service.tables import TEAMWORK_TABLES
from keystead.parts.tables import Tables, open_tables
from tests.cli.program import Program, assert_one_sentence, output
from tests.every_database import database_url, mariadb_server, on_databases, postgres_server
from tests.real_servers import redis_server
from tests.servers import Server

__all__ = ["database_url", "mariadb_server", "postgres_server", "redis_server"]

KEYS = ("--keyspace", "membership")
NOW_MS = 1_790_000_025_000
BEN = UserSession(name="Ben", email="ben@example.com", role="DEVELOPER", team_id=7, team_role="MEMBER")
EVENTS = "keystead_membership_usage_events"
PROFILES = "keystead_membership_profiles"


def fill(url: str, *users: str) -> None:
    async def write() -> None:
        async with open_tables(url, MEMBERSHIP_TABLES) as tables:
            for user in users:
                await Ledger(tables).record_usage(user, "Pro", "e1", 10, NOW_MS)

    asyncio.run(write())


def count_rows(url: str, user: str) -> dict[str, int]:
    async def count() -> dict[str, int]:
        async with open_tables(url, MEMBERSHIP_TABLES) as tables:
            return await tables.count_of(f"membership:{user}")

    return asyncio.run(count())


@pytest.fixture
def beside(program: Program) -> str:
    """The default location of the tables: beside the store."""
    return f"sqlite:///{program.folder}/app.tables.db"


@pytest.fixture
def redis_url(redis_server: Server) -> str:
    redis_server.ask("FLUSHALL")
    return redis_server.url


def test_a_dry_run_shows_the_rows_and_deletes_none(program: Program, beside: str) -> None:
    fill(beside, "123", "124")
    result = program.keystead("erase", "membership:123", *KEYS, "--dry-run")
    assert (result.returncode, result.stderr) == (0, "")
    assert f"delete 1 row of the table {EVENTS}\n" in result.stdout
    assert f"delete 1 row of the table {PROFILES}\n" in result.stdout
    told = output(program.keystead("erase", "membership:123", *KEYS, "--dry-run", "--json"))
    assert (told["rows"][EVENTS], told["rows"][PROFILES], told["erased_rows"]) == (1, 1, None)
    assert count_rows(beside, "123") == told["rows"]


def test_with_yes_only_keys_and_rows_of_the_user_are_erased(program: Program, beside: str) -> None:
    fill(beside, "123", "124")
    program.write(("SET", "usertoken:123", "{}", "PX", 60_000), ("SET", "usertoken:124", "{}", "PX", 60_000))
    result = program.keystead("erase", "membership:123", *KEYS, "--yes")
    assert result.returncode == 0, result.stderr
    assert f"  {EVENTS}: 1 row\n" in result.stdout
    assert result.stdout.endswith("erased membership:123: 1 key and 3 rows, and the keys they own\n")
    assert count_rows(beside, "123") == {}
    assert sum(count_rows(beside, "124").values()) == 3
    assert program.stored_keys() == {"usertoken:124"}
    again = program.keystead("erase", "membership:123", *KEYS, "--yes")
    assert (again.returncode, again.stdout) == (0, "there is no data of membership:123\n")


def test_a_row_cached_by_a_concurrent_request_is_erased_too(
    program: Program, beside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def save() -> None:
        async with open_tables(beside, TEAMWORK_TABLES) as tables:
            await People(tables).save(42, BEN)

    asyncio.run(save())
    erase_rows = Tables.erase

    async def erase_after_a_request(tables: Tables, subject: str) -> dict[str, int]:
        async with connect(program.url) as store:
            keys = TeamworkKeys(store)
            user = await People(tables).find(42)
            assert user is not None
            await keys.user_session(42).set(user)
        return await erase_rows(tables, subject)

    monkeypatch.setattr(Tables, "erase", erase_after_a_request)
    erase("teamwork:42", keyspace=["teamwork"], store=[program.url], database=beside, yes=True)
    assert program.stored_keys() == set()


def test_rows_without_keys_are_erased_too_and_reported_as_json(program: Program, beside: str) -> None:
    fill(beside, "123")
    told = output(program.keystead("erase", "membership:123", *KEYS, "--yes", "--json"))
    assert (told["keys"], sum(told["rows"].values()), told["erased_rows"]) == (0, 3, told["rows"])
    assert count_rows(beside, "123") == {}


def test_without_tables_there_are_no_rows_and_none_are_created(program: Program) -> None:
    program.write(("SET", "usertoken:123", "{}", "PX", 60_000))
    result = program.keystead("erase", "membership:123", *KEYS, "--yes")
    assert (result.returncode, result.stderr) == (0, "")
    assert "row" not in result.stdout
    assert not (program.folder / "app.tables.db").exists()


@on_databases("sqlite", "postgres", "mariadb")
def test_a_named_database_is_searched_and_no_tables_are_created_in_it(program: Program, database_url: str) -> None:
    if database_url.startswith("sqlite"):
        Path(database_url.removeprefix("sqlite:///")).touch()
    named = ("--database", database_url)
    empty = program.keystead("erase", "membership:123", *KEYS, *named, "--yes")
    assert (empty.returncode, empty.stdout) == (0, "there is no data of membership:123\n"), empty.stderr
    would: Any = output(program.keystead("tables", "upgrade", *named, "--dry-run", "--json"))
    assert {one["found"] for one in would} == {0}
    fill(database_url, "123", "124")
    done = output(program.keystead("erase", "membership:123", *KEYS, "--yes", "--json", KEYSTEAD_DATABASE=database_url))
    assert sum(done["erased_rows"].values()) == 3
    assert count_rows(database_url, "123") == {}
    assert sum(count_rows(database_url, "124").values()) == 3


def test_a_missing_or_unreachable_database_is_a_one_line_error_and_deletes_nothing(program: Program) -> None:
    program.write(("SET", "usertoken:123", "{}", "PX", 60_000))
    missing = program.keystead("erase", "membership:123", *KEYS, "--yes", "--database", "sqlite:///typo.db")
    assert_one_sentence(missing, 2, "there is no database typo.db", "--database URL")
    for url in ("postgresql://ann:secret@127.0.0.1:1/app", "mysql://ann:secret@127.0.0.1:1/app"):
        away = program.keystead("erase", "membership:123", *KEYS, "--yes", "--database", url)
        assert_one_sentence(away, 1, "127.0.0.1:1")
        assert "secret" not in away.stderr
    assert program.stored_keys() == {"usertoken:123"}


@pytest.mark.parametrize("named", [False, True])
def test_an_unknown_tables_database_is_reported_with_exit_code_1(program: Program, redis_url: str, named: bool) -> None:
    settings: dict[str, Any] = {"KEYSTEAD_STORE": redis_url}
    if named:
        settings["KEYSTEAD_DATABASE"] = "sqlite:///typo.db"
    result = program.keystead("erase", "membership:123", *KEYS, "--yes", **settings)
    assert (result.returncode, result.stdout) == (1, "there is no data of membership:123\n")
    assert "the tables of membership are not searched" in result.stderr
    assert not (program.folder / "typo.db").exists()
    told = output(program.keystead("erase", "membership:123", *KEYS, "--yes", "--json", **settings))
    assert len(told["notes"]) == 1


def test_on_redis_the_tables_file_of_development_is_searched(program: Program, redis_url: str) -> None:
    fill(f"sqlite:///{program.folder}/keystead.tables.db", "123")
    done = output(program.keystead("erase", "membership:123", *KEYS, "--yes", "--json", KEYSTEAD_STORE=redis_url))
    assert sum(done["erased_rows"].values()) == 3


def test_a_user_of_another_space_has_no_rows(program: Program, beside: str) -> None:
    fill(beside, "123")
    result = program.keystead("erase", f"membership:{'x' * 200}", *KEYS, "--yes")
    assert (result.returncode, result.stderr) == (0, "")
    assert sum(count_rows(beside, "123").values()) == 3
