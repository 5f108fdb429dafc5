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

    async def test_a_scan_visits_every_key_of_all_nodes(self, store: Store) -> None:
        await store.run([("SET", f"spread:{n}", n) for n in range(500)])
        found, cursor, pages = set(), b"0", 0
        while pages == 0 or cursor != b"0":
            [[cursor, page]] = await store.run([("SCAN", cursor, "MATCH", "spread:*", "COUNT", 20)])
            found.update(page)
            pages += 1
        assert found == {b"spread:%d" % n for n in range(500)}
        assert pages > 3

    async def test_a_cursor_from_before_slots_moved_is_refused(self, store: Store) -> None:
        await store.run([("SET", f"spread:{n}", n) for n in range(100)])
        [[cursor, _]] = await store.run([("SCAN", "0", "COUNT", 5)])
        for invalid in (int(cursor) + 1, 1):
            with pytest.raises(BadArgument, match="slots of the cluster have moved"):
                await store.run([("SCAN", invalid)])
