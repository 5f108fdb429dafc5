"""A cluster keeps the contract, within a slot."""

import pytest

from keystead import Store
from keystead.errors import BadArgument
from keystead.testing import StoreContract
from tests.servers import Cluster


class TestCluster(StoreContract):
    prefix = b"{t}"
    counts_listeners = False

    @pytest.fixture
    def url(self, valkey_cluster: Cluster) -> str:
        valkey_cluster.flush()
        return valkey_cluster.url

    async def test_the_command_scan_walks_with_a_cursor(self, store: Store) -> None:
        """A cursor belongs to one node; `store.scan` walks them all."""
        with pytest.raises(BadArgument):
            await store.run([("SCAN", "0")])
