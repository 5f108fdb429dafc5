"""The service of the widgets kit on stores of each kind."""

from hashlib import sha256

import pytest

from keystead import Store
from keystead.kits.widgets.service import Widgets
from tests.kits.sharing.visiting import Clock
from tests.kits.widgets.opened import Kept, service_on
from tests.schema.conftest import memory, redis_server, store, store_url, valkey_cluster

__all__ = ["both", "everywhere", "memory", "redis_server", "store", "store_url", "valkey_cluster"]

both = pytest.mark.parametrize("store_url", ["memory", "redis"], indirect=True)
everywhere = pytest.mark.parametrize("store_url", ["memory", "sqlite", "redis"], indirect=True)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def quick_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tokens that cost nothing, for tests that need many."""

    def digest_of(password: str, salt: bytes) -> bytes:
        return sha256(salt + password.encode()).digest()

    monkeypatch.setattr("keystead.parts.passwords._hash", digest_of)


@pytest.fixture
def widgets(store: Store, clock: Clock) -> Widgets:
    """The service on the store that the test names as its parameter."""
    return service_on(store, clock)


@pytest.fixture
def kept(store: Store) -> Kept:
    return Kept(store)
