"""What the tests of feeds share: a keyspace with one, on every store."""

from tests.every_store import mariadb_server, postgres_server, redis_server, store, stores, valkey_cluster

__all__ = ["mariadb_server", "postgres_server", "redis_server", "store", "stores", "valkey_cluster"]
