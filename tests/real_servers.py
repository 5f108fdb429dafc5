"""Real servers as fixtures, for the folders that name them: started once for each worker, whoever asks first."""

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from typing import Any, TypeVar

import pytest

from tests import servers

Started = TypeVar("Started")


class Running:
    """The servers of a worker. A fixture that two folders import is two fixtures, which share what runs here."""

    def __init__(self, ends: ExitStack) -> None:
        self._ends = ends
        self._started: dict[Callable[..., Any], Any] = {}

    def once(self, start: Callable[..., AbstractContextManager[Started]], *arguments: str) -> Started:
        """The server that this starts. It runs until the worker ends."""
        if start not in self._started:
            self._started[start] = self._ends.enter_context(start(*arguments))
        found: Started = self._started[start]
        return found


@pytest.fixture(scope="session")
def valkey_server(running_servers: Running) -> servers.Server:
    return running_servers.once(servers.valkey)


@pytest.fixture(scope="session")
def redis_server(running_servers: Running) -> servers.Server:
    return running_servers.once(servers.redis)


@pytest.fixture(scope="session")
def upstash_gateway(running_servers: Running) -> servers.GatewayServer:
    """A gateway to a Redis server of its own."""
    return running_servers.once(servers.gateway_on_redis)


@pytest.fixture(scope="session")
def npm_upstash_server(running_servers: Running) -> servers.NpmUpstashServer:
    return running_servers.once(servers.npm_upstash)


@pytest.fixture(scope="session")
def valkey_cluster(running_servers: Running) -> servers.Cluster:
    return running_servers.once(_steady_cluster)


def _steady_cluster() -> AbstractContextManager[servers.Cluster]:
    """Masters alone, who take nobody for lost: no test that shares it fails over, and a busy machine is slow."""
    return servers.cluster(replicas=0, node_timeout_ms=15_000)


@pytest.fixture(scope="session")
def s3_server(running_servers: Running) -> servers.S3Server:
    return running_servers.once(servers.seaweedfs)


@pytest.fixture(scope="session")
def postgres_server(running_servers: Running) -> servers.PostgresServer:
    return running_servers.once(servers.postgres, "-c", "deadlock_timeout=100ms")


@pytest.fixture(scope="session")
def memcached_server(running_servers: Running) -> servers.MemcachedServer:
    return running_servers.once(servers.memcached)


@pytest.fixture(scope="session")
def mariadb_server(running_servers: Running) -> servers.MariadbServer:
    return running_servers.once(servers.mariadb)


@pytest.fixture(scope="session")
def cloudflare_server(running_servers: Running) -> servers.CloudflareServer:
    return running_servers.once(servers.cloudflare)
