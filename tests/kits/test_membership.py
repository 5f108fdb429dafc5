"""The key document of the membership kit: sessions, refresh tokens, limits and caches."""

import asyncio
import json
from datetime import UTC, date, datetime
from typing import Any
from uuid import RFC_4122, UUID

import pytest

from keystead import KeyRing, Store
from keystead.kits.membership import (
    CachedAuth,
    CachedMembership,
    CachedQuota,
    MembershipKeys,
    ParsedMembership,
    RateLimitData,
    RefreshTokenData,
    SessionData,
    UserTokenData,
    session_uuid,
)
from keystead.parts.refresh import RefreshTokens, Rotated, RotationRefused
from tests.kits.conftest import Raw, lifetimes, rows, rows_of, without_seals
from tests.kits.writes import each_write

# The rows of the document's two tables. The crash report limit is a TypeScript interface in it, and the last three
# are URLs in an HTTP cache.
DOCUMENT = {
    "{sessionToken}": "Value",
    "usertoken:{patreonUserId}": "Value",
    "membership:{patreonUserId}": "Value",
    "refresh:{refreshToken}": "Value",
    "crashreport:ratelimit:{ip}": "Hash",
    "ratelimit:{identifier}:{windowStart}": "Counter",
    "quota:{userId}:{yearMonth}": "Value",
    "auth:{sessionToken}": "Value",
}
# New keys: locks and load markers, the stale membership, the refresh token chain of a session, and API keys.
NEW = {
    "membership:{patreonUserId}:mark": "Value",
    "membership:{patreonUserId}:stale": "Value",
    "renewing:{patreonUserId}": "Value",
    "session:{sessionToken}:refresh": "Value",
    "quota:{userId}:{yearMonth}:mark": "Value",
    "auth:{sessionToken}:mark": "Value",
    "membership-apikeys": "SortedSet",
    "membership-apikey:{id}": "Value",
}
MOMENT = datetime(2026, 1, 18, 9, 30, tzinfo=UTC)  # 1768728600000
SESSION_KEY = session_uuid("the session token")

SESSION = SessionData(
    access_token="the access token", refresh_token="the refresh token", expires_at=MOMENT, user_id="123"
)
USER_TOKEN = UserTokenData(
    access_token="the access token",
    refresh_token="the refresh token",
    expires_at=MOMENT,
    email="ann@example.com",
    full_name="Ann",
    session_tokens=[SESSION_KEY],
    updated_at=MOMENT,
)
MEMBERSHIP = CachedMembership(
    membership=ParsedMembership(
        user_id="123",
        email="ann@example.com",
        full_name="Ann",
        plan="Pro",
        has_bonus_tokens=False,
        pledge_amount_cents=300,
        campaign_lifetime_support_cents=1200,
        next_charge_date="2026-02-01",
        is_active=True,
    ),
    cached_at=MOMENT,
)
REFRESH = RefreshTokenData(user_id="123", session_token=SESSION_KEY, created_at=MOMENT, expires_at=MOMENT)
LIMIT = RateLimitData(count=1, window_start=MOMENT)
QUOTA = CachedQuota(tokens_used=25_000, cached_at=MOMENT)
AUTH = CachedAuth(user_id="123", plan="Pro", has_bonus_tokens=False, cached_at=MOMENT)


@pytest.fixture
def keys(store: Store, ring: KeyRing) -> MembershipKeys:
    return MembershipKeys(store, seal=ring)


def test_every_row_of_the_document_is_a_family() -> None:
    assert rows_of(MembershipKeys) == rows(DOCUMENT | NEW)


def test_the_lifetimes_are_those_of_the_document() -> None:
    assert lifetimes(MembershipKeys) == {
        "session": "30 days",
        "user_token": "31 days",
        "membership": "1 hour",
        "refresh": "30 days",
        "crash_report_limit": "1 minute",
        "rate_limit": "2 minutes",
        "quota": "5 minutes",
        "auth": "1 minute",
        "membership_mark": "15 seconds during a load, 5 seconds to 5 minutes after a failure",
        "membership_stale": "1 day",
        "renewing": "20 seconds",
        "refresh_chain": "30 days",
        "quota_mark": "5 seconds during a load, 2 seconds after a failure",
        "auth_mark": "20 seconds during a load, 2 seconds after a failure",
        "api_keys": "never expires: emptied as API keys are revoked",
        "api_key": "never expires: removed when it is revoked",
    }


async def test_a_refresh_token_is_read_as_the_document_shows_it_and_rotated(keys: MembershipKeys, store: Store) -> None:
    await keys.session(SESSION_KEY).set(SESSION)
    tokens = RefreshTokens(keys.refresh)
    begun = await tokens.begin(RefreshTokenData(user_id="123", session_token=SESSION_KEY))
    ends_ms = keys.now_ms() + 29 * 86_400_000
    stored = {"userId": "123", "sessionToken": str(SESSION_KEY), "createdAt": 1, "expiresAt": ends_ms, "isUsed": False}
    await store.run([("SET", keys.refresh(begun.id).key, json.dumps(stored))])
    assert isinstance(await tokens.rotate(begun.token), Rotated)
    await keys.session(SESSION_KEY).delete()
    assert await tokens.rotate(begun.token) == RotationRefused("session")
    assert not await keys.refresh(begun.id).exists()


def test_cached_families_have_the_role_cache() -> None:
    assert {name for name, family in MembershipKeys.families.items() if family.role == "cache"} == {
        "membership",
        "membership_mark",
        "membership_stale",
        "quota",
        "quota_mark",
        "auth",
        "auth_mark",
    }


async def test_keys_are_written_as_in_the_document(keys: MembershipKeys) -> None:
    session = UUID("3f2a9c1e-8b4d-4f6a-9e2b-7c5d1a0b8e4f")
    assert keys.session(sessionToken=session).key == "3f2a9c1e-8b4d-4f6a-9e2b-7c5d1a0b8e4f"
    assert keys.user_token(patreonUserId="123").key == "usertoken:123"
    assert keys.membership(patreonUserId="123").key == "membership:123"
    assert keys.refresh(refreshToken=str(session)).key == "refresh:3f2a9c1e-8b4d-4f6a-9e2b-7c5d1a0b8e4f"
    assert keys.crash_report_limit(ip="203.0.113.7").key == "crashreport:ratelimit:203.0.113.7"
    assert keys.rate_limit(identifier="123", windowStart=1768728600).key == "ratelimit:123:1768728600"
    assert keys.quota(userId="123", yearMonth=date(2026, 1, 1)).key == "quota:123:2026-01"
    assert keys.auth(sessionToken=session).key == "auth:3f2a9c1e-8b4d-4f6a-9e2b-7c5d1a0b8e4f"


async def test_colons_of_an_ipv6_address_are_escaped(keys: MembershipKeys) -> None:
    key = keys.crash_report_limit(ip="2001:DB8::7")
    assert key.key == "crashreport:ratelimit:2001%3Adb8%3A%3A7"
    assert str(key.values["ip"]) == "2001:db8::7"


def test_the_store_holds_a_uuid_of_the_session_tokens_digest() -> None:
    found = session_uuid("session-token")
    assert found == UUID("c101e911-469c-8691-b104-0b50d7054331")
    assert found.variant == RFC_4122
    assert found.version == 8
    assert found != session_uuid("session-tokem")


@pytest.mark.parametrize(
    ("name", "values", "value", "stored"),
    [
        pytest.param(
            "session",
            (SESSION_KEY,),
            SESSION,
            '{"accessToken":"*","refreshToken":"*","expiresAt":1768728600000,"userId":"123"}',
        ),
        pytest.param(
            "user_token",
            ("123",),
            USER_TOKEN,
            '{"accessToken":"*","refreshToken":"*","expiresAt":1768728600000,"email":"ann@example.com",'
            f'"fullName":"Ann","sessionTokens":["{SESSION_KEY}"],"updatedAt":1768728600000}}',
        ),
        pytest.param(
            "membership",
            ("123",),
            MEMBERSHIP,
            '{"membership":{"userId":"123","email":"ann@example.com","fullName":"Ann","plan":"Pro",'
            '"hasBonusTokens":false,"pledgeAmountCents":300,"campaignLifetimeSupportCents":1200,'
            '"nextChargeDate":"2026-02-01","isActive":true},"cachedAt":1768728600000}',
        ),
        pytest.param(
            "refresh",
            ("digest",),
            REFRESH,
            '{"createdAt":1768728600000,"expiresAt":1768728600000,"isUsed":false,"generation":0,'
            f'"userId":"123","sessionToken":"{SESSION_KEY}"}}',
        ),
        ("quota", ("123", date(2026, 1, 1)), QUOTA, '{"tokensUsed":25000,"cachedAt":1768728600000}'),
        pytest.param(
            "auth",
            (SESSION_KEY,),
            AUTH,
            '{"userId":"123","plan":"Pro","hasBonusTokens":false,"cachedAt":1768728600000}',
        ),
    ],
)
async def test_values_are_stored_as_in_the_document(
    keys: MembershipKeys, raw: Raw, name: str, values: tuple[Any, ...], value: Any, stored: str
) -> None:
    key = getattr(keys, name)(*values)
    await key.set(value)
    assert without_seals(await raw.ask("GET", key.key)) == stored
    assert await key.get() == value


async def test_a_membership_without_a_next_charge_has_no_such_field(keys: MembershipKeys, raw: Raw) -> None:
    free = MEMBERSHIP.membership.model_copy(update={"plan": "Free", "next_charge_date": None})
    await keys.membership(patreonUserId="123").set(CachedMembership(membership=free, cached_at=MOMENT))
    assert b"nextChargeDate" not in await raw.ask("GET", "membership:123")


async def test_the_limit_of_crash_reports_has_the_fields_of_the_document(keys: MembershipKeys, raw: Raw) -> None:
    await keys.crash_report_limit(ip="203.0.113.7").set(LIMIT)
    assert await raw.ask("HGETALL", "crashreport:ratelimit:203.0.113.7") == {
        b"count": b"1",
        b"windowStart": b"1768728600000",
    }


async def test_concurrent_crash_reports_are_all_counted(keys: MembershipKeys, raw: Raw) -> None:
    key = keys.crash_report_limit(ip="203.0.113.7")

    async def report() -> None:
        await keys.atomically(key.add_field("windowStart", MOMENT), key.increment("count"))

    await asyncio.gather(*(report() for _ in range(25)))
    assert await key.get() == RateLimitData(count=25, window_start=MOMENT)
    assert await raw.lives(key.key, "60s")


@pytest.mark.parametrize(
    ("name", "values", "value", "duration"),
    [
        ("session", (SESSION_KEY,), SESSION, "30d"),
        ("user_token", ("123",), USER_TOKEN, "31d"),
        ("membership", ("123",), MEMBERSHIP, "1h"),
        ("refresh", ("digest",), REFRESH, "30d"),
        ("crash_report_limit", ("203.0.113.7",), LIMIT, "60s"),
        ("rate_limit", ("123", 1768728600), 1, "120s"),
        ("quota", ("123", date(2026, 1, 1)), QUOTA, "5m"),
        ("auth", (SESSION_KEY,), AUTH, "60s"),
    ],
)
async def test_each_write_sets_the_documented_lifetime(
    keys: MembershipKeys, raw: Raw, name: str, values: tuple[Any, ...], value: Any, duration: str
) -> None:
    key = getattr(keys, name)(*values)
    async for verb in each_write(key, value):
        assert await raw.lives(key.key, duration), verb


async def test_deleting_a_user_or_session_row_deletes_what_it_owns(keys: MembershipKeys, raw: Raw) -> None:
    await keys.session(sessionToken=SESSION_KEY).add(SESSION)
    await keys.user_token(patreonUserId="123").add(USER_TOKEN)
    await keys.membership(patreonUserId="123").add(MEMBERSHIP)
    await keys.membership_stale(patreonUserId="123").add(MEMBERSHIP)
    await keys.auth(sessionToken=SESSION_KEY).add(AUTH)
    await keys.refresh_chain(sessionToken=SESSION_KEY).add("chain")
    await keys.user_token(patreonUserId="124").add(USER_TOKEN)
    assert await keys.user_token(patreonUserId="123").delete() is True
    assert await raw.keys() == {
        str(SESSION_KEY),
        f"auth:{SESSION_KEY}",
        f"session:{SESSION_KEY}:refresh",
        "usertoken:124",
    }
    assert await keys.session(sessionToken=SESSION_KEY).delete() is True
    assert await raw.keys() == {"usertoken:124"}


async def test_deleting_an_old_session_keeps_the_users_row(keys: MembershipKeys, raw: Raw) -> None:
    new = session_uuid("the next session token")
    await keys.session(sessionToken=SESSION_KEY).add(SESSION)
    await keys.session(sessionToken=new).add(SESSION)
    await keys.user_token(patreonUserId="123").add(USER_TOKEN.model_copy(update={"session_tokens": [new]}))
    assert await keys.session(sessionToken=SESSION_KEY).delete() is True
    assert await raw.keys() == {str(new), "usertoken:123"}


async def test_the_store_contains_no_secret(keys: MembershipKeys, raw: Raw) -> None:
    await keys.session(sessionToken=SESSION_KEY).set(SESSION)
    await keys.user_token(patreonUserId="123").set(USER_TOKEN)
    held = await raw.everything()
    assert b"ann@example.com" in held
    for secret in ("the access token", "the refresh token", "the session token"):
        assert secret.encode() not in held
        assert secret not in repr((SESSION, USER_TOKEN))
