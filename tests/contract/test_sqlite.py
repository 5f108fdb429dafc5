"""SQLite keeps the contract, in memory and in a file."""

from pathlib import Path

import pytest

from keystead.testing import StoreContract


class TestMemory(StoreContract):
    @pytest.fixture
    def url(self) -> str:
        return "memory://"

    @pytest.fixture
    async def other(self) -> None:
        """Each connection to memory has a store of its own."""


class TestSqlite(StoreContract):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path}/keystead.db"
