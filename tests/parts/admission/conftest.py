"""Shared by the admission tests: tokens, a cache of users, and a user database that counts its queries."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from keystead import Hash, Keyspace, Store, Value, after, sliding, until
from keystead.parts.admission import Admission
from keystead.parts.cache import Cache, LoadMarkers
from keystead.parts.jwt import Access, AccessTokens, RevokedTokens
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
from tests.parts.jwt.conftest import keys_of

__all__ = ["mariadb_server", "on", "postgres_server", "redis_server", "store", "stores", "valkey_cluster"]

everywhere = on(*EVERY, "cluster", "memory+sqlite", "redis+postgres")
here = on("memory")


class User(BaseModel):
    """The user of a request."""

    name: str
    role: str


ANN = User(name="Ann", role="DEVELOPER")


class AppKeys(Keyspace):
    """Revoked tokens, and cached users."""

    naming = "domain:entity:scope"

    revoked = Value("jwt:blacklist:{jti}", str, lifetime=until("expires_at"), role="durable", doc="a revoked token")
    since = Value("jwt:since:{sub}", int, lifetime=after("2h"), role="durable", doc="when all of a user ended")
    user = Hash("session:user:{id:int}", User, lifetime=sliding("30m", touch_every="1m"), tag="id", doc="who")
    mark = LoadMarkers("session:user:{id:int}:mark", role="default", nothing="1m", tag="id")


class People:
    """The database of users."""

    def __init__(self) -> None:
        self.rows: dict[str, User] = {"42": ANN}
        self.asked = 0
        self.error: Exception | None = None

    async def find(self, access: Access) -> User | None:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return self.rows.get(access.sub)


class App:
    """One process of an application."""

    def __init__(self, stores: dict[str, Store], people: People | None = None, **options: Any) -> None:
        others: dict[str, Any] = {role: one for role, one in stores.items() if role != "default"}
        self.keys = AppKeys(stores["default"], **others)
        self.people = people or People()
        revoked = RevokedTokens(self.keys.revoked, self.keys.since, **{"may_forget": True, **options})
        self.tokens = AccessTokens(keys_of("EdDSA"), issuer="i", audience="a", revoked=revoked)
        self.users = Cache(self.keys.user, self.keys.mark)
        self.admission = Admission(
            self.tokens, self.users, key=lambda access: self.keys.user(int(access.sub)), load=self.people.find
        )

    def token(self, sub: str = "42") -> str:
        return self.tokens.issue(sub, plan="Pro").token

    def access(self, token: str) -> Access:
        found = self.tokens.check(token)
        assert isinstance(found, Access)
        return found
