"""One device per user: a new sign-in ends the previous session, for good."""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64decode
from typing import Any

import pytest

from keystead import Store
from keystead.errors import StoreUnavailable
from keystead.kits.membership import Members, MembershipKeys, MembershipRefused
from keystead.kits.membership.service.devices import Devices
from keystead.parts.oauth import Tokens
from tests.kits.membership.conftest import (
    REDIRECT,
    FakePatreon,
    everywhere,
    here,
    on_all,
    refusal,
    rows,
    signed_in,
    works,
)
from tests.parts.oauth.stand_in import answer


@everywhere
async def test_fifty_sign_ins_at_once_leave_one_session_that_works(members: Members, store: Store) -> None:
    tokens = await asyncio.gather(*(signed_in(members) for _ in range(50)))
    found = [await works(members, token) for token in tokens]
    assert found.count(True) == 1
    held = await members.keys.user_token("123").get()
    assert held is not None
    session = members.devices.parse_token(tokens[found.index(True)])
    assert session is not None
    assert held.session_tokens == [session.id]
    sessions = [key async for key in members.keys.session.scan()]
    assert [key.key for key in sessions] == [members.keys.session(session.id).key]


@on_all
async def test_concurrent_sign_ins_each_end_the_previous_session(members: Members) -> None:
    """Without a provider in between that spreads them, and without a later request that cleans up."""
    tokens = Tokens("access-123-1", "refresh-123", None, "", "Bearer", members.keys.now_ms() + 3_600_000)
    await asyncio.gather(*(members.devices.admit("123", tokens, "ann@example.com", "Ann") for _ in range(50)))
    held = await members.keys.user_token("123").get()
    assert held is not None
    left = [key.values["sessionToken"] async for key in members.keys.session.scan()]
    assert left == held.session_tokens


@on_all
async def test_after_a_logout_nothing_of_the_user_is_left(members: Members, store: Store) -> None:
    token = await signed_in(members)
    await members.token_pairs.issue(token)
    await members.entitled(token)
    assert len(await rows(store)) >= 6
    assert await members.logout(token) is True
    assert await rows(store) == set()
    assert await members.logout(token) is False


@everywhere
async def test_a_logout_with_an_old_token_does_not_end_a_newer_session(members: Members, store: Store) -> None:
    old, new = await signed_in(members), await signed_in(members)
    assert await members.logout(old) is False
    assert await works(members, new)
    assert not await works(members, old)


@here
async def test_an_unnamed_session_is_invalid_and_cleaned_up(members: Members, keys: MembershipKeys) -> None:
    """The state after a crash between the two steps of a sign-in on a cluster."""
    token = await signed_in(members)
    session = members.devices.parse_token(token)
    assert session is not None
    await keys.user_token("123").change(lambda held: held.model_copy(update={"session_tokens": []}))
    assert not await works(members, token)
    assert not await keys.session(session.id).exists()


@here
async def test_a_provider_request_in_flight_does_not_undo_a_logout(
    members: Members, patreon: FakePatreon, store: Store
) -> None:
    token = await signed_in(members)
    await members.memberships.invalidate(members.keys.membership("123"))
    patreon.is_silent()
    asking = asyncio.create_task(members.validate(token))
    await patreon.server.until_asked("/identity", 3)
    assert await members.logout(token) is True
    await members.memberships.close()  # the provider never answers
    with pytest.raises(MembershipRefused):
        await asking
    assert await rows(store) == set()


@here
async def test_a_made_up_token_is_refused_and_writes_nothing(members: Members, store: Store) -> None:
    for made_up in ("", "x", "a.b", "x" * 64, "é" * 43 + ".MTIz", "A" * 43 + ".MTIz"):
        assert not await works(members, made_up)
    assert await rows(store) == set()


@here
async def test_a_sign_in_redirects_only_to_listed_uris(members: Members, patreon: FakePatreon) -> None:
    for other in (REDIRECT + "/", REDIRECT.upper(), "https://evil.example/done", ""):
        with pytest.raises(MembershipRefused) as caught:
            await members.sign_in("code-123", other)
        assert caught.value.reason == "INVALID_REDIRECT_URI"
    assert patreon.server.asked == []


@here
async def test_revoking_access_at_the_provider_signs_out(members: Members, patreon: FakePatreon, store: Store) -> None:
    token = await signed_in(members)
    patreon.says(answer({}, 401))
    with pytest.raises(MembershipRefused) as caught:
        await members.sync(token)
    assert caught.value.reason == "PATREON_TOKEN_EXPIRED"
    assert await rows(store) == set()


@here
async def test_a_key_missing_from_the_ring_ends_no_session(members: Members, store: Store) -> None:
    token = await signed_in(members)
    row = members.keys.user_token("123").key
    [held] = await store.run([("GET", row)])
    await store.run([("SET", row, b'{"accessToken":"sealed.gone.x"}', "KEEPTTL")])
    assert not await works(members, token)
    await store.run([("SET", row, held, "KEEPTTL")])
    assert await works(members, token)


@everywhere
async def test_a_session_token_collision_makes_a_new_token_and_leaves_the_first_session(
    members: Members, keys: MembershipKeys
) -> None:
    numbers = iter((b"1" * 32, b"1" * 32, b"1" * 32, b"2" * 32))
    devices = Devices(keys, members.refresh, members._forget_user, new_secret=lambda: next(numbers))
    expires_ms = keys.now_ms() + 3_600_000

    def tokens(number: int) -> Tokens:
        return Tokens(f"access-123-{number}", "refresh-123", None, "", "Bearer", expires_ms)

    _, first = await devices.admit("123", tokens(1), "ann@example.com", "Ann")
    record = await keys.session(first.id).get()
    assert record is not None
    assert record.access_token == "access-123-1"
    _, second = await devices.admit("123", tokens(2), "ann@example.com", "Ann")
    assert second.id != first.id
    held = await keys.user_token("123").get()
    assert held is not None
    assert held.session_tokens == [second.id]


@here
async def test_a_session_token_has_256_random_bits_and_is_new_each_time(members: Members) -> None:
    secrets = {(await signed_in(members)).partition(".")[0] for _ in range(5)}
    assert len(secrets) == 5
    assert {len(urlsafe_b64decode(one + "=")) for one in secrets} == {32}


@here
async def test_rows_are_decoded_once_until_they_change(members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    decode, decoded = members.session_reads._decode, list[str]()

    def count(session: Any, user_row: bytes, cached: bytes | None) -> Any:
        decoded.append(session.user)
        return decode(session, user_row, cached)

    monkeypatch.setattr(members.session_reads, "_decode", count)
    token = await signed_in(members)
    first = await members.validate(token)
    assert [(await members.validate(token)).membership for _ in range(3)] == [first.membership] * 3
    assert decoded == ["123"]
    await members.keys.membership("123").delete()
    assert (await members.validate(token)).membership.plan == first.membership.plan
    assert [(await members.validate(token)).membership.plan for _ in range(2)] == [first.membership.plan] * 2
    assert len(decoded) == 3  # without the cached row, and with the new one
    other = await signed_in(members)
    assert await refusal(members.validate(token)) == "SESSION_INVALID"
    assert await works(members, other)


@here
async def test_an_unreadable_user_row_signs_nobody_out(members: Members, store: Store) -> None:
    token = await signed_in(members)
    assert await works(members, token)
    key = members.keys.user_token("123").key
    [row] = await store.run([("GET", key)])
    await store.run([("SET", key, "junk", "KEEPTTL")])
    assert await refusal(members.validate(token)) == "SESSION_INVALID"
    await store.run([("SET", key, row, "KEEPTTL")])
    assert await works(members, token)


@here
async def test_a_store_that_is_down_is_asked_once(members: Members, monkeypatch: pytest.MonkeyPatch) -> None:
    token, asked = await signed_in(members), list[int]()
    assert await works(members, token)

    async def fail(commands: Any) -> Any:
        asked.append(len(commands))
        raise StoreUnavailable("down")

    monkeypatch.setattr(members.keys.session.store, "run", fail)
    with pytest.raises(StoreUnavailable):
        await members.validate(token)
    assert asked == [3]
