"""Shared by the feed tests: a keyspace with a feed, on every store."""

from tests.every_store import mariadb_server, postgres_server, redis_server, store, stores, valkey_cluster

__all__ = ["mariadb_server", "postgres_server", "redis_server", "store", "stores", "valkey_cluster"]
