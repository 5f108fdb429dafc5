"""A subject's rows: counted, and deleted in one transaction, next to concurrent writers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from sqlalchemy import event, select

from keystead.kits.membership.service.ledger import Ledger
from keystead.kits.membership.service.tables import MEMBERSHIP_TABLES, PROFILES
from keystead.parts.tables import Tables, open_tables
from tests.every_database import database_url, mariadb_server, on_databases, postgres_server

__all__ = ["database_url", "mariadb_server", "postgres_server"]

NOW_MS = 1_790_000_025_000
EVENTS = "keystead_membership_usage_events"


@pytest.fixture
async def tables(database_url: str) -> AsyncIterator[Tables]:
    async with open_tables(database_url, MEMBERSHIP_TABLES) as opened:
        yield opened


async def write_all(tables: Tables, user: str) -> None:
    """Rows of a user in each table with user rows."""
    ledger = Ledger(tables)
    await ledger.profile_of(user, NOW_MS, email="ann@example.com", full_name="Ann")
    await ledger.grant_bonus(user, "welcome", 100, "welcome", NOW_MS)
    for use in ("e1", "e2"):
        await ledger.record_usage(user, "Pro", use, 10, NOW_MS)
    await ledger.record_plan_change(user, "n1", "Pro", "webhook", NOW_MS)


ROWS = {
    "keystead_membership_usage_events": 2,
    "keystead_membership_token_usage": 1,
    "keystead_membership_bonus_tokens": 1,
    "keystead_membership_license_history": 1,
    "keystead_membership_profiles": 1,
}


@on_databases()
async def test_all_rows_of_one_user_are_counted_and_go_and_those_of_others_stay(tables: Tables) -> None:
    for user in ("123", "124"):
        await write_all(tables, user)
    assert await tables.count_of("membership:123") == ROWS
    assert await tables.count_of("membership:124") == ROWS
    assert await tables.erase("membership:123") == ROWS
    assert await tables.count_of("membership:123") == {}
    assert await tables.erase("membership:123") == {}
    assert await tables.count_of("membership:124") == ROWS


@on_databases("memory")
async def test_an_impossible_user_id_has_no_sessions_and_is_not_an_error(tables: Tables) -> None:
    await write_all(tables, "123")
    wrong = ("", "x" * 1000, "a\0b", "é" * 40, "12", "%")
    for subject in ("membership", "user:123", *(f"membership:{id}" for id in wrong)):
        assert await tables.count_of(subject) == {}
        assert await tables.erase(subject) == {}
    assert await tables.count_of("membership:123") == ROWS


@on_databases("postgres", "mariadb")
async def test_an_erasure_without_rows_does_not_affect_later_rows(tables: Tables, database_url: str) -> None:
    """Rows are added between the search for children and for the parent. Impossible on SQLite."""
    loop = asyncio.get_running_loop()
    async with open_tables(database_url, MEMBERSHIP_TABLES) as others:
        came: list[str] = []

        def looked(_connection: Any, _cursor: Any, statement: str, *_: Any) -> None:
            if statement.startswith(f"DELETE FROM {EVENTS}") and not came:
                came.append(statement)
                use = Ledger(others).record_usage("123", "Pro", "e1", 10, NOW_MS)
                asyncio.run_coroutine_threadsafe(use, loop).result(10)

        event.listen(tables._place.engine, "after_cursor_execute", looked)
        try:
            assert await tables.erase("membership:123") == {}
        finally:
            event.remove(tables._place.engine, "after_cursor_execute", looked)
    await Ledger(tables).record_usage("123", "Pro", "e1", 10, NOW_MS)
    assert (await tables.count_of("membership:123"))[EVENTS] == 1


@on_databases("sqlite", "postgres", "mariadb")
async def test_an_erasure_beside_recordings_breaks_no_rule_of_a_table(tables: Tables) -> None:
    """Erasures interleave with inserts: new rows stay complete."""
    ledger = Ledger(tables)

    async def record(at: int) -> None:
        for _ in range(2):
            await ledger.record_usage("123", "Pro", f"e{at}", 10, NOW_MS)

    async def erase() -> None:
        for _ in range(6):
            await tables.erase("membership:123")

    await asyncio.gather(*(record(at) for at in range(6)), *(erase() for _ in range(3)))
    await tables.erase("membership:123")
    assert await tables.count_of("membership:123") == {}
    assert await tables.read(lambda connection: connection.execute(select(PROFILES)).all()) == []
