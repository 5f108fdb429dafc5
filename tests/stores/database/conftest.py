"""Both database servers, each started once for each worker, and emptied before each test that uses it."""

from collections.abc import AsyncIterator

import pytest

from keystead import Store, connect
from tests.real_servers import mariadb_server, postgres_server
from tests.servers import DatabaseServer

__all__ = ["mariadb_server", "postgres_server", "server", "store"]


@pytest.fixture(params=["postgres", "mariadb"])
def server(request: pytest.FixtureRequest) -> DatabaseServer:
    server: DatabaseServer = request.getfixturevalue(f"{request.param}_server")
    server.empty()
    return server


@pytest.fixture
async def store(server: DatabaseServer) -> AsyncIterator[Store]:
    async with connect(server.url) as store:
        yield store
