"""A Memcached, started once for each worker, and emptied before each test that uses it."""

import pytest

from tests.real_servers import memcached_server
from tests.servers import MemcachedServer

__all__ = ["memcached_server", "server"]


@pytest.fixture
def server(memcached_server: MemcachedServer) -> MemcachedServer:
    memcached_server.empty()
    return memcached_server
