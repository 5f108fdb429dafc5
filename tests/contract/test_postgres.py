"""PostgreSQL keeps the contract."""

import pytest

from keystead.testing import StoreContract
from tests.servers import DatabaseServer


class TestPostgres(StoreContract):
    @pytest.fixture
    def url(self, postgres: DatabaseServer) -> str:
        return postgres.url
