"""MariaDB keeps the contract."""

import pytest

from keystead.testing import StoreContract
from tests.servers import DatabaseServer

pytestmark = pytest.mark.matrix  # what PostgreSQL keeps, by the same tables and another dialect


class TestMariadb(StoreContract):
    @pytest.fixture
    def url(self, mariadb: DatabaseServer) -> str:
        return mariadb.url
