"""Races: ended sessions stay ended, and other sessions are not affected."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from keystead import Store
from keystead.errors import StoreUnavailable
from keystead.kits.membership import Members, MembershipKeys
from keystead.parts.oauth import Tokens
from tests.kits.membership.conftest import (
    REDIRECT,
    Books,
    FakePatreon,
    everywhere,
    here,
    on_all,
    refusal,
    rows,
    signed_in,
    works,
)
from tests.kits.membership.test_provider import signed, told
from tests.kits.membership.test_stores import Cutting, apart, cache
from tests.parts.oauth.stand_in import answer
from tests.parts.sessions.conftest import Clock

__all__ = ["apart", "cache"]

MONTH_MS = 2_592_000_000


@here
async def test_a_token_refused_by_the_provider_does_not_end_a_newer_sign_in(
    members: Members, patreon: FakePatreon, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = await signed_in(members)
    withdrawn, new = members.loader.end_revoked_sessions, ""

    async def later(*given: Any) -> None:
        nonlocal new
        patreon.says(None)
        new = await signed_in(members)
        await withdrawn(*given)

    monkeypatch.setattr(members.loader, "end_revoked_sessions", later)
    patreon.says(answer({}, 401))
    assert await refusal(members.sync(old)) == "PATREON_TOKEN_EXPIRED"
    assert await works(members, new)


@here
async def test_a_refresh_token_refused_by_the_provider_does_not_end_a_newer_sign_in(
    members: Members, patreon: FakePatreon, clock: Clock
) -> None:
    old = await signed_in(members)
    clock.pass_ms(MONTH_MS + 1)
    patreon.server.answers["/token"] = answer({"error": "invalid_grant"}, 400)
    tell = patreon.server.holds("/token")
    asking = asyncio.create_task(refusal(members.sync(old)))
    await patreon.server.until_asked("/token", 2)
    fresh = Tokens("access-123-9", "refresh-123", None, "", "Bearer", clock() + MONTH_MS)
    new, _ = await members.devices.admit("123", fresh, "ann@example.com", "Ann")
    tell()
    assert await asking in (None, "SESSION_INVALID", "PATREON_TOKEN_EXPIRED")
    assert await works(members, new)


@on_all
async def test_a_logout_during_a_token_renewal_is_final_and_leaves_nothing(
    members: Members, patreon: FakePatreon, store: Store, clock: Clock
) -> None:
    token = await signed_in(members)
    clock.pass_ms(MONTH_MS + 1)
    tell = patreon.server.holds("/token")
    asking = asyncio.create_task(refusal(members.sync(token)))
    await patreon.server.until_asked("/token", 2)
    assert await members.logout(token) is True
    tell()
    assert await asking in ("SESSION_INVALID", "PATREON_TOKEN_EXPIRED")
    await members.close()
    assert await rows(store) == set()


@everywhere
async def test_a_refresh_in_flight_does_not_survive_the_end_of_all_sessions(
    members: Members, patreon: FakePatreon, store: Store
) -> None:
    token = await signed_in(members)
    pair = await members.token_pairs.issue(token)
    await members.invalidate_membership("123")
    tell = patreon.holds()
    asked = patreon.questions
    refreshing = asyncio.create_task(refusal(members.token_pairs.refresh(pair.refresh_token)))
    await patreon.server.until_asked("/identity", asked + 1)
    assert await members.logout_all(token) == 1
    tell()
    assert await refreshing is not None
    await members.close()
    assert await rows(store) == set()
    assert await refusal(members.token_pairs.refresh(pair.refresh_token)) == "INVALID_REFRESH_TOKEN"


@everywhere
async def test_a_webhook_during_a_load_is_not_undone_by_it(members: Members, patreon: FakePatreon) -> None:
    """The provider is asked before the change, and answers after it with the old plan."""
    token = await signed_in(members)
    await members.invalidate_membership("123")
    tell = patreon.holds()
    asked = patreon.questions
    waiting = asyncio.create_task(members.validate(token))
    await patreon.server.until_asked("/identity", asked + 1)
    body = told(900)
    await members.webhook(body, signed(body), "members:pledge:update")
    patreon.cents = 900
    tell()
    assert (await waiting).membership.plan == "Ultimate"
    assert (await members.validate(token)).membership.plan == "Ultimate"


@here
async def test_twenty_validations_concurrent_with_a_sign_in_end_only_the_old_session(members: Members) -> None:
    old = await signed_in(members)
    asking = [asyncio.create_task(refusal(members.validate(old))) for _ in range(20)]
    new = await signed_in(members)
    assert set(await asyncio.gather(*asking)) <= {None, "SESSION_INVALID"}
    assert await works(members, new)
    assert not await works(members, old)


@here
async def test_an_old_token_cannot_end_a_newer_session_with_revoke_all(members: Members) -> None:
    old, new = await signed_in(members), await signed_in(members)
    assert await refusal(members.logout_all(old)) == "SESSION_INVALID"
    assert await works(members, new)


@here
async def test_a_repeated_webhook_ends_no_newer_session(members: Members, ledger: Books, clock: Clock) -> None:
    await signed_in(members)
    body, event = told(0, "former_patron"), "members:pledge:update"
    await members.webhook(body, signed(body), event)
    clock.pass_ms(60_000)
    token = await signed_in(members)  # the user pays again
    heard = await members.webhook(body, signed(body), event)
    assert (heard.user, heard.plan_change_recorded) == ("123", False)
    assert await works(members, token)


@here
async def test_a_repeated_webhook_completes_an_interrupted_one(
    members: Members, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await signed_in(members)
    clock.pass_ms(60_000)
    body, event = told(0, "declined_patron"), "members:pledge:update"

    async def dies(user: str) -> bool:
        raise StoreUnavailable("the process died here")

    with monkeypatch.context() as patched:
        patched.setattr(members.devices, "end_all", dies)
        with pytest.raises(StoreUnavailable):
            await members.webhook(body, signed(body), event)
    clock.pass_ms(60_000)
    await members.webhook(body, signed(body), event)
    assert await rows(store) == set()


@here
async def test_webhooks_in_any_order_leave_the_providers_current_plan(
    members: Members, patreon: FakePatreon, ledger: Books
) -> None:
    token = await signed_in(members)
    first, second = told(500), told(900)
    patreon.cents = 900
    for body in (second, first, second, first):
        await members.webhook(body, signed(body), "members:pledge:update")
        assert (await members.validate(token)).membership.plan == "Ultimate"
        assert (await members.entitled(token)).plan == "Ultimate"


@here
async def test_a_made_up_token_of_a_user_cannot_end_their_session(
    members: Members, keys: MembershipKeys, store: Store
) -> None:
    token = await signed_in(members)
    made_up = "A" * 43 + "." + token.partition(".")[2]
    assert members.devices.parse_token(made_up) is not None
    assert await members.logout(made_up) is False
    assert await refusal(members.logout_all(made_up)) == "SESSION_INVALID"
    assert await works(members, token)
    # Nor while the user's row is unreadable, as when a key is missing from the ring.
    row = keys.user_token("123").key
    [held] = await store.run([("GET", row)])
    await store.run([("SET", row, b'{"accessToken":"sealed.gone.x"}', "KEEPTTL")])
    assert await members.logout(made_up) is False
    await store.run([("SET", row, held, "KEEPTTL", "XX")])
    assert await works(members, token)


@here
async def test_a_logout_works_while_the_users_row_is_unreadable(
    members: Members, keys: MembershipKeys, store: Store
) -> None:
    token = await signed_in(members)
    row = keys.user_token("123").key
    [held] = await store.run([("GET", row)])
    await store.run([("SET", row, b'{"accessToken":"sealed.gone.x"}', "KEEPTTL")])
    await members.logout(token)
    await store.run([("SET", row, held, "KEEPTTL", "XX")])
    assert not await works(members, token)


@here
async def test_a_logout_at_the_start_of_a_month_clears_last_months_cached_quota(
    members: Members, store: Store, clock: Clock
) -> None:
    clock.now_ms = 1_790_812_799_000  # one second before October 2026, UTC
    token = await signed_in(members)
    who = await members.entitled(token)
    await members.tokens_used(who)
    clock.pass_ms(2_000)
    await members.tokens_used(who)
    assert {key for key in await rows(store) if key.startswith("quota:")} == {"quota:123:2026-09", "quota:123:2026-10"}
    await members.logout(token)
    assert await rows(store) == set()


@here
async def test_a_sign_in_during_a_cache_outage_changes_nothing(apart: Members, cache: Cutting) -> None:
    token = await signed_in(apart)
    cache.is_away = True
    with pytest.raises(StoreUnavailable):
        await apart.sign_in("code-123", REDIRECT)
    assert await works(apart, token)
    cache.is_away = False
    assert await works(apart, token)
