"""Real servers, started once for each worker, and emptied before each test that uses them."""

import pytest

from tests import servers
from tests.real_servers import (
    cloudflare_server,
    mariadb_server,
    memcached_server,
    npm_upstash_server,
    postgres_server,
    redis_server,
    upstash_gateway,
    valkey_cluster,
    valkey_server,
)

__all__ = [
    "cloudflare",
    "cloudflare_server",
    "mariadb",
    "mariadb_server",
    "memcached",
    "memcached_server",
    "npm_upstash_server",
    "postgres",
    "postgres_server",
    "redis",
    "redis_server",
    "upstash_gateway",
    "valkey",
    "valkey_cluster",
    "valkey_server",
]


@pytest.fixture
def valkey(valkey_server: servers.Server) -> servers.Server:
    valkey_server.ask("FLUSHALL")
    return valkey_server


@pytest.fixture
def redis(redis_server: servers.Server) -> servers.Server:
    redis_server.ask("FLUSHALL")
    return redis_server


@pytest.fixture
def postgres(postgres_server: servers.PostgresServer) -> servers.PostgresServer:
    postgres_server.empty()
    return postgres_server


@pytest.fixture
def mariadb(mariadb_server: servers.MariadbServer) -> servers.MariadbServer:
    mariadb_server.empty()
    return mariadb_server


@pytest.fixture
def memcached(memcached_server: servers.MemcachedServer) -> servers.MemcachedServer:
    memcached_server.empty()
    return memcached_server


@pytest.fixture
def cloudflare(cloudflare_server: servers.CloudflareServer) -> servers.CloudflareServer:
    cloudflare_server.empty()
    return cloudflare_server
