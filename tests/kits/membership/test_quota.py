"""The quota over HTTP: limits by plan, bonus tokens after the quota, and plan changes within a month."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from tests.kits.membership.conftest import FakePatreon
from tests.kits.membership.visiting import Visit, bearer, signature, visiting
from tests.parts.sessions.conftest import Clock

SEPTEMBER = datetime(2026, 9, 21, tzinfo=UTC)
OCTOBER_S = int(datetime(2026, 10, 1, tzinfo=UTC).timestamp())
NOVEMBER_S = int(datetime(2026, 11, 1, tzinfo=UTC).timestamp())
PRO = 10_000_000


@pytest.fixture
def clock() -> Clock:
    return Clock(int(SEPTEMBER.timestamp()) * 1000)


@pytest.fixture
async def visit(patreon: FakePatreon, clock: Clock) -> AsyncIterator[Visit]:
    async with visiting(patreon, now_ms=clock) as opened:
        yield opened


async def use(visit: Visit, token: str, event: str, tokens: int) -> tuple[int, int, int]:
    who = await visit.members.entitled(token)
    recorded = await visit.members.record_usage(who, event, tokens)
    return recorded.from_quota, recorded.from_bonus, recorded.beyond


async def changes_to(visit: Visit, patreon: FakePatreon, cents: int) -> None:
    """Send a webhook: the user pays this amount from now on."""
    patreon.cents = cents
    body = (
        b'{"data": {"attributes": {"currently_entitled_amount_cents": %d}, "relationships": {"user": {"data": ' % cents
    )
    body += b'{"id": "123"}}}}}'
    headers = {"x-patreon-event": "members:pledge:update", **signature(body)}
    assert (await visit.http.post("/webhook", content=body, headers=headers)).json()["processed"] is True


@pytest.mark.parametrize(
    ("cents", "plan", "limit"),
    [(0, "Free", 0), (300, "Pro", PRO), (500, "Premium", 20_000_000), (900, "Ultimate", 50_000_000)],
)
async def test_the_limit_is_that_of_the_plan(
    visit: Visit, patreon: FakePatreon, cents: int, plan: str, limit: int
) -> None:
    patreon.cents = cents
    token = await visit.sign_in()
    for bearer_token in (token, (await visit.pair(token))["accessToken"]):
        told = await visit.quota(bearer_token)
        assert told.json() == {
            "success": True,
            "monthly_usage": {
                "year_month": "2026-09",
                "tokens_used": 0,
                "tokens_limit": limit,
                "is_exceeded": limit == 0,
            },
            "plan": plan,
            "has_bonus_tokens": False,
            "plan_is_stale": False,
            "plan_as_of": int(SEPTEMBER.timestamp()) * 1000,
        }
        assert told.headers["x-ratelimit-limit"] == told.headers["x-ratelimit-remaining"] == str(limit)
        assert told.headers["x-ratelimit-reset"] == str(OCTOBER_S)
        assert told.headers["cache-control"] == "no-store"


async def test_bonus_tokens_are_used_after_the_quota_and_never_twice(visit: Visit, clock: Clock) -> None:
    token = await visit.sign_in()
    await visit.members.ledger.grant_bonus("123", "welcome", 25_000, "welcome", clock())
    assert (await visit.quota(token)).json()["has_bonus_tokens"] is True
    assert await use(visit, token, "e1", PRO - 5) == (PRO - 5, 0, 0)
    told = await visit.quota(token)
    assert (told.json()["monthly_usage"]["is_exceeded"], told.headers["x-ratelimit-remaining"]) == (False, "5")
    found = await asyncio.gather(*(use(visit, token, "e2", 20) for _ in range(10)))
    assert set(found) == {(5, 15, 0)}  # one of them counts, and all get the same answer
    told = await visit.quota(token)
    usage = told.json()["monthly_usage"]
    assert (usage["tokens_used"], usage["is_exceeded"], told.headers["x-ratelimit-remaining"]) == (PRO, True, "0")
    assert told.json()["has_bonus_tokens"] is True
    [bonus] = await visit.members.ledger.bonuses("123")
    assert bonus.used == 15
    assert await use(visit, token, "e3", 30_000) == (0, 24_985, 5_015)
    told = await visit.quota(token)
    assert told.json()["has_bonus_tokens"] is False
    assert told.json()["monthly_usage"]["tokens_used"] == PRO + 5_015
    assert told.headers["x-ratelimit-remaining"] == "0"


async def test_a_month_ends_at_midnight_in_utc_and_a_new_one_begins_with_nothing_used(
    visit: Visit, clock: Clock
) -> None:
    clock.now_ms = OCTOBER_S * 1000 - 1
    token = await visit.sign_in()
    await use(visit, token, "e1", 100)
    told = await visit.quota(token)
    assert told.json()["monthly_usage"]["tokens_used"] == 100
    assert told.headers["x-ratelimit-reset"] == str(OCTOBER_S)
    clock.pass_ms(1)
    told = await visit.quota(token)
    assert told.json()["monthly_usage"] == {
        "year_month": "2026-10",
        "tokens_used": 0,
        "tokens_limit": PRO,
        "is_exceeded": False,
    }
    assert told.headers["x-ratelimit-reset"] == str(NOVEMBER_S)
    assert await visit.members.tokens_used(await visit.members.entitled(token)) == 0
    assert await use(visit, token, "e1", 100) == (100, 0, 0)  # already counted in September
    assert (await visit.quota(token)).json()["monthly_usage"]["tokens_used"] == 0


async def test_a_downgrade_within_a_month_lowers_the_limit_and_keeps_the_usage(
    visit: Visit, patreon: FakePatreon
) -> None:
    patreon.cents = 900
    token = await visit.sign_in()
    await use(visit, token, "e1", 30_000_000)
    await changes_to(visit, patreon, 300)
    told = await visit.quota(token)
    assert told.json()["plan"] == "Pro"
    assert told.json()["monthly_usage"] == {
        "year_month": "2026-09",
        "tokens_used": 30_000_000,
        "tokens_limit": PRO,
        "is_exceeded": True,
    }
    assert told.headers["x-ratelimit-remaining"] == "0"
    assert await use(visit, token, "e2", 10) == (0, 0, 10)
    await changes_to(visit, patreon, 900)
    assert (await visit.quota(token)).headers["x-ratelimit-remaining"] == str(50_000_000 - 30_000_010)


async def test_a_signed_out_member_cannot_read_the_quota(visit: Visit) -> None:
    token = await visit.sign_in()
    access = (await visit.pair(token))["accessToken"]
    assert (await visit.quota(access)).status_code == 200
    await visit.http.post("/api/auth/logout", headers=bearer(access))
    for ended in (access, token):
        told = await visit.quota(ended)
        assert (told.status_code, told.json()["success"], told.json()["error_code"]) == (401, False, "SESSION_INVALID")
