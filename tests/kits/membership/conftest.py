"""What the tests of the ledger share: one on each database."""

from collections.abc import AsyncIterator

import pytest

from keystead.kits.membership.ledger import Ledger
from keystead.kits.membership.tables import MEMBERSHIP_TABLES
from keystead.parts.tables import open_tables
from tests.every_database import database_url, mariadb_server, postgres_server
from tests.kits.membership.ledger_worker import LIMITS

__all__ = ["database_url", "mariadb_server", "postgres_server"]


@pytest.fixture
async def ledger(database_url: str) -> AsyncIterator[Ledger]:
    """One with small limits on an empty database."""
    async with open_tables(database_url, MEMBERSHIP_TABLES) as tables:
        yield Ledger(tables, LIMITS)
