"""Shared by the tests of decorators: every kind of store."""

from tests.every_store import mariadb_server, postgres_server, redis_server, stores, valkey_cluster

__all__ = ["mariadb_server", "postgres_server", "redis_server", "stores", "valkey_cluster"]
