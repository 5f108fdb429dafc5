"""Real servers as fixtures, for the folders that name them in their conftest: started once for each worker."""

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


@pytest.fixture(scope="session")
def s3_server() -> Iterator[servers.S3Server]:
    with servers.seaweedfs() as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[servers.PostgresServer]:
    with servers.postgres("-c", "deadlock_timeout=100ms") as server:
        yield server


@pytest.fixture(scope="session")
def memcached_server() -> Iterator[servers.MemcachedServer]:
    with servers.memcached() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb_server() -> Iterator[servers.MariadbServer]:
    with servers.mariadb() as server:
        yield server
