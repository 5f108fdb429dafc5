"""MariaDB keeps the contract."""

import pytest

from keystead.testing import StoreContract
from tests.servers import DatabaseServer


class TestMariadb(StoreContract):
    @pytest.fixture
    def url(self, mariadb: DatabaseServer) -> str:
        return mariadb.url
