"""The key document on a real Redis: the kind, fields and lifetime of each key, and no keys after a logout."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from keystead import Store
from keystead.errors import StoreUnavailable
from keystead.kits.membership import Members
from keystead.kits.membership.service.ledger import month_of
from keystead.kits.membership.service.ledger_records import Usage
from keystead.parts.cache import LoadFailed
from tests.kits.membership.conftest import Books, FakePatreon, on_redis, refusal, rows, signed_in
from tests.parts.sessions.conftest import Clock

MINUTE_S, HOUR_S, DAY_S = 60, 3_600, 86_400
SLACK_S = 20

SESSION_FIELDS = {"accessToken", "refreshToken", "expiresAt", "userId"}
USER_FIELDS = {"accessToken", "refreshToken", "expiresAt", "email", "fullName", "sessionTokens", "updatedAt"}
MEMBERSHIP_FIELDS = {
    "userId",
    "email",
    "fullName",
    "plan",
    "hasBonusTokens",
    "pledgeAmountCents",
    "campaignLifetimeSupportCents",
    "nextChargeDate",
    "isActive",
}


async def held(store: Store, key: str) -> tuple[str, Any, int]:
    """The kind, value and TTL in seconds of a key, from Redis."""
    kind, left_ms = await store.run([("TYPE", key), ("PTTL", key)])
    kind = kind.decode() if isinstance(kind, bytes) else kind
    if kind == "hash":
        [fields] = await store.run([("HGETALL", key)])
        return kind, {name.decode(): value.decode() for name, value in fields.items()}, left_ms // 1000
    [text] = await store.run([("GET", key)])
    try:
        return kind, json.loads(text), left_ms // 1000
    except ValueError:
        return kind, text, left_ms // 1000


def lives(left_s: int, seconds: int) -> bool:
    return seconds - SLACK_S < left_s <= seconds


@on_redis
async def test_each_documented_key_is_written_and_deleted_by_a_logout(members: Members, store: Store) -> None:
    token = await signed_in(members)
    pair = await members.token_pairs.issue(token)
    pair = await members.token_pairs.refresh(pair.refresh_token)
    who = await members.entitled(pair.access_token)
    await members.tokens_used(who)
    assert members.crash_reports is not None
    assert members.webhooks is not None
    await members.crash_reports.hit("203.0.113.7")
    await members.webhooks.hit("webhook:203.0.113.7")
    session = str(who.session.id)
    month = month_of(members.keys.now_ms())
    [chain] = [key for key in await rows(store) if key.startswith("refresh:")]
    [window] = [key for key in await rows(store) if key.startswith("ratelimit:")]
    assert window.startswith("ratelimit:webhook%3A203.0.113.7:")
    assert int(window.rpartition(":")[2]) % 60_000 == 0

    expected: dict[str, tuple[str, int, set[str] | None]] = {
        session: ("string", 30 * DAY_S, SESSION_FIELDS),
        "usertoken:123": ("string", 31 * DAY_S, USER_FIELDS),
        "membership:123": ("string", HOUR_S, {"membership", "cachedAt"}),
        "membership:123:stale": ("string", DAY_S, {"membership", "cachedAt"}),
        chain: ("string", 30 * DAY_S, {"userId", "sessionToken", "createdAt", "expiresAt", "isUsed"}),
        f"session:{session}:refresh": ("string", 30 * DAY_S, None),
        f"auth:{session}": ("string", MINUTE_S, {"userId", "plan", "hasBonusTokens", "cachedAt"}),
        f"quota:123:{month}": ("string", 5 * MINUTE_S, {"tokensUsed", "cachedAt"}),
        "crashreport:ratelimit:203.0.113.7": ("hash", MINUTE_S, {"count", "windowStart"}),
        window: ("string", 2 * MINUTE_S, None),
    }
    assert await rows(store) == set(expected)
    for key, (kind, seconds, fields) in expected.items():
        found_kind, found, left_s = await held(store, key)
        assert found_kind == kind, key
        assert lives(left_s, seconds), (key, left_s)
        if fields is not None:
            assert fields <= set(found), key
    _, remembered, _ = await held(store, "membership:123")
    assert set(remembered["membership"]) >= MEMBERSHIP_FIELDS
    _, user, _ = await held(store, "usertoken:123")
    assert user["sessionTokens"] == [session]
    secrets = (token, token.partition(".")[0], pair.access_token, pair.refresh_token, "access-123-1", "refresh-123")
    for key in expected:
        _, found, _ = await held(store, key)
        for secret in secrets:
            assert secret not in f"{key} {found}"

    assert await members.logout(token) is True
    assert await rows(store) == {key for key in expected if "ratelimit" in key}


@on_redis
async def test_short_lived_keys_are_documented_and_deleted_by_a_logout(
    members: Members, patreon: FakePatreon, store: Store, clock: Clock
) -> None:
    token = await signed_in(members)
    who = await members.entitled(token)
    clock.pass_ms(2_592_000_000 - 60_000)  # the provider's tokens are about to expire
    await members.invalidate_membership("123")
    tell = patreon.server.holds("/token")
    asking = asyncio.create_task(members.entitled(token))
    await patreon.server.until_asked("/token", 2)
    moment = {
        "membership:123:mark": 15,
        f"auth:{who.session.id}:mark": 20,
        "renewing:123": 20,
    }
    assert set(moment) <= await rows(store)
    for key, seconds in moment.items():
        [left_ms] = await store.run([("PTTL", key)])
        assert 0 < left_ms <= seconds * 1000, key
    assert await members.logout(token) is True
    tell()
    assert await refusal(asking) == "SESSION_INVALID"
    await members.close()
    assert await rows(store) == set()


@on_redis
async def test_a_database_outage_sets_a_load_marker_that_a_logout_deletes(
    members: Members, ledger: Books, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await signed_in(members)
    who = await members.entitled(token)

    async def away(user: str, month: str) -> Usage:
        raise StoreUnavailable("the database is away")

    monkeypatch.setattr(ledger, "usage", away)
    with pytest.raises(LoadFailed):
        await members.tokens_used(who)
    marks = [key for key in await rows(store) if key.startswith("quota:") and key.endswith(":mark")]
    assert len(marks) == 1
    await members.logout(token)
    assert await rows(store) == set()


@on_redis
async def test_renewed_provider_tokens_do_not_extend_a_session(members: Members, store: Store, clock: Clock) -> None:
    token = await signed_in(members)
    session = members.devices.parse_token(token)
    assert session is not None
    for key in (str(session.id), "usertoken:123"):
        await store.run([("PEXPIRE", key, 100_000)])  # it is about to expire
    clock.pass_ms(2_592_000_000 - 60_000)
    await members.sync(token)
    renewed = await members.keys.session(session.id).get()
    assert renewed is not None
    assert renewed.access_token == "access-123-2"
    for key in (str(session.id), "usertoken:123"):
        [left_ms] = await store.run([("PTTL", key)])
        assert 0 < left_ms <= 100_000, key
