"""Shared by the tests of data sessions: an empty store of each kind, and a clock."""

from typing import Any

import pytest

from keystead import Store
from keystead.parts.datasessions import DataSession, DataSessions, Gone, Policy, data_session_keys
from tests.every_store import mariadb_server, on, postgres_server, store, stores
from tests.parts.sessions.conftest import Clock, in_every_order, ordered
from tests.real_servers import redis_server, valkey_cluster, valkey_server

__all__ = [
    "everywhere",
    "in_every_order",
    "mariadb_server",
    "ordered",
    "postgres_server",
    "redis_server",
    "store",
    "stores",
    "valkey_cluster",
    "valkey_server",
]

everywhere = on("memory", "redis", "cluster", "sqlite", "postgres", "mariadb")

POLICY = Policy(idle="1h", absolute="24h", cap=3)
ANONYMOUS = Policy(idle="10m", absolute="2h", cap=2)
MINUTE_MS = 60_000
HOUR_MS = 3_600_000


def sessions_on(store: Store, clock: Clock, **options: Any) -> DataSessions:
    """Sessions as in another process on the same store."""
    return DataSessions(data_session_keys(POLICY, ANONYMOUS)(store, now_ms=clock), POLICY, ANONYMOUS, **options)


def live(found: DataSession | Gone) -> DataSession:
    assert isinstance(found, DataSession), found
    return found


async def keys_of(store: Store) -> set[str]:
    return {key.decode() async for page in store.scan() for key in page}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def sessions(store: Store, clock: Clock) -> DataSessions:
    return sessions_on(store, clock)
