"""Which stores the kit takes, and what it does where its caches have one of their own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import httpx2
import pytest

from keystead import Store, connect
from keystead.errors import DoesNotFit, StoreUnavailable
from keystead.kits.kit import Site
from keystead.kits.membership import Members, MembershipKeys, MembershipSettings
from keystead.kits.membership.service import Patreon
from keystead.schema.fit import misfits
from tests.kits.membership.conftest import BASE, RING, Books, FakePatreon, here, refusal, rows, signed_in, works
from tests.parts.sessions.conftest import Clock
from tests.parts.sessions.relays import Relay


class Cutting(Relay):
    """A store that can be cut off."""

    is_away = False

    async def before(self) -> None:
        if self.is_away:
            raise StoreUnavailable("cut off")


@pytest.fixture
async def cache() -> AsyncIterator[Cutting]:
    async with connect("memory://") as opened:
        yield Cutting(opened)


@pytest.fixture
async def apart(
    store: Store, cache: Store, settings: MembershipSettings, clock: Clock, ledger: Books
) -> AsyncIterator[Members]:
    """The service with a store for sessions, and another one for caches."""
    site = Site(public_url=BASE, internal_url=BASE, development=True, now_ms=clock, render=lambda *_, **__: "")
    keys = MembershipKeys(store, cache=cache, seal=RING, now_ms=clock)
    async with httpx2.AsyncClient(trust_env=False) as http:
        made = Members(keys, settings, site, Patreon(settings.provider, http, clock, development=True), ledger)
        yield made
        await made.close()


@here
async def test_caches_of_their_own_are_emptied_by_a_logout(apart: Members, store: Store, cache: Store) -> None:
    token = await signed_in(apart)
    await apart.entitled(token)
    assert {key.partition(":")[0] for key in await rows(cache)} == {"membership", "auth"}
    await apart.logout(token)
    assert await rows(cache) == await rows(store) == set()


@here
async def test_a_cache_that_is_away_costs_a_question_and_signs_nobody_out(
    apart: Members, cache: Cutting, patreon: FakePatreon
) -> None:
    token = await signed_in(apart)
    before = patreon.questions
    cache.is_away = True
    assert await works(apart, token)
    assert patreon.questions == before + 1


@here
async def test_a_logout_that_a_cache_did_not_hear_of_is_final_and_can_be_finished(
    apart: Members, store: Store, cache: Cutting
) -> None:
    token = await signed_in(apart)
    await apart.entitled(token)
    cache.is_away = True
    with pytest.raises(StoreUnavailable):
        await apart.logout(token)
    cache.is_away = False
    assert not await works(apart, token)
    assert await refusal(apart.entitled(token)) == "SESSION_INVALID"
    assert await apart.logout(token) is False
    assert await rows(cache) == await rows(store) == set()


@here
async def test_a_store_that_forgets_slowly_is_refused_family_by_family(store: Store) -> None:
    slow = replace(store.guarantees, consistency="eventual", atomic="nothing", shortest_lifetime_ms=60_000)
    reasons = {name: list(misfits(family, slow)) for name, family in MembershipKeys.families.items()}
    refused = {name for name, why in reasons.items() if why}
    assert refused == {
        "session",
        "user_token",
        "renewing",
        "refresh",
        "refresh_chain",
        "crash_report_limit",
        "rate_limit",
    }
    assert "a read may miss a write" in " ".join(reasons["user_token"])
    assert "no atomic step" in " ".join(reasons["refresh"])
    store.guarantees = slow
    with pytest.raises(DoesNotFit) as caught:
        MembershipKeys(store, seal=RING)
    for name in refused:
        assert name in str(caught.value)
