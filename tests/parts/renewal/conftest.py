"""Shared by the renewal tests: a provider that rotates refresh tokens, and records with tokens."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel

from keystead import KeyRing, Keyspace, Sealed, Store, Value, after
from keystead.parts import oauth
from keystead.parts.oauth import Client, Tokens
from keystead.parts.renewal import Fresh, HeldTokens, Renewal
from keystead.schema.kinds import ValueKey
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
from tests.parts.oauth.stand_in import StandIn, answer, stand_in
from tests.parts.sessions.conftest import Clock

__all__ = ["Clock", "mariadb_server", "postgres_server", "redis_server", "store", "stores", "valkey_cluster"]

everywhere = on(*EVERY, "cluster")
here = on("memory")

LIFETIME_S = 3600
BEFORE_MS = 300_000


class Session(BaseModel):
    """Who is logged in, and the provider's tokens."""

    uid: str = "ann"
    theme: str = "light"
    access_token: Sealed[str]
    refresh_token: Sealed[str] | None
    expires_at_ms: int


class AppKeys(Keyspace):
    """Sessions with a provider's tokens."""

    session = Value("session:{sid:token}", Session, lifetime=after("30d"), tag="sid")
    renewing = Value("renewing:{sid:token}", str, lifetime=after("20s"), tag="sid")
    brief = Value("brief:{sid:token}", str, lifetime=after("10s"), tag="sid")


class Provider:
    """Issues a new refresh token with each use. Reusing an old one counts as theft, and ends them all."""

    def __init__(self, server: StandIn) -> None:
        self.server = server
        self.number = 1
        self.thefts = 0
        self.server.answers["/token"] = self.answer
        self.server.answers["/revoke"] = answer({})

    def answer(self) -> bytes:
        came = re.search(r"refresh_token=refresh-(\d+)", self.server.asked[-1][1])
        if came is None or int(came[1]) != self.number:
            self.thefts += 1
            return answer({"error": "invalid_grant"}, 400)
        self.number += 1
        return answer(self.given)

    @property
    def given(self) -> dict[str, Any]:
        return {
            "access_token": f"access-{self.number}",
            "refresh_token": f"refresh-{self.number}",
            "token_type": "bearer",
            "expires_in": LIFETIME_S,
        }

    @property
    def settings(self) -> oauth.Provider:
        return self.server.provider(revoke_url=f"{self.server.url}/revoke")

    @property
    def uses(self) -> int:
        return self.server.count("/token")


class Late(Client):
    """A client whose responses a test can delay."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.answered = asyncio.Event()
        self.arrives = asyncio.Event()

    async def refresh(self, refresh_token: str) -> Tokens:
        try:
            return await super().refresh(refresh_token)
        finally:
            self.answered.set()
            await self.arrives.wait()


class App:
    """One process, with a session that has the first tokens of the provider."""

    def __init__(self, store: Store, client: Client, clock: Clock, **options: Any) -> None:
        self.keys = AppKeys(store, seal=KeyRing({"test": b"k" * 32}), now_ms=clock)
        self.renewal = Renewal(client, self.keys.renewing, held=held, renewed=renewed, **options)
        self._clock = clock

    async def log_in(self) -> None:
        expires_at_ms = self._clock() + 1000 * LIFETIME_S
        made = Session(access_token="access-1", refresh_token="refresh-1", expires_at_ms=expires_at_ms)
        await self.session.set(made)

    @property
    def session(self) -> ValueKey[Session]:
        return self.keys.session("s1")

    async def fresh(self) -> Any:
        return await self.renewal.fresh(self.session)

    async def access_token(self) -> str:
        found = await self.fresh()
        assert isinstance(found, Fresh), found
        token: str = found.value.access_token
        return token


def held(session: Session) -> HeldTokens:
    return HeldTokens(session.access_token, session.refresh_token, session.expires_at_ms)


def renewed(session: Session, tokens: Tokens) -> Session:
    return session.model_copy(
        update={
            "access_token": tokens.access_token,
            "refresh_token": tokens.refresh_token,
            "expires_at_ms": tokens.expires_at_ms,
        }
    )


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(trust_env=False) as client:
        yield client


@pytest.fixture
async def provider() -> AsyncIterator[Provider]:
    async with stand_in() as server:
        yield Provider(server)


@pytest.fixture
def client(provider: Provider, http: httpx2.AsyncClient, clock: Clock) -> Client:
    return Client(provider.settings, http, clock, development=True)


@pytest.fixture
def late(provider: Provider, http: httpx2.AsyncClient, clock: Clock) -> Late:
    return Late(provider.settings, http, clock, development=True)


@pytest.fixture
async def app(store: Store, client: Client, clock: Clock) -> App:
    made = App(store, client, clock)
    await made.log_in()
    return made
