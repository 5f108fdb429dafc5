"""Every store keeps the contract. A new store is a class of a line or two here."""

from pathlib import Path

import pytest

from keystead import BadArgument, Store
from keystead.testing import StoreContract
from keystead.testing.servers import Cluster, DatabaseServer, Server


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


class TestValkey(StoreContract):
    @pytest.fixture
    def url(self, valkey: Server) -> str:
        return valkey.url


class TestRedis(StoreContract):
    @pytest.fixture
    def url(self, redis: Server) -> str:
        return redis.url


class TestRedisSocket(StoreContract):
    @pytest.fixture
    def url(self, redis: Server) -> str:
        return f"redis+unix://{redis.socket_path}"


@pytest.mark.xdist_group("postgres")
class TestPostgres(StoreContract):
    @pytest.fixture
    def url(self, postgres: DatabaseServer) -> str:
        return postgres.url


@pytest.mark.xdist_group("mariadb")
class TestMariadb(StoreContract):
    @pytest.fixture
    def url(self, mariadb: DatabaseServer) -> str:
        return mariadb.url


class TestMemcached(StoreContract):
    @pytest.fixture
    def url(self, memcached: Server) -> str:
        return memcached.url


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
