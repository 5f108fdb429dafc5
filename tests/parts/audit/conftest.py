"""An empty store of each kind, for the audit log tests."""

import pytest

from tests.schema.conftest import STORES, redis_server, store, store_url, valkey_cluster, valkey_server

__all__ = ["everywhere", "in_one_step", "redis_server", "store", "store_url", "valkey_cluster", "valkey_server"]

everywhere = pytest.mark.parametrize("store_url", STORES, indirect=True)
# Stores on which one atomic step spans any keys.
in_one_step = pytest.mark.parametrize("store_url", [one for one in STORES if one != "cluster"], indirect=True)
