"""Every store by name, empty, so that tests can name source and target."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.real_servers import redis_server, upstash_gateway, valkey_cluster, valkey_server
from tests.servers import Cluster, GatewayServer, Server

__all__ = ["redis_server", "upstash_gateway", "url_of", "valkey_cluster", "valkey_server"]

UrlOf = Callable[[str], str]


@pytest.fixture
def url_of(request: pytest.FixtureRequest, tmp_path: Path) -> UrlOf:
    def url(name: str) -> str:
        if name == "memory":
            return "memory://"
        if name == "sqlite":
            return f"sqlite:///{tmp_path}/{len(list(tmp_path.iterdir()))}.db"
        if name == "cluster":
            cluster: Cluster = request.getfixturevalue("valkey_cluster")
            cluster.flush()
            return cluster.url
        if name == "upstash":
            gateway: GatewayServer = request.getfixturevalue("upstash_gateway")
            gateway.empty()
            return gateway.upstash_url
        server: Server = request.getfixturevalue(f"{name}_server")
        server.ask("FLUSHALL")
        return server.url

    return url
