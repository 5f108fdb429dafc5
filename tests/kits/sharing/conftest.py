"""The sharing kit in an application, on stores of each kind."""

from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path

import pytest

from tests.kits.sharing.visiting import Clock, Running, Visitor, running
from tests.schema.conftest import redis_server, store, store_url, valkey_cluster

__all__ = ["everywhere", "redis_server", "store", "store_url", "valkey_cluster"]

everywhere = pytest.mark.parametrize("store_url", ["memory", "sqlite", "redis", "cluster"], indirect=True)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder for files."""
    return tmp_path / "files"


@pytest.fixture
async def site(folder: Path, clock: Clock) -> AsyncIterator[Running]:
    """The kit on a store in memory, for tests that do not depend on the store."""
    async with running("memory://", folder, clock=clock) as opened:
        yield opened


@pytest.fixture
async def stored_site(store_url: str, folder: Path, clock: Clock) -> AsyncIterator[Running]:
    """The kit on the store that the test requests as its parameter."""
    async with running(store_url, folder, clock=clock) as opened:
        yield opened


@pytest.fixture
def quick_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cheap password hashes, for tests that need many."""

    def digest_of(password: str, salt: bytes) -> bytes:
        return sha256(salt + password.encode()).digest()

    monkeypatch.setattr("keystead.parts.passwords._hash", digest_of)


@pytest.fixture
def visitor(site: Running) -> Visitor:
    return site.visitor()
