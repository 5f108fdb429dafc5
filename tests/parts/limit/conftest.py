"""Limits on stores of each kind."""

from tests.schema.conftest import memory, redis_server, store, store_url, valkey_cluster

__all__ = ["memory", "redis_server", "store", "store_url", "valkey_cluster"]
