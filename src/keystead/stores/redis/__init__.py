"""Redis, Valkey and what speaks their protocol: one server, Sentinel, Cluster.

`hiredis` packs commands and reads replies; the connection is ours. All callers of a process share one connection a
server, and what they send in one turn of the event loop leaves together. A pool of connections, one caller each,
has to wait for a round trip of every caller by itself, and can hand a late reply to the next one.
"""

from keystead.stores.redis.cluster import ClusterStore
from keystead.stores.redis.redis_settings import RedisSettings
from keystead.stores.redis.redis_store import RedisStore
from keystead.stores.store_contract import Store

__all__ = ["ClusterStore", "RedisSettings", "RedisStore", "redis_store"]


def redis_store(url: str) -> Store:
    settings = RedisSettings.of(url)
    return ClusterStore(settings) if settings.topology == "cluster" else RedisStore(settings)
