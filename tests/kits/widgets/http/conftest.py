"""The widgets kit in an application, on a store in memory unless a test names another."""

from collections.abc import AsyncIterator
from hashlib import sha256

import pytest

from tests.kits.sharing.visiting import Clock
from tests.kits.widgets.http.visiting import Running, Visitor, running
from tests.real_servers import redis_server

__all__ = ["redis_server"]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def _quick_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens that cost nothing: that the hash is slow is held elsewhere."""

    def digest_of(password: str, salt: bytes) -> bytes:
        return sha256(salt + password.encode()).digest()

    monkeypatch.setattr("keystead.parts.passwords._hash", digest_of)


@pytest.fixture
async def site(clock: Clock) -> AsyncIterator[Running]:
    async with running("memory://", clock=clock) as opened:
        yield opened


@pytest.fixture
def visitor(site: Running) -> Visitor:
    return site.visitor()
