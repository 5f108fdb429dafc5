"""Real servers for the schema, started once for each worker, and emptied before each test that uses them."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from keystead import Store, connect
from tests import servers
from tests.real_servers import redis_server, valkey_cluster, valkey_server

__all__ = ["STORES", "memory", "redis_server", "store", "store_url", "valkey_cluster", "valkey_server"]

# The stores of the schema tests.
STORES = ("memory", "sqlite", "valkey", "redis", "cluster")


@pytest.fixture
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store of the kind that the test names as its parameter."""
    match request.param:
        case "memory":
            return "memory://"
        case "sqlite":
            return f"sqlite:///{tmp_path}/schema.db"
        case "cluster":
            cluster: servers.Cluster = request.getfixturevalue("valkey_cluster")
            cluster.flush()
            return cluster.url
        case name:
            server: servers.Server = request.getfixturevalue(f"{name}_server")
            server.ask("FLUSHALL")
            return server.url


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    async with connect(store_url) as opened:
        yield opened


@pytest.fixture
async def memory() -> AsyncIterator[Store]:
    async with connect("memory://") as opened:
        yield opened
