"""A fake provider, and the membership service on real stores."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import httpx2
import pytest
from sqlalchemy import select

from keystead import Store
from keystead.kits.kit import Site
from keystead.kits.membership import Members, MembershipKeys, MembershipRefused, MembershipSettings
from keystead.kits.membership.service import Ledger, Patreon
from keystead.kits.membership.service.ledger_records import Usage
from keystead.kits.membership.service.tables import LICENSE_HISTORY, MEMBERSHIP_TABLES, PROFILES
from keystead.parts.tables import open_tables
from tests.every_store import (
    EVERY,
    mariadb_server,
    on,
    on_urls,
    postgres_server,
    redis_server,
    store,
    stores,
    urls,
    valkey_cluster,
)
from tests.kits.membership.asking import BASE, REDIRECT, RING, SECRET, table
from tests.parts.oauth.stand_in import StandIn, answer, stand_in
from tests.parts.sessions.conftest import Clock

__all__ = [
    "BASE",
    "REDIRECT",
    "RING",
    "SECRET",
    "mariadb_server",
    "postgres_server",
    "redis_server",
    "store",
    "stores",
    "table",
    "urls",
    "valkey_cluster",
]

everywhere = on("memory", "sqlite", "redis", "cluster")
on_all = on(*EVERY, "cluster")  # for the few guarantees that each store implements differently
on_redis = on("redis")
on_servers = on_urls("sqlite", "redis")  # for tests over HTTP
here = on("memory")


def identity(
    user: str = "123", cents: int = 300, status: str = "active_patron", campaign: str = "c1"
) -> dict[str, Any]:
    """The provider's identity response for a user who pays this amount."""
    tiers = [{"type": "tier", "id": "t1"}] if cents else []
    member = {
        "type": "member",
        "id": "m1",
        "attributes": {
            "patron_status": status,
            "currently_entitled_amount_cents": cents,
            "next_charge_date": "2026-02-01",
        },
        "relationships": {
            "currently_entitled_tiers": {"data": tiers},
            "campaign": {"data": {"type": "campaign", "id": campaign}},
        },
    }
    tier = {"type": "tier", "id": "t1", "attributes": {"amount_cents": cents}}
    data = {"type": "user", "id": user, "attributes": {"email": "ann@example.com", "full_name": "Ann"}}
    return {"data": data, "included": [member, tier]}


class FakePatreon:
    """The fake provider. A code contains its user's id, `code-123`; what users pay can be changed."""

    def __init__(self, server: StandIn) -> None:
        self.server = server
        self.cents = 300
        self.number = 0
        server.answers["/token"] = self._tokens
        server.answers["/identity"] = self._identity

    def _tokens(self) -> bytes:
        sent = self.server.asked[-1][1]
        came = re.search(r"(?:code=code|refresh_token=refresh)-(\w+)", sent)
        if came is None:
            return answer({"error": "invalid_grant"}, 400)
        self.number += 1
        return answer(
            {
                "access_token": f"access-{came[1]}-{self.number}",
                "refresh_token": f"refresh-{came[1]}",
                "token_type": "Bearer",
                "expires_in": 2_592_000,
            }
        )

    def _identity(self) -> bytes:
        came = re.search(r"Bearer access-(\w+)-", self.server.asked[-1][1])
        return answer({}, 401) if came is None else answer(identity(came[1], self.cents))

    @property
    def questions(self) -> int:
        """How many identity requests it received."""
        return self.server.count("/identity")

    def says(self, given: bytes | Callable[[], bytes] | None) -> None:
        """Set its next identity response; None restores the default."""
        self.server.answers["/identity"] = self._identity if given is None else given

    def holds(self) -> Callable[[], None]:
        """Accept requests without answering them, until the returned function is called."""
        return self.server.holds("/identity")

    def is_silent(self) -> None:
        del self.server.answers["/identity"]


class Books(Ledger):
    """The ledger on a database in memory. It counts its reads."""

    questions = 0

    async def usage(self, user: str, month: str) -> Usage:
        self.questions += 1
        return await super().usage(user, month)

    async def noted_plan_of(self, user: str) -> str | None:
        """The plan that was recorded last."""
        history = LICENSE_HISTORY.c
        asked = select(history.new_plan).join(PROFILES).where(PROFILES.c.patreon_user_id == user)
        last = asked.order_by(history.place.desc()).limit(1)
        return await self.tables.read(lambda connection: connection.execute(last).scalar())


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def patreon() -> AsyncIterator[FakePatreon]:
    async with stand_in() as server:
        yield FakePatreon(server)


@pytest.fixture
async def ledger() -> AsyncIterator[Books]:
    async with open_tables("memory://", MEMBERSHIP_TABLES) as tables:
        yield Books(tables)


@pytest.fixture
def settings(patreon: FakePatreon) -> MembershipSettings:
    return MembershipSettings(**table(patreon.server.url))


@pytest.fixture
def keys(store: Store, clock: Clock) -> MembershipKeys:
    return MembershipKeys(store, seal=RING, now_ms=clock)


@pytest.fixture
def patience() -> str:
    """The timeout of the provider."""
    return "10s"


@pytest.fixture
async def members(
    keys: MembershipKeys, settings: MembershipSettings, clock: Clock, ledger: Books, patience: str
) -> AsyncIterator[Members]:
    site = Site(public_url=BASE, internal_url=BASE, development=True, now_ms=clock, render=lambda *_, **__: "")
    async with httpx2.AsyncClient(trust_env=False) as http:
        provider = Patreon(settings.provider, http, clock, development=True, timeout=patience)
        made = Members(keys, settings, site, provider, ledger)
        yield made
        await made.close()


async def signed_in(members: Members, user: str = "123") -> str:
    return (await members.sign_in(f"code-{user}", REDIRECT)).token


async def refusal(asking: Awaitable[Any]) -> str | None:
    """The reason of a refusal; None if there is none."""
    try:
        await asking
    except MembershipRefused as refused:
        return refused.reason
    return None


async def works(members: Members, token: str) -> bool:
    """Whether a session token is valid. If not, the refusal must be SESSION_INVALID."""
    found = await refusal(members.validate(token))
    assert found in (None, "SESSION_INVALID")
    return found is None


async def rows(store: Store) -> set[str]:
    """All keys except the counters of rate limits, which expire within two minutes."""
    found = {key.decode() async for page in store.scan() for key in page}
    return {key for key in found if not key.startswith("ratelimit:sync")}
