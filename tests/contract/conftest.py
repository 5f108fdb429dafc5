"""Real servers, started once for each worker, and emptied before each test that uses them."""

from collections.abc import Iterator

import pytest

from keystead.testing import servers


@pytest.fixture(scope="session")
def valkey_server() -> Iterator[servers.Server]:
    with servers.valkey() as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[servers.Server]:
    with servers.redis() as server:
        yield server


@pytest.fixture(scope="session")
def valkey_cluster() -> Iterator[servers.Cluster]:
    with servers.cluster() as cluster:
        yield cluster


@pytest.fixture
def valkey(valkey_server: servers.Server) -> servers.Server:
    valkey_server.ask("FLUSHALL")
    return valkey_server


@pytest.fixture
def redis(redis_server: servers.Server) -> servers.Server:
    redis_server.ask("FLUSHALL")
    return redis_server
