"""API keys on stores of every kind."""

import pytest

from keystead import Keyspace, SortedSet, Store, Value, never
from keystead.parts.apikeys import ApiKey, ApiKeys
from tests.every_store import EVERY, mariadb_server, on, postgres_server, redis_server, store, stores, valkey_cluster

__all__ = ["mariadb_server", "postgres_server", "redis_server", "store", "stores", "valkey_cluster"]

everywhere = on(*EVERY, "cluster")


class AppKeys(Keyspace):
    """API keys."""

    index = SortedSet("apikeys", str, lifetime=never("emptied as keys are revoked"), doc="the ids of all")
    key = Value(
        "apikey:{id:alnum}", ApiKey, lifetime=never("revoked"), listed_in=index.by(score="made_ms"), doc="whose it is"
    )


@pytest.fixture
def api_keys(store: Store) -> ApiKeys:
    keys = AppKeys(store)
    return ApiKeys(keys.key, keys.index())
