"""Shared by the session tests: an empty store of each kind, a clock, and a keyspace with all four families."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from pydantic import Field

from keystead import Keyspace, Sealed, Set, Store, Value, after, connect, link, sliding
from keystead.parts.sessions import Ended, New, Policy, SessionRecord, Sessions, Successor
from keystead.schema.seal import KeyRing
from tests import servers
from tests.parts.sessions.relays import Slots
from tests.schema.conftest import STORES, redis_server, store, store_url, valkey_cluster, valkey_server

__all__ = [
    "RING",
    "AppKeys",
    "AppSession",
    "Clock",
    "everywhere",
    "in_every_order",
    "in_one_step",
    "ordered",
    "redis_server",
    "sessions_of",
    "store",
    "store_url",
    "switches_on",
    "valkey_cluster",
    "valkey_server",
]

everywhere = pytest.mark.parametrize("store_url", STORES, indirect=True)
# Stores on which one atomic step spans any keys.
in_one_step = pytest.mark.parametrize("store_url", [one for one in STORES if one != "cluster"], indirect=True)

# For all orders that two programs can have: whether one step spans any keys or those of a slot makes the difference,
# so what takes thousands of orders in a cluster goes through them in memory.
in_every_order = pytest.mark.parametrize("ordered", ["memory", "slots", "redis", "cluster"], indirect=True)

RING = KeyRing({"test": b"k" * 32})
DAY_MS = 86_400_000


class AppSession(SessionRecord):
    """The user, their settings, and a secret token."""

    theme: str = "light"
    seen: int = 0
    provider_token: Sealed[str] = "the token of the provider"
    fields: dict[str, int] = Field(default_factory=dict)


class AppKeys(Keyspace):
    """The sessions of an application."""

    session = Value(
        "sess:{sid:token}",
        AppSession,
        lifetime=sliding("30d", touch_every="1m"),
        listed_in=link("user_sessions", admits=True),
        owns="lock",
        tag="sid",
    )
    user_sessions = Set("user:{uid}:sessions", str, lifetime=sliding("30d", touch_every="1m"))
    successor = Value("next:{sid:token}", Successor, lifetime=after("10s"), tag="sid")
    end = Value("end:{sid:token}", Ended, lifetime=after("1d"), tag="sid")
    lock = Value("lock:{sid:token}", str, lifetime=after("5s"), tag="sid")


class Clock:
    """A frozen clock. It starts at an unreal time."""

    def __init__(self, now_ms: int = 4_000_000_000_000) -> None:
        self.now_ms = now_ms

    def __call__(self) -> int:
        return self.now_ms

    def pass_ms(self, ms: int) -> None:
        self.now_ms += ms


@pytest.fixture
async def ordered(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """An empty store of the kind that the test names as its parameter, for `every_order`."""
    match request.param:
        case "memory":
            empty = connect("memory://")
        case "slots":
            empty = Slots()
        case "redis":
            server: servers.Server = request.getfixturevalue("redis_server")
            server.ask("FLUSHALL")
            empty = connect(server.url)
        case _:
            cluster: servers.Cluster = request.getfixturevalue("valkey_cluster")
            cluster.flush()
            empty = connect(cluster.url)
    async with empty as store:
        yield store


def switches_on(store: Store, in_slots: int | None = None) -> int | None:
    """How often the turn goes over in `every_order`: without limit where that is a matter of seconds.

    A rotation in a cluster has many steps, and so thousands of orders, of which most say the same.
    """
    if store.guarantees.atomic == "any keys":
        return None
    return in_slots if isinstance(store, Slots) else 2


def sessions_of(store: Store, clock: Clock, policy: Policy | None = None, **options: Any) -> Sessions[AppSession]:
    """Sessions with all options, as in another process on the same store."""
    keys = AppKeys(store, seal=RING, now_ms=clock)
    return Sessions(keys.session, policy, successors=keys.successor, ends=keys.end, **options)


def is_new(made: object) -> New[AppSession]:
    assert isinstance(made, New)
    return made


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def keys(store: Store, clock: Clock) -> AppKeys:
    return AppKeys(store, seal=RING, now_ms=clock)


@pytest.fixture
def sessions(store: Store, clock: Clock) -> Sessions[AppSession]:
    return sessions_of(store, clock)
