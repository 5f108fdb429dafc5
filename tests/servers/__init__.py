"""Real servers for tests: on free loopback ports, in temporary folders, stopped by process id.

    with servers.valkey() as server:
        async with keystead.connect(server.url) as store:
            ...

Nothing has to run already, and nothing is left behind. A server is ready when its context is entered.
"""

from tests.servers.cloudflare_server import CloudflareServer, cloudflare
from tests.servers.database_servers import (
    DatabaseServer,
    MariadbServer,
    PostgresServer,
    mariadb,
    postgres,
    postgres_program,
)
from tests.servers.gateway_server import GatewayServer, gateway, gateway_on_redis
from tests.servers.memcached_server import MemcachedServer, memcached
from tests.servers.node_packages import node_with
from tests.servers.npm_upstash_server import NpmUpstashServer, npm_upstash
from tests.servers.redis_servers import (
    Cluster,
    Sentinels,
    cluster,
    redis,
    redis_program,
    sentinel,
    valkey,
    valkey_program,
)
from tests.servers.s3_server import S3Server, seaweedfs, seaweedfs_program
from tests.servers.server_process import MissingProgram, NotReady, Server, free_port, suspend, wait_until

__all__ = [
    "CloudflareServer",
    "Cluster",
    "DatabaseServer",
    "GatewayServer",
    "MariadbServer",
    "MemcachedServer",
    "MissingProgram",
    "NotReady",
    "NpmUpstashServer",
    "PostgresServer",
    "S3Server",
    "Sentinels",
    "Server",
    "cloudflare",
    "cluster",
    "free_port",
    "gateway",
    "gateway_on_redis",
    "mariadb",
    "memcached",
    "node_with",
    "npm_upstash",
    "postgres",
    "postgres_program",
    "redis",
    "redis_program",
    "seaweedfs",
    "seaweedfs_program",
    "sentinel",
    "suspend",
    "valkey",
    "valkey_program",
    "wait_until",
]
