"""A real provider, real stores, and the login kit in an application."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests import servers
from tests.kits.login.browsing import ACCOUNT, REDIRECT_URIS, Browser, Clock, Running, login_table, running
from tests.kits.login.front import Front, front_of
from tests.oidc import OidcProvider, oidc_provider


@pytest.fixture(scope="session")
def provider() -> Iterator[OidcProvider]:
    with oidc_provider(REDIRECT_URIS, accounts={ACCOUNT: {"name": "Ada"}}) as process:
        yield process


@pytest.fixture(scope="session")
def redis_server() -> Iterator[servers.Server]:
    with servers.redis() as server:
        yield server


@pytest.fixture
async def front(provider: OidcProvider) -> AsyncIterator[Front]:
    async with front_of(provider) as opened:
        yield opened


@pytest.fixture
def redis_url(redis_server: servers.Server) -> str:
    redis_server.ask("FLUSHALL")
    return redis_server.url


@pytest.fixture(params=["redis", "sqlite"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store that several applications can share."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'login.db'}"
    url: str = request.getfixturevalue("redis_url")
    return url


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def site(provider: OidcProvider, front: Front, clock: Clock) -> AsyncIterator[Running]:
    """The kit on a store in memory, for tests that do not depend on the store."""
    async with running("memory://", login_table(provider, front), clock=clock) as opened:
        yield opened


@pytest.fixture
async def stored_site(store_url: str, provider: OidcProvider, front: Front, clock: Clock) -> AsyncIterator[Running]:
    """The kit on a real Redis, and on SQLite."""
    async with running(store_url, login_table(provider, front), clock=clock) as opened:
        yield opened


@pytest.fixture
async def redis_site(redis_url: str, provider: OidcProvider, front: Front, clock: Clock) -> AsyncIterator[Running]:
    async with running(redis_url, login_table(provider, front), clock=clock) as opened:
        yield opened


@pytest.fixture
def browser(site: Running) -> Browser:
    return site.browser()
