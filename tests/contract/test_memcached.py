"""Memcached keeps what it promises of the contract, and refuses the rest."""

import pytest

from keystead.testing import StoreContract
from tests.servers import Server


class TestMemcached(StoreContract):
    @pytest.fixture
    def url(self, memcached: Server) -> str:
        return memcached.url
