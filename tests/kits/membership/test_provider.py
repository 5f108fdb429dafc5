"""The membership cache: single flight, invalidation, and provider outages."""

from __future__ import annotations

import asyncio
import hmac
import json
from datetime import timedelta
from typing import Any

import pytest
from pydantic import SecretStr

from keystead import Store
from keystead.kits.membership import Members, MembershipRefused
from keystead.kits.membership.service import LIMITS
from keystead.kits.membership.service.patreon import parse_membership
from keystead.kits.membership.service.webhook import parse_webhook
from tests.kits.membership.conftest import (
    REDIRECT,
    SECRET,
    Books,
    FakePatreon,
    here,
    identity,
    on_all,
    on_redis,
    refusal,
    rows,
    signed_in,
    works,
)
from tests.parts.oauth.stand_in import answer
from tests.parts.sessions.conftest import Clock


@pytest.mark.parametrize(
    ("cents", "plan"),
    [
        (0, "Free"),
        (299, "Free"),
        (300, "Pro"),
        (500, "Premium"),
        (899, "Premium"),
        (900, "Ultimate"),
        (5000, "Ultimate"),
    ],
)
@here
async def test_the_plan_is_that_of_the_highest_tier(
    members: Members, patreon: FakePatreon, cents: int, plan: str
) -> None:
    patreon.cents = cents
    member = await members.validate(await signed_in(members))
    assert member.membership.plan == plan
    assert member.membership.user_id == "123"


@on_redis
async def test_a_thousand_requests_for_an_expired_membership_ask_the_provider_once(
    members: Members, patreon: FakePatreon
) -> None:
    token = await signed_in(members)
    await members.keys.membership("123").delete()  # as after its hour
    before = patreon.questions
    found = await asyncio.gather(*(members.validate(token) for _ in range(1000)))
    assert {one.membership.plan for one in found} == {"Pro"}
    assert patreon.questions == before + 1


@pytest.mark.parametrize("trouble", [answer({}, 500), answer(b"<html>"), answer({"data": []}), answer({}, 429)])
@here
async def test_provider_outages_sign_nobody_out(members: Members, patreon: FakePatreon, trouble: bytes) -> None:
    token = await signed_in(members)
    patreon.says(trouble)
    await members.keys.membership("123").delete()
    before = patreon.questions
    for _ in range(3):  # its last answer
        assert (await members.validate(token)).membership.plan == "Pro"
    assert patreon.questions == before + 1
    await members.invalidate_membership("123")  # now there is no last answer
    with pytest.raises(MembershipRefused) as caught:
        await members.validate(token)
    assert caught.value.reason == "PROVIDER_UNAVAILABLE"
    assert caught.value.retry_after_s is not None
    assert caught.value.retry_after_s >= 5
    patreon.says(None)
    await members.invalidate_membership("123")
    assert await works(members, token)


@here
async def test_a_retry_after_of_the_provider_is_respected(members: Members, patreon: FakePatreon) -> None:
    token = await signed_in(members)
    patreon.says(answer({}, 429, "retry-after: 90\r\n"))
    await members.invalidate_membership("123")
    with pytest.raises(MembershipRefused) as caught:
        await members.validate(token)
    assert caught.value.retry_after_s == 90


@here
async def test_the_manual_sync_bypasses_the_cache(members: Members, patreon: FakePatreon) -> None:
    token = await signed_in(members)
    assert (await members.entitled(token)).plan == "Pro"
    patreon.cents = 900
    assert (await members.validate(token)).membership.plan == "Pro"
    assert (await members.sync(token)).membership.plan == "Ultimate"
    assert (await members.validate(token)).membership.plan == "Ultimate"
    assert (await members.entitled(token)).plan == "Ultimate"


@here
async def test_the_tokens_of_the_provider_are_renewed_before_they_expire(
    members: Members, patreon: FakePatreon, clock: Clock
) -> None:
    token = await signed_in(members)
    clock.pass_ms(2_592_000_000 - 60_000)
    await members.sync(token)
    held = await members.keys.user_token("123").get()
    assert held is not None
    assert held.access_token == "access-123-2"
    copy = await members.keys.session(held.session_tokens[0]).get()
    assert copy is not None
    assert copy.access_token == "access-123-2"
    assert patreon.server.count("/token") == 2


def signed(body: bytes) -> str:
    return hmac.new(SECRET.encode(), body, "md5").hexdigest()


def told(cents: int = 0, status: str = "active_patron", user: object = "123") -> bytes:
    data = {
        "attributes": {"patron_status": status, "currently_entitled_amount_cents": cents},
        "relationships": {"user": {"data": {"id": user}}},
    }
    return json.dumps({"data": data}).encode()


@on_all
async def test_a_changed_membership_is_invalidated_in_every_cache(
    members: Members, patreon: FakePatreon, ledger: Books
) -> None:
    token = await signed_in(members)
    assert (await members.entitled(token)).plan == "Pro"
    patreon.cents = 500
    body = told(500)
    heard = await members.webhook(body, signed(body), "members:pledge:update")
    assert heard.plan_change_recorded
    assert (await members.validate(token)).membership.plan == "Premium"
    assert (await members.entitled(token)).plan == "Premium"
    again = await members.webhook(body, signed(body), "members:pledge:update")
    assert not again.plan_change_recorded
    assert await ledger.noted_plan_of("123") == "Premium"


@here
async def test_a_webhook_during_a_sign_in_is_not_undone_by_it(
    members: Members, patreon: FakePatreon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sign-in read the plan before the change; it must not be in a cache when the sign-in is done."""
    body = told(900)
    gate = asyncio.Event()
    admit = members.devices.admit

    async def later(*given: Any) -> Any:
        patreon.cents = 900
        await members.webhook(body, signed(body), "members:pledge:update")
        gate.set()
        return await admit(*given)

    monkeypatch.setattr(members.devices, "admit", later)
    done = await members.sign_in("code-123", REDIRECT)
    assert gate.is_set()
    assert done.member.membership.plan == "Ultimate"
    assert (await members.validate(done.token)).membership.plan == "Ultimate"


@pytest.mark.parametrize("status", ["declined_patron", "former_patron"])
@here
async def test_a_former_patron_is_signed_out(members: Members, store: Store, status: str) -> None:
    await signed_in(members)
    body = told(0, status)
    for _ in range(2):
        await members.webhook(body, signed(body), "members:pledge:update")
        assert await rows(store) == set()


@here
async def test_deleting_a_pledge_does_not_end_the_session(members: Members, ledger: Books) -> None:
    token = await signed_in(members)
    body = told(300, "former_patron")
    await members.webhook(body, signed(body), "members:pledge:delete")
    assert await works(members, token)
    assert await ledger.noted_plan_of("123") == "Free"


@here
async def test_a_webhook_needs_a_valid_signature(members: Members, patreon: FakePatreon) -> None:
    await signed_in(members)
    body = told(500)
    event = "members:pledge:update"
    assert await refusal(members.webhook(body, None, event)) == "MISSING_SIGNATURE"
    for wrong in ("0" * 32, signed(body).upper(), signed(body + b" "), "é"):
        assert await refusal(members.webhook(body, wrong, event)) == "INVALID_SIGNATURE"
    assert await members.keys.membership("123").exists()
    for nonsense in (b"{", b"[]", b"null", b'{"data": 7}'):
        assert await refusal(members.webhook(nonsense, signed(nonsense), event)) == "WEBHOOK_ERROR"
    nobody = told(500, user=None)
    assert (await members.webhook(nobody, signed(nobody), event)).user is None


@pytest.mark.parametrize("secrets", [[], [SecretStr("")]])
def test_without_a_webhook_secret_every_webhook_is_refused(secrets: list[SecretStr]) -> None:
    body = told(500)
    for signature in (None, hmac.new(b"", body, "md5").hexdigest()):
        with pytest.raises(MembershipRefused) as caught:
            parse_webhook(body, signature, "members:pledge:update", secrets)
        assert caught.value.reason == "WEBHOOK_NOT_CONFIGURED"


@here
async def test_too_many_syncs_are_limited_and_keep_the_session(
    members: Members, patreon: FakePatreon, store: Store
) -> None:
    async def window() -> int:
        [[seconds, _]] = await store.run([("TIME",)])
        return int(seconds) // 60

    for user in ("123", "125", "126"):  # by the store's clock, on which a minute may end meanwhile
        token, asked, began = await signed_in(members, user), patreon.questions, await window()
        answers = [await refusal(members.sync(token)) for _ in range(LIMITS["sync"] + 5)]
        if await window() == began:
            break
    assert answers == [None] * LIMITS["sync"] + ["RATE_LIMITED"] * 5
    assert patreon.questions == asked + LIMITS["sync"]
    assert await works(members, token)
    assert await refusal(members.sync(await signed_in(members, "124"))) is None


@here
async def test_tiers_of_other_campaigns_count_only_without_a_configured_campaign(members: Members) -> None:
    other = identity(cents=900, campaign="c2")
    assert parse_membership(other, None, "patreon").plan == "Ultimate"
    assert parse_membership(other, "c1", "patreon").plan == "Free"
    assert parse_membership(other, "c2", "patreon").plan == "Ultimate"


@here
async def test_the_longest_staleness_is_a_number(members: Members) -> None:
    assert members.memberships.longest_freshness == timedelta(hours=1)
    assert members.memberships.longest_staleness == timedelta(days=1)
    assert members.longest_staleness == timedelta(days=1, minutes=1)
