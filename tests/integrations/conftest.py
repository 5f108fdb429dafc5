"""Real applications on a real server, with SQLite and a real Redis."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests import servers
from tests.integrations.serving import Browser, Served, serving

OPTIONS: dict[str, Any] = {"skip": ["/static/"], "csrf_exempt": ["/hook/"]}


@pytest.fixture(scope="session")
def redis() -> Iterator[servers.Server]:
    with servers.redis() as server:
        yield server


@pytest.fixture(scope="session", params=["sqlite", "redis"])
def served(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The Starlette application, on each store."""
    folder = tmp_path_factory.mktemp("served")
    with serving(folder, "starlette", store=store_url(request, request.param, folder), **OPTIONS) as served:
        yield served


def store_url(request: pytest.FixtureRequest, kind: str, folder: Path) -> str:
    if kind == "sqlite":
        return f"sqlite:///{folder / 'sessions.db'}"
    server: servers.Server = request.getfixturevalue("redis")
    return server.url


@pytest.fixture
def browser(served: Served) -> Iterator[Browser]:
    with Browser(served) as browser:
        yield browser


@pytest.fixture
def other(served: Served) -> Iterator[Browser]:
    """Another device."""
    with Browser(served) as browser:
        yield browser
