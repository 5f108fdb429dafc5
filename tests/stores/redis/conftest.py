"""Real servers for each test of the Redis stores; a Valkey server is ready within some 15 ms."""

from collections.abc import AsyncIterator, Iterator

import pytest

from tests import servers
from tests.servers import Server
from tests.stores.redis.proxy import Proxy


@pytest.fixture
def server() -> Iterator[Server]:
    """A fresh Valkey server, which a test may kill, pause or restart."""
    with servers.valkey("--enable-debug-command", "yes") as running:
        yield running


@pytest.fixture
async def proxy(server: Server) -> AsyncIterator[Proxy]:
    """A proxy before that server."""
    async with Proxy(server.port) as running:
        yield running
