"""Redis, Valkey and compatible servers: one server, Sentinel, Cluster.

`hiredis` packs commands and parses replies; the connection is ours. All callers of a process share one connection per
server, and everything they send in one turn of the event loop is one write (a pipeline). With a connection pool, each
caller would take a separate round trip, and a late reply could reach the next caller.
"""

from keystead.stores.redis.redis_settings import RedisSettings
from keystead.stores.store_contract import Store

__all__ = ["store_from_url"]


def store_from_url(url: str) -> Store:
    # Here: the scripts and replies of this package also serve a server that is reached without hiredis (Upstash).
    from keystead.stores.redis.cluster import ClusterStore
    from keystead.stores.redis.redis_store import RedisStore

    settings = RedisSettings.of(url)
    return ClusterStore(settings) if settings.topology == "cluster" else RedisStore(settings)
