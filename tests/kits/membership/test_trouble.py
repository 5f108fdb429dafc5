"""Provider outages: the last answer is served, one request asks again, and nobody is signed out."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from keystead import Store
from keystead.kits.membership import Members, MembershipRefused
from tests.kits.membership.conftest import REDIRECT, FakePatreon, here, identity, on_redis, refusal, signed_in, works
from tests.parts.oauth.stand_in import answer

REQUESTS = 200


def without(*path: str | int, value: Any = None) -> dict[str, Any]:
    """The identity response of Ann, with one value replaced."""
    told: Any = identity()
    place = told
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return dict(told)


NOT_SAID = {
    "html": answer(b"<html><title>Patreon</title></html>"),
    "nothing": answer(b""),
    "half": answer(b'{"data": {"id": "12'),
    "no HTTP": b"SSH-2.0-OpenSSH_9.7\r\n",
    "cut off": b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{",
    "a list": answer([identity()]),
    "null": answer(None),
    "deep": answer(b'{"data":' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
    "huge": answer({"data": identity()["data"], "included": ["x" * 300_000]}),
    "compressed": answer(b"\x1f\x8b", headers="content-encoding: gzip\r\n"),
    "redirect": answer(b"", 302, "location: https://evil.example/\r\n"),
    "500": answer({}, 500),
    "403": answer({}, 403),
    "an error with 200": answer({"error": "server_error"}),
    "a user without an id": answer(without("data", "id")),
    "an id that is a number": answer(without("data", "id", value=123)),
    "an id that is a list": answer(without("data", "id", value=["123"])),
    "an empty id": answer(without("data", "id", value="")),
    "an id with a NUL": answer(without("data", "id", value="12\x003")),
    "an id with half of a character": answer(without("data", "id", value="\ud800")),
    "an id of 10 KB": answer(without("data", "id", value="1" * 10_240)),
    "an id of 65 bytes": answer(without("data", "id", value="é" * 33)),
    "another user": answer(identity("124")),
    "data that is a text": answer(without("data", value="123")),
    "included that is an object": answer(without("included", value={})),
}


@pytest.fixture
def patience() -> str:
    return "500ms"


async def until_it_may_be_asked_again(members: Members) -> None:
    """End the pause of 5 seconds after a failure."""
    await members.keys.membership_mark("123").delete()


async def in_trouble(members: Members, patreon: FakePatreon, token: str) -> None:
    """200 requests during a provider outage: one asks, all get the last answer, and then it recovers."""
    await members.keys.membership("123").delete()  # as after its hour
    before = members.memberships.counts
    found = await asyncio.gather(*(members.validate(token) for _ in range(REQUESTS)))
    assert {one.membership.plan for one in found} == {"Pro"}
    after = members.memberships.counts
    assert (after.loads - before.loads, after.stale - before.stale) == (1, REQUESTS)
    assert (await members.validate(token)).membership.plan == "Pro"
    assert members.memberships.counts.loads == after.loads


async def recovers(members: Members, patreon: FakePatreon, token: str) -> None:
    patreon.says(None)
    patreon.cents = 900
    await until_it_may_be_asked_again(members)
    assert (await members.validate(token)).membership.plan == "Ultimate"


@pytest.mark.parametrize("said", NOT_SAID.values(), ids=NOT_SAID)
@here
async def test_invalid_provider_responses_cause_no_stampede_and_no_logout(
    members: Members, patreon: FakePatreon, said: bytes
) -> None:
    token = await signed_in(members)
    patreon.says(said)
    await in_trouble(members, patreon, token)
    await recovers(members, patreon, token)


@pytest.mark.parametrize("said", NOT_SAID.values(), ids=NOT_SAID)
@here
async def test_an_invalid_provider_response_at_sign_in_is_a_refusal_and_writes_nothing(
    members: Members, patreon: FakePatreon, store: Store, said: bytes
) -> None:
    if said == NOT_SAID["another user"]:
        return  # a sign-in has no expected user
    patreon.says(said)
    expected = "IDENTITY_FETCH_FAILED" if said == NOT_SAID["403"] else "PROVIDER_UNAVAILABLE"
    assert await refusal(members.sign_in("code-123", REDIRECT)) == expected
    assert [key async for page in store.scan() for key in page] == []


STRANGE = {
    "tiers with ids of other kinds": without("included", 1, "id", value=["t1"]),
    "a tier that is a text": without("included", 1, value="t1"),
    "a member without relationships": without("included", 0, "relationships"),
    "relationships that are a list": without("included", 0, "relationships", value=[]),
    "an amount that is a text": without("included", 1, "attributes", "amount_cents", value="900"),
    "an amount that is true": without("included", 1, "attributes", "amount_cents", value=True),
    "an amount below 0": without("included", 1, "attributes", "amount_cents", value=-900),
    "an amount beyond all numbers": without("included", 1, "attributes", "amount_cents", value=10**30),
    "an amount with a fraction": without("included", 1, "attributes", "amount_cents", value=900.5),
    "no tiers": without("included", value=[]),
}


@pytest.mark.parametrize("said", STRANGE.values(), ids=STRANGE)
@here
async def test_unreadable_amounts_count_as_nothing_paid(
    members: Members, patreon: FakePatreon, said: dict[str, Any]
) -> None:
    patreon.says(answer(said))
    found = await members.validate(await signed_in(members))
    assert found.membership.plan == "Free"


@pytest.mark.parametrize("text", ["half \ud800 of a character", "a NUL \0", 7, ["a"], {"a": 1}, "x" * 10_000, None])
@here
async def test_unusual_names_do_not_prevent_a_sign_in(members: Members, patreon: FakePatreon, text: object) -> None:
    said = without("data", "attributes", "full_name", value=text)
    said["data"]["attributes"]["email"] = text
    said["included"][0]["attributes"]["next_charge_date"] = text
    said["included"][0]["attributes"]["patron_status"] = text
    patreon.says(answer(said))
    token = await signed_in(members)
    found = (await members.validate(token)).membership
    assert all(
        len(one or "") <= 320 for one in (found.email, found.full_name, found.patron_status, found.next_charge_date)
    )
    assert (await members.token_pairs.issue(token)).access_token


@here
async def test_unusual_tier_ids_do_not_prevent_a_sign_in(members: Members, patreon: FakePatreon) -> None:
    for id in ("\ud800", "x" * 100_000):
        said = without("included", 1, "id", value=id)
        said["included"][0]["relationships"]["currently_entitled_tiers"]["data"] = [{"type": "tier", "id": id}]
        patreon.says(answer(said))
        found = (await members.validate(await signed_in(members))).membership
        assert found.plan == "Pro"
        assert len(found.tier_id or "") <= 320


@on_redis
async def test_a_provider_that_does_not_answer_in_time_is_asked_once(members: Members, patreon: FakePatreon) -> None:
    token = await signed_in(members)
    asked, tell = patreon.questions, patreon.holds()
    await in_trouble(members, patreon, token)
    assert patreon.questions == asked + 1
    tell()
    await recovers(members, patreon, token)


@here
async def test_a_provider_that_is_down_is_asked_once(
    members: Members, patreon: FakePatreon, nobody_listens: Callable[[], None]
) -> None:
    token = await signed_in(members)
    nobody_listens()
    await in_trouble(members, patreon, token)
    assert await refusal(members.sign_in("code-123", REDIRECT)) == "PROVIDER_UNAVAILABLE"
    assert await works(members, token)


@pytest.fixture
def nobody_listens(patreon: FakePatreon) -> Callable[[], None]:
    return patreon.server.stops_listening


@pytest.mark.parametrize(
    ("headers", "pause_s"),
    [
        ("retry-after: 90\r\n", 90),
        ("retry-after: 1\r\n", 5),  # never shorter than after any other failure
        ("retry-after: 86400\r\n", 300),  # never longer than 5 minutes
        ("retry-after: Wed, 21 Oct 2015 07:28:00 GMT\r\n", 5),  # in the past
        ("retry-after: yesterday\r\n", 60),
        ("retry-after: 99999999999999999999\r\n", 60),
        ("retry-after: -5\r\n", 60),
        ("", 60),
    ],
)
@here
async def test_a_429_of_the_provider_pauses_requests_to_it(
    members: Members, patreon: FakePatreon, headers: str, pause_s: int
) -> None:
    token = await signed_in(members)
    patreon.says(answer({}, 429, headers))
    await in_trouble(members, patreon, token)
    mark = await members.keys.membership_mark("123").remaining()
    assert mark is not None
    assert pause_s - 5 < mark.total_seconds() <= pause_s
    await recovers(members, patreon, token)


@here
async def test_a_429_of_the_provider_at_sign_in_is_a_refusal_with_retry_after(
    members: Members, patreon: FakePatreon
) -> None:
    patreon.says(answer({}, 429, "retry-after: 90\r\n"))
    with pytest.raises(MembershipRefused) as caught:
        await members.sign_in("code-123", REDIRECT)
    assert (caught.value.reason, caught.value.retry_after_s) == ("PROVIDER_UNAVAILABLE", 90)


@here
async def test_a_failing_token_endpoint_refuses_sign_ins_and_signs_nobody_out(
    members: Members, patreon: FakePatreon
) -> None:
    token = await signed_in(members)
    for said in (answer({}, 500), answer({}, 429), answer(b"<html>"), answer({"access_token": 7}), answer([])):
        patreon.server.answers["/token"] = said
        assert await refusal(members.sign_in("code-123", REDIRECT)) == "PROVIDER_UNAVAILABLE"
    patreon.server.answers["/token"] = answer({"error": "invalid_grant"}, 400)
    assert await refusal(members.sign_in("code-123", REDIRECT)) == "TOKEN_EXCHANGE_FAILED"
    assert await works(members, token)


@pytest.mark.parametrize(
    "more",
    [
        {"expires_in": 10**30},
        {"expires_in": -5},
        {"expires_in": 0},
        {"expires_in": True},
        {"expires_in": "soon"},
        {"expires_in": None},
        {"expires_in": 1e300},
        {"access_token": "a\r\nx-evil: 1"},
        {"access_token": "é"},
        {"access_token": "\ud800"},
        {"access_token": ""},
        {"access_token": "x" * 100_000},
        {"refresh_token": "\ud800"},
        {"refresh_token": 7},
        {"token_type": "mac"},
        {"scope": ["a"]},
    ],
    ids=repr,
)
@here
async def test_unusual_provider_tokens_cause_no_server_error(
    members: Members, patreon: FakePatreon, more: dict[str, Any]
) -> None:
    usual = {"access_token": "access-123-1", "refresh_token": "refresh-123", "token_type": "Bearer", "expires_in": 3600}
    patreon.server.answers["/token"] = answer(usual | more)
    found = await refusal(members.sign_in("code-123", REDIRECT))
    assert found in (None, "PROVIDER_UNAVAILABLE", "IDENTITY_FETCH_FAILED", "TOKEN_EXCHANGE_FAILED")
    if found is None:
        held = await members.keys.user_token("123").get()
        assert held is not None
        assert held.access_token == "access-123-1"
