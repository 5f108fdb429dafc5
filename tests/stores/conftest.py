"""A real reference server, started once for each worker."""

from collections.abc import Iterator

import pytest

from tests import servers


@pytest.fixture(scope="session")
def redis() -> Iterator[servers.Server]:
    with servers.redis() as server:
        yield server
