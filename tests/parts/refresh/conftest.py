"""Shared by the refresh token tests: a keyspace with sessions, every kind of store, and a frozen clock."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from keystead import KeyRing, Keyspace, Store, Value, after
from keystead.parts.refresh import (
    NewChain,
    RefreshEvent,
    RefreshRecord,
    RefreshTokens,
    Retried,
    Rotated,
    RotationRefused,
)
from tests.every_store import (
    EVERY,
    mariadb_server,
    on,
    postgres_server,
    redis_server,
    store,
    stores,
    valkey_cluster,
)
from tests.parts.sessions.conftest import Clock, in_every_order, ordered

__all__ = [
    "Clock",
    "in_every_order",
    "mariadb_server",
    "ordered",
    "postgres_server",
    "redis_server",
    "store",
    "stores",
    "valkey_cluster",
]

everywhere = on(*EVERY, "cluster")
here = on("memory")

RING = KeyRing({"test": b"k" * 32})
GRACE_MS = 30_000
DAY_MS = 86_400_000
SESSION = "the-session"


class RefreshToken(RefreshRecord):
    """A chain of tokens, its user and its session."""

    uid: str
    sid: str


class TokenKeys(Keyspace):
    """Sessions, and the refresh tokens that belong to them."""

    session = Value("session:{sid:token}", str, lifetime=after("30d"))
    refresh = Value(
        "refresh:{token:token}", RefreshToken, lifetime=after("30d"), leads_to=session, member_of="user:{uid}"
    )


class App:
    """Refresh tokens of one process, with a live session, and the reported events."""

    def __init__(self, store: Store, clock: Callable[[], int], ring: KeyRing = RING, **options: Any) -> None:
        self.keys = TokenKeys(store, seal=ring, now_ms=clock)
        self.told: list[RefreshEvent] = []
        self.tokens = RefreshTokens(self.keys.refresh, **{"tell": self._tell, **options})

    async def _tell(self, event: RefreshEvent) -> None:
        self.told.append(event)

    async def log_in(self, sid: str = SESSION) -> None:
        await self.keys.session(sid).set("ann")

    async def log_out(self, sid: str = SESSION) -> None:
        await self.keys.session(sid).delete()

    async def begin(self, sid: str = SESSION, **bound: str) -> NewChain[RefreshToken]:
        return await self.tokens.begin(RefreshToken(uid="ann", sid=sid, **bound))

    async def works(self, token: str) -> bool:
        """Whether a token can be rotated. This changes the chain, so call it last."""
        return bool(await self.tokens.rotate(token))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def app(store: Store, clock: Clock) -> App:
    made = App(store, clock)
    await made.log_in()
    return made


async def rotated(
    use: Awaitable[Rotated[RefreshToken] | Retried[RefreshToken] | RotationRefused],
) -> Rotated[RefreshToken]:
    found = await use
    assert isinstance(found, Rotated)
    return found


async def retried(
    use: Awaitable[Rotated[RefreshToken] | Retried[RefreshToken] | RotationRefused],
) -> Retried[RefreshToken]:
    found = await use
    assert isinstance(found, Retried)
    return found
