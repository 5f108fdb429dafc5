"""MariaDB keeps the contract."""

import pytest

from keystead.testing import StoreContract
from keystead.testing.servers import DatabaseServer


class TestMariadb(StoreContract):
    @pytest.fixture
    def url(self, mariadb: DatabaseServer) -> str:
        return mariadb.url
