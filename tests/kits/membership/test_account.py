"""The account of a signed-in member: first sync, consents, promotions and bonus tokens."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from keystead.errors import BadValue, StoreUnavailable
from keystead.kits.membership.service import consents
from keystead.kits.membership.service.promotions import Promotions
from keystead.kits.membership.service.tables import MEMBERSHIP_TABLES
from keystead.parts.tables import open_tables
from tests.every_database import database_url, on_databases
from tests.kits.membership.conftest import FakePatreon, on_servers
from tests.kits.membership.visiting import Visit, bearer, visiting
from tests.parts.sessions.conftest import Clock

__all__ = ["database_url"]

SEPTEMBER_MS = int(datetime(2026, 9, 21, tzinfo=UTC).timestamp()) * 1000
DAY_MS = 86_400_000


@pytest.fixture
def clock() -> Clock:
    return Clock(SEPTEMBER_MS)


@pytest.fixture
async def visit(patreon: FakePatreon, clock: Clock, urls: dict[str, str], tmp_path: Path) -> AsyncIterator[Visit]:
    settings = {"store": urls["default"], "database": f"sqlite:///{tmp_path}/rows.db"}
    own = {"limits": {"redeem": 0, "sync_init": 0}}
    async with visiting(patreon, now_ms=clock, own=own, **settings) as opened:
        yield opened


async def get(visit: Visit, path: str, token: str) -> httpx2.Response:
    return await visit.http.get(path, headers=bearer(token))


async def post(visit: Visit, path: str, token: str, **body: Any) -> httpx2.Response:
    return await visit.http.post(path, headers=bearer(token), json=body)


# --- the first sync --------------------------------------------------------------------------------------------


@on_servers
async def test_the_first_sync_returns_everything_and_grants_the_welcome_bonus_once(visit: Visit) -> None:
    token = await visit.sign_in()
    told = await get(visit, "/api/sync/init", token)
    assert told.status_code == 200, told.text
    found = told.json()
    assert found["welcome_bonus"] == {"granted_tokens": 25_000}
    assert found["bonus_tokens"]["total_remaining"] == 25_000
    assert found["promotion"] == {"has_promotion": False, "promotion": None, "expired": False}
    assert found["consent"] == {"privacy_policy": None, "terms_of_service": None}
    assert found["quota"]["tokens_limit"] == 10_000_000
    assert (found["success"], found["partial_failure"], found["failed_components"]) == (True, False, [])
    again = [one.json() for one in await asyncio.gather(*(get(visit, "/api/sync/init", token) for _ in range(50)))]
    assert {one["welcome_bonus"] for one in again} == {None}
    assert {one["bonus_tokens"]["total_remaining"] for one in again} == {25_000}
    assert (await visit.quota(token)).json()["has_bonus_tokens"] is True


@on_servers
async def test_50_concurrent_first_syncs_grant_one_welcome_bonus(visit: Visit) -> None:
    token = await visit.sign_in()
    found = await asyncio.gather(*(get(visit, "/api/sync/init", token) for _ in range(50)))
    assert sum(one.json()["welcome_bonus"] is not None for one in found) == 1


@on_servers
async def test_a_sync_with_a_failed_part_returns_the_others(visit: Visit, monkeypatch: pytest.MonkeyPatch) -> None:
    token = await visit.sign_in()

    async def away(*_: object) -> None:
        raise StoreUnavailable("away")

    monkeypatch.setattr(visit.members.account.promotions, "latest_of", away)
    told = (await get(visit, "/api/sync/init", token)).json()
    assert (told["partial_failure"], told["failed_components"], told["promotion"]) == (True, ["promotion"], None)
    assert told["quota"]["tokens_limit"] == 10_000_000


@on_servers
async def test_syncs_redemptions_and_bonus_syncs_are_limited_per_user(
    patreon: FakePatreon, clock: Clock, urls: dict[str, str], tmp_path: Path
) -> None:
    settings = {"store": urls["default"], "database": f"sqlite:///{tmp_path}/rows.db"}
    own = {"limits": {"redeem": 1, "sync_init": 1, "bonus_sync": 1}}
    async with visiting(patreon, now_ms=clock, own=own, **settings) as visit:
        ann, bob = await visit.sign_in("123"), await visit.sign_in("124")
        asks: tuple[Callable[[str], Awaitable[httpx2.Response]], ...] = (
            lambda who: get(visit, "/api/sync/init", who),
            lambda who: post(visit, "/api/promotion/redeem", who, code="x"),
            lambda who: post(visit, "/api/bonus-tokens/sync", who, bonuses=[]),
        )
        for ask in asks:
            answers = [await ask(ann) for _ in range(4)]
            refused = [one for one in answers if one.status_code == 429]
            assert len(refused) >= 2  # a new window may have begun meanwhile
            assert refused[0].json()["error_code"] == "RATE_LIMITED"
            assert 0 < int(refused[0].headers["retry-after"]) <= 60
            assert (await ask(bob)).status_code == 200


# --- consents --------------------------------------------------------------------------------------------------


@on_servers
async def test_a_consent_is_stored_once_and_the_latest_version_is_returned(visit: Visit, clock: Clock) -> None:
    token = await visit.sign_in()
    sent = {"user_id": "123", "consent_type": "privacy_policy", "version": "1", "accepted_at": "2026-01-18T09:30:00Z"}
    assert (await post(visit, "/api/consent/record", token, **sent)).json() == {"success": True, "is_new": True}
    later = {**sent, "accepted_at": "2027-01-18T09:30:00Z"}
    assert (await post(visit, "/api/consent/record", token, **later)).json() == {"success": True, "is_new": False}
    clock.pass_ms(1000)
    second = {**sent, "version": "2", "accepted_at": "2026-03-01T10:00:00+09:00", "client_version": "1.4"}
    assert (await post(visit, "/api/consent/record", token, **second)).json()["is_new"] is True
    assert (await get(visit, "/api/consent/status", token)).json() == {
        "success": True,
        "privacy_policy": {"version": "2", "accepted_at": "2026-03-01T01:00:00.000Z"},
        "terms_of_service": None,
    }
    assert (await get(visit, "/api/sync/init", token)).json()["consent"]["privacy_policy"]["version"] == "2"


@on_servers
async def test_a_consent_at_an_unrepresentable_time_is_refused_and_hides_no_other(visit: Visit) -> None:
    token = await visit.sign_in()
    sent = {"user_id": "123", "consent_type": "privacy_policy"}
    for at in ("0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"):
        told = await post(visit, "/api/consent/record", token, **sent, version="1", accepted_at=at)
        assert told.status_code == 400, (at, told.text)
    for version, at in (("2", "0001-01-01T00:00:00Z"), ("3", "9999-12-31T23:59:59.999Z")):
        told = await post(visit, "/api/consent/record", token, **sent, version=version, accepted_at=at)
        assert told.status_code == 200, (at, told.text)
        assert (await get(visit, "/api/consent/status", token)).status_code == 200
        assert (await get(visit, "/api/sync/init", token)).status_code == 200


@on_servers
async def test_a_consent_for_another_user_is_refused(visit: Visit) -> None:
    token = await visit.sign_in()
    profile = await visit.members.ledger.profile_of("123", 0)
    sent = {"consent_type": "terms_of_service", "version": "1", "accepted_at": "2026-01-18T09:30:00Z"}
    assert (await post(visit, "/api/consent/record", token, user_id=str(profile.id), **sent)).status_code == 200
    other = await post(visit, "/api/consent/record", token, user_id="124", **sent)
    assert (other.status_code, other.json()["error_code"]) == (403, "USER_ID_MISMATCH")
    for headers in ({}, bearer("a.b.c")):
        told = await visit.http.post("/api/consent/record", json={"user_id": "123", **sent}, headers=headers)
        assert (told.status_code, told.json()["error_code"]) == (401, "AUTHENTICATION_REQUIRED")
        assert told.headers["www-authenticate"].startswith("Bearer ")
    for wrong in ({"consent_type": "x"}, {"accepted_at": "2026-01-18"}, {"version": ""}, {"version": "\0"}):
        told = await post(visit, "/api/consent/record", token, user_id="123", **{**sent, **wrong})
        assert told.status_code == 400, (wrong, told.text)


@on_databases()
async def test_the_number_of_consents_of_a_member_is_bounded(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consents, "CONSENTS_MAX", 5)
    async with open_tables(database_url, MEMBERSHIP_TABLES) as tables:
        kept = consents.Consents(tables)

        async def agree(version: int) -> bool:
            try:
                return await kept.record("123", consents.Consent("privacy_policy", str(version), 1, version))
            except BadValue:
                return False

        assert sum(await asyncio.gather(*(agree(version) for version in range(50)))) == 5
        assert await tables.count_of("membership:123") == {
            "keystead_membership_consents": 5,
            "keystead_membership_profiles": 1,
        }


# --- promotions ------------------------------------------------------------------------------------------------


async def made(visit: Visit, **more: Any) -> str:
    lasts = {"lasts_ms": 30 * DAY_MS, "max_uses": 100, **more}
    return (await visit.members.account.promotions.make("Pro", visit.members.keys.now_ms(), **lasts)).code


@on_servers
async def test_a_promotion_code_grants_its_bonus_once_and_lasts_until_it_expires(visit: Visit, clock: Clock) -> None:
    token, code = await visit.sign_in(), await made(visit)
    assert code.startswith("PROMO-")
    told = (await post(visit, "/api/promotion/redeem", token, code=f"  {code.lower()} ")).json()
    assert (told["success"], told["plan_type"], told["bonus_tokens_granted"]) == (True, "Pro", 10_000_000)
    assert told["expires_at"] == "2026-10-21T00:00:00.000Z"
    assert (await visit.quota(token)).json()["has_bonus_tokens"] is True
    again = await post(visit, "/api/promotion/redeem", token, code=code)
    assert (again.status_code, again.json()["success"], again.json()["error_code"]) == (200, False, "ALREADY_REDEEMED")
    status = (await get(visit, "/api/promotion/status", token)).json()
    masked = f"PROMO-******{code[-2:]}"
    assert (status["has_promotion"], status["expired"], status["promotion"]["code_masked"]) == (True, False, masked)
    clock.pass_ms(29 * DAY_MS)
    assert (await get(visit, "/api/promotion/status", token)).json()["expired"] is False
    await visit.members.invalidate_membership("123")
    clock.pass_ms(DAY_MS)
    token = await visit.sign_in()
    status = (await get(visit, "/api/promotion/status", token)).json()
    assert (status["has_promotion"], status["expired"]) == (False, True)
    assert (await visit.quota(token)).json()["has_bonus_tokens"] is True  # bonus tokens do not expire


@on_servers
async def test_an_invalid_promotion_code_is_answered_with_200_and_the_reason(visit: Visit, clock: Clock) -> None:
    token = await visit.sign_in()
    late = await made(visit, redeem_before_ms=clock() + 1)
    clock.pass_ms(1)
    for code, why in (
        ("", "INVALID_CODE"),
        ("PROMO-ILOUILOU", "INVALID_CODE"),
        ("OTHER-23456789", "INVALID_CODE"),
        ("PROMO-23456789", "INVALID_CODE"),
        ("PROMO-\0é\n3456", "INVALID_CODE"),
        (late, "CODE_EXPIRED"),
    ):
        told = await post(visit, "/api/promotion/redeem", token, code=code)
        assert (told.status_code, told.json()["success"], told.json()["error_code"]) == (200, False, why)
    assert (await visit.quota(token)).json()["has_bonus_tokens"] is False


@on_servers
async def test_a_promotion_needs_a_signed_in_member(visit: Visit) -> None:
    code = await made(visit)
    for headers, why in (({}, "PROMO_AUTH_REQUIRED"), (bearer("a.b.c"), "PROMO_INVALID_TOKEN")):
        for told in (
            await visit.http.post("/api/promotion/redeem", json={"code": code}, headers=headers),
            await visit.http.get("/api/promotion/status", headers=headers),
        ):
            assert (told.status_code, told.json()["error_code"]) == (401, why)
    [promotion] = await visit.members.account.promotions.list()
    assert promotion.uses == 0


@on_databases()
async def test_60_concurrent_redemptions_do_not_exceed_max_uses(database_url: str) -> None:
    async with open_tables(database_url, MEMBERSHIP_TABLES) as tables:
        promotions = Promotions(tables, "PROMO")
        code = (await promotions.make("Pro", 0, max_uses=7, lasts_ms=DAY_MS, bonus_tokens=5)).code
        # Thirty members, two requests each.
        found = await asyncio.gather(*(promotions.redeem(str(number % 30), code, 1) for number in range(60)))
        assert sum(not isinstance(one, str) for one in found) == 7
        assert {one for one in found if isinstance(one, str)} <= {"CODE_USED_UP", "ALREADY_REDEEMED"}
        [promotion] = await promotions.list()
        assert (promotion.uses, promotion.max_uses) == (7, 7)


def held_in(folder: Path) -> list[bytes]:
    """The contents of the database files."""
    return [one.read_bytes() for one in folder.glob("rows.db*")]


@on_servers
async def test_no_code_is_in_the_database(visit: Visit, tmp_path: Path) -> None:
    code = await made(visit)
    await visit.members.ledger.tables.ping()
    files = held_in(tmp_path)
    assert files
    for held in files:
        assert code.encode() not in held
        assert code.partition("-")[2].encode() not in held


# --- bonus tokens ----------------------------------------------------------------------------------------------


@on_servers
async def test_bonus_usage_reported_by_an_app_only_increases(visit: Visit) -> None:
    token = await visit.sign_in()
    await visit.members.usage.grant_bonus("123", "b1", 100, "gift")
    await visit.members.usage.grant_bonus("123", "b2", 100, "gift")

    async def sync(**used: int) -> dict[str, int]:
        sent = [{"id": name, "used_tokens": tokens} for name, tokens in used.items()]
        told = await post(visit, "/api/bonus-tokens/sync", token, bonuses=sent)
        assert told.status_code == 200, told.text
        assert told.json()["synced_count"] == len(told.json()["synced"])
        found: dict[str, int] = told.json()["synced"]
        return found

    assert await sync(b1=30) == {"b1": 30}
    assert await sync(b1=10, b2=5, unknown=7) == {"b1": 30, "b2": 5}
    assert await sync() == {}
    told = (await get(visit, "/api/bonus-tokens/status", token)).json()
    assert [(one["id"], one["used_tokens"], one["remaining_tokens"]) for one in told["bonuses"]] == [
        ("b1", 30, 70),
        ("b2", 5, 95),
    ]
    assert told["total_remaining"] == 165
    assert await sync(b1=10**9, b2=100) == {"b1": 100, "b2": 100}
    assert (await visit.quota(token)).json()["has_bonus_tokens"] is False
    for wrong in ([{"id": "b1", "used_tokens": -1}], [{"id": "b1"}], "x", [{"id": "", "used_tokens": 1}], [7]):
        assert (await post(visit, "/api/bonus-tokens/sync", token, bonuses=wrong)).status_code == 400


@on_servers
async def test_erasing_a_user_erases_their_consents_and_redemptions(visit: Visit) -> None:
    token, code = await visit.sign_in(), await made(visit)
    await post(visit, "/api/promotion/redeem", token, code=code)
    sent = {"consent_type": "terms_of_service", "version": "1", "accepted_at": "2026-01-18T09:30:00Z"}
    await post(visit, "/api/consent/record", token, user_id="123", **sent)
    tables = visit.members.ledger.tables
    counted = await tables.count_of("membership:123")
    assert counted["keystead_membership_redemptions"] == counted["keystead_membership_consents"] == 1
    assert await tables.erase("membership:123") == counted
    assert await tables.count_of("membership:123") == {}
