"""What the tests of the ledger share: one on each database, and a moment."""

from collections.abc import AsyncIterator

import pytest

from keystead.kits.membership.ledger import Ledger
from keystead.kits.membership.tables import MEMBERSHIP_TABLES
from keystead.parts.tables import open_tables
from tests.every_database import database_url, mariadb_server, postgres_server

__all__ = ["database_url", "mariadb_server", "postgres_server"]

NOW_MS = 1_790_000_025_000  # 2026-09-21 in UTC
LIMITS = {"Free": 0, "Pro": 100, "Premium": 200, "Ultimate": 500}


@pytest.fixture
async def ledger(database_url: str) -> AsyncIterator[Ledger]:
    """One with small limits on an empty database."""
    async with open_tables(database_url, MEMBERSHIP_TABLES) as tables:
        yield Ledger(tables, LIMITS)  # type: ignore[arg-type]
