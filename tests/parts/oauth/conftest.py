"""A real OpenID Connect provider, started once for each worker, and a client of it."""

from collections.abc import AsyncIterator, Iterator

import httpx2
import pytest

from keystead.parts.oauth import Client
from tests.oidc import OidcProvider, oidc_provider
from tests.parts.oauth.logging_in import REDIRECT_URI, Clock, registered

PICTURE = "https://example.com/ada.png"


@pytest.fixture(scope="session")
def provider() -> Iterator[OidcProvider]:
    with oidc_provider([REDIRECT_URI], accounts={"ada": {"name": "Ada Lovelace", "picture": PICTURE}}) as running:
        yield running


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(trust_env=False) as client:
        yield client


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def client(provider: OidcProvider, http: httpx2.AsyncClient, clock: Clock) -> Client:
    return Client(registered(provider), http, clock, development=True)
