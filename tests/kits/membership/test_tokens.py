"""Access tokens and refresh tokens of a session."""

from __future__ import annotations

import asyncio

import pytest

from keystead import Store
from keystead.kits.membership import Members
from keystead.kits.membership.service import SessionRef
from tests.kits.membership.conftest import Books, FakePatreon, here, on_all, refusal, rows, signed_in
from tests.parts.oauth.stand_in import answer
from tests.parts.sessions.conftest import Clock


@on_all
async def test_twenty_uses_of_one_refresh_token_get_one_successor(members: Members) -> None:
    pair = await members.token_pairs.issue(await signed_in(members))
    found = await asyncio.gather(*(members.token_pairs.refresh(pair.refresh_token) for _ in range(20)))
    assert len({one.refresh_token for one in found}) == 1
    assert found[0].refresh_token != pair.refresh_token


@here
async def test_an_old_refresh_token_revokes_the_chain(members: Members) -> None:
    first = await members.token_pairs.issue(await signed_in(members))
    second = await members.token_pairs.refresh(first.refresh_token)
    third = await members.token_pairs.refresh(second.refresh_token)
    assert await refusal(members.token_pairs.refresh(first.refresh_token)) == "INVALID_REFRESH_TOKEN"
    assert await refusal(members.token_pairs.refresh(third.refresh_token)) == "INVALID_REFRESH_TOKEN"


@on_all
async def test_a_new_sign_in_ends_the_tokens_of_the_old_one(members: Members, store: Store) -> None:
    pair = await members.token_pairs.issue(await signed_in(members))
    assert (await members.entitled(pair.access_token)).plan == "Pro"
    await signed_in(members)
    assert await refusal(members.entitled(pair.access_token)) == "SESSION_INVALID"
    assert await refusal(members.token_pairs.refresh(pair.refresh_token)) == "INVALID_REFRESH_TOKEN"
    assert not [key for key in await rows(store) if key.startswith("refresh:")]


@here
async def test_an_access_token_names_its_user_and_audience(members: Members, ledger: Books) -> None:
    await ledger.grant_bonus("123", "welcome", 25_000, "welcome", 0)
    pair = await members.token_pairs.issue(await signed_in(members), "window 1")
    access = members.access.check(pair.access_token)
    assert access
    assert access.sub == str((await ledger.profile_of("123", 0)).id)
    assert access.expires_at_ms - access.issued_at_ms == pair.expires_in_s * 1000 == 3_600_000
    said = {name: access.claims[name] for name in ("aud", "plan", "hasBonusTokens", "ver", "pid", "sid")}
    assert said == {"aud": "desktop", "plan": "Pro", "hasBonusTokens": True, "ver": 1, "pid": "123", "sid": "window 1"}


@here
async def test_usage_is_read_from_the_database_once_until_more_is_recorded(
    members: Members, ledger: Books, store: Store
) -> None:
    token = await signed_in(members)
    who = await members.entitled(token)
    for used, event in ((7, "e1"), (7, "e1"), (14, "e2")):
        await members.record_usage(who, event, 7)
        before = ledger.questions
        assert [await members.tokens_used(who) for _ in range(3)] == [used] * 3
        assert ledger.questions == before + 1
    await members.logout(token)
    assert await members.tokens_used(who) == 0
    assert await rows(store) == set()


@here
async def test_a_session_has_one_pair_of_tokens(members: Members, store: Store) -> None:
    token = await signed_in(members)
    for _ in range(3):
        await members.token_pairs.issue(token)
    assert len([key for key in await rows(store) if key.startswith("refresh:")]) == 1


@here
async def test_a_refresh_token_is_not_used_up_while_the_provider_is_down(
    members: Members, patreon: FakePatreon, clock: Clock
) -> None:
    pair = await members.token_pairs.issue(await signed_in(members))
    await members.invalidate_membership("123")
    patreon.says(answer({}, 500))
    assert await refusal(members.token_pairs.refresh(pair.refresh_token)) == "PROVIDER_UNAVAILABLE"
    patreon.says(None)
    await members.invalidate_membership("123")
    clock.pass_ms(3_600_000)
    assert (await members.token_pairs.refresh(pair.refresh_token)).refresh_token != pair.refresh_token


@here
async def test_a_made_up_refresh_token_learns_nothing(members: Members) -> None:
    pair = await members.token_pairs.issue(await signed_in(members))
    secret = pair.refresh_token.partition(".")[0]
    for made_up in ("", "x", f"{secret}.0.{'A' * 43}", f"{secret}.7.{'A' * 43}"):
        assert await refusal(members.token_pairs.refresh(made_up)) == "INVALID_REFRESH_TOKEN"
    assert await refusal(members.token_pairs.refresh(pair.refresh_token)) is None


@here
async def test_tokens_issued_while_a_logout_deletes_the_session_are_cleaned_up(
    members: Members, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The logout reads the session's tokens, then new ones are issued, then its row is deleted."""
    token = await signed_in(members)
    session = members.devices.parse_token(token)
    assert session is not None
    counts = members.is_current

    async def meanwhile(asked: SessionRef) -> bool | None:
        await members.keys.user_token("123").delete()
        await members.keys.session(session.id).delete()
        return await counts(asked)

    monkeypatch.setattr(members, "is_current", meanwhile)
    assert await refusal(members.token_pairs.issue(token)) == "SESSION_INVALID"
    assert await rows(store) == set()
