"""Programs with an API key: usage, bonuses, plan history and crash reports."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from keystead.kits.membership import Members
from keystead.kits.membership.keys import MembershipKeys
from keystead.kits.membership.service.ledger_records import PlanAsOf
from tests.kits.membership.conftest import FakePatreon, on_all, on_servers, refusal
from tests.kits.membership.test_quota import changes_to
from tests.kits.membership.visiting import Visit, bearer, signature, visiting
from tests.parts.oauth.stand_in import answer
from tests.parts.sessions.conftest import Clock

PRO = 10_000_000
SEPTEMBER_MS = int(datetime(2026, 9, 21, tzinfo=UTC).timestamp()) * 1000


@pytest.fixture
def clock() -> Clock:
    return Clock(SEPTEMBER_MS)


@pytest.fixture
async def visit(patreon: FakePatreon, clock: Clock, urls: dict[str, str], tmp_path: Path) -> AsyncIterator[Visit]:
    settings = {"store": urls["default"], "database": f"sqlite:///{tmp_path}/rows.db"}
    async with visiting(patreon, now_ms=clock, own={"limits": {"crash_report": 0}}, **settings) as opened:
        yield opened


class Program:
    """A program that records usage of members."""

    def __init__(self, visit: Visit, key: str) -> None:
        self._http = visit.http
        self._headers = bearer(key)

    async def get(self, path: str, **query: Any) -> httpx2.Response:
        return await self._http.get(f"/api/membership/{path}", headers=self._headers, params=query)

    async def post(self, path: str, **body: Any) -> httpx2.Response:
        return await self._http.post(f"/api/membership/{path}", headers=self._headers, json=body)

    async def use(self, event: str, tokens: int, user: str = "123") -> dict[str, Any]:
        told = await self.post("usage", user_id=user, event_id=event, tokens=tokens)
        assert told.status_code == 200, told.text
        found: dict[str, Any] = told.json()
        return found


@pytest.fixture
async def program(visit: Visit) -> Program:
    return Program(visit, (await visit.members.programs.issue_key("translation server")).token)


@on_servers
async def test_usage_recorded_by_a_program_counts_once_per_event(visit: Visit, program: Program) -> None:
    token = await visit.sign_in()
    assert (await visit.quota(token)).json()["monthly_usage"]["tokens_used"] == 0
    told = await program.use("e1", 1_200)
    assert (told["is_new"], told["from_quota"], told["plan"]) == (True, 1_200, "Pro")
    assert told["monthly_usage"]["tokens_used"] == 1_200
    again = await program.use("e1", 1_200)
    assert (again["is_new"], again["monthly_usage"]["tokens_used"]) == (False, 1_200)
    quota = await visit.quota(token)
    assert quota.json()["monthly_usage"]["tokens_used"] == 1_200
    assert quota.headers["x-ratelimit-remaining"] == str(PRO - 1_200)
    assert await visit.members.tokens_used(await visit.members.entitled(token)) == 1_200


@on_servers
async def test_50_programs_reporting_the_same_events_concurrently_count_each_once(
    visit: Visit, program: Program
) -> None:
    token = await visit.sign_in()
    await asyncio.gather(*(program.use(f"e{number % 5}", 10) for number in range(50)))
    assert (await visit.quota(token)).json()["monthly_usage"]["tokens_used"] == 50


@on_servers
async def test_a_granted_bonus_is_visible_immediately_on_every_route(
    visit: Visit, program: Program, patreon: FakePatreon
) -> None:
    patreon.cents = 0
    token = await visit.sign_in()
    access = (await visit.pair(token))["accessToken"]
    assert [(await visit.quota(one)).json()["has_bonus_tokens"] for one in (token, access)] == [False, False]
    asked = patreon.questions
    told = (await program.post("bonus", user_id="123", bonus_id="summer", tokens=500, source="gift")).json()
    assert (told["is_new"], told["has_bonus_tokens"], told["bonus_tokens"]["total_remaining"]) == (True, True, 500)
    again = (await program.post("bonus", user_id="123", bonus_id="summer", tokens=900)).json()
    assert (again["is_new"], again["bonus_tokens"]["total_remaining"]) == (False, 500)
    for one in (token, access, (await visit.pair(token))["accessToken"]):
        found = await visit.quota(one)
        assert found.status_code == 401 or found.json()["has_bonus_tokens"] is True
    assert (await visit.members.entitled(token)).has_bonus_tokens is True
    keys: MembershipKeys = visit.members.keys
    for family in (keys.membership, keys.membership_stale):
        held = await family("123").get()
        assert held is not None
        assert held.membership.has_bonus_tokens is True
    assert patreon.questions == asked  # the plan has not changed
    await program.use("e1", 500)
    assert (await visit.quota(token)).json()["has_bonus_tokens"] is False
    held = await keys.membership("123").get()
    assert held is not None
    assert held.membership.has_bonus_tokens is False


@on_servers
async def test_a_membership_loaded_after_a_grant_reports_bonus_tokens(visit: Visit, program: Program) -> None:
    await program.post("bonus", user_id="123", bonus_id="summer", tokens=500)
    await visit.sign_in()
    held = await visit.members.keys.membership("123").get()
    assert held is not None
    assert held.membership.has_bonus_tokens is True


@on_servers
async def test_a_signed_out_member_is_charged_by_the_last_reported_plan(
    visit: Visit, program: Program, patreon: FakePatreon
) -> None:
    await program.post("bonus", user_id="123", bonus_id="summer", tokens=500)
    assert (await program.get("status", user_id="123")).json()["plan"] == "Free"
    await changes_to(visit, patreon, 500)
    told = await program.use("e1", 10)
    assert (told["plan"], told["from_quota"], told["from_bonus"]) == ("Premium", 10, 0)
    patreon.cents = 900
    token = await visit.sign_in()
    assert (await program.get("status", user_id="123")).json()["plan"] == "Ultimate"
    await visit.pair(token)
    await visit.http.post("/api/auth/logout", headers=bearer(token))
    assert (await program.get("status", user_id="123")).json()["plan"] == "Ultimate"


@on_servers
async def test_no_bonus_is_spent_while_the_plan_is_unknown(
    visit: Visit, program: Program, patreon: FakePatreon
) -> None:
    await visit.sign_in()
    await program.post("bonus", user_id="123", bonus_id="summer", tokens=500)
    await visit.members.invalidate_membership("123")
    patreon.says(answer({}, 500))
    told = await program.post("usage", user_id="123", event_id="e1", tokens=10)
    assert (told.status_code, told.json()["error_code"]) == (503, "PROVIDER_UNAVAILABLE")
    assert int(told.headers["retry-after"]) > 0
    [bonus] = await visit.members.ledger.bonuses("123")
    assert bonus.used == 0
    read = (await program.get("status", user_id="123")).json()  # spends nothing
    assert (read["plan"], read["plan_is_stale"]) == ("Free", True)


@on_servers
async def test_only_an_api_key_of_this_kit_opens_these_routes(visit: Visit, caplog: pytest.LogCaptureFixture) -> None:
    token = await visit.sign_in()
    issued = await visit.members.programs.issue_key("soon over")
    assert (await Program(visit, issued.token).get("crash-reports")).status_code == 200
    assert await visit.members.programs.revoke_key(issued.token)
    assert not await visit.members.programs.revoke_key(issued.id)
    for other in (issued.token, token, (await visit.pair(token))["accessToken"], f"{issued.token[:-1]}x", "ks_x"):
        caplog.clear()
        told = await Program(visit, other).post("usage", user_id="123", event_id="e", tokens=1)
        assert (told.status_code, told.json()["error_code"]) == (401, "API_KEY_INVALID")
        assert told.headers["www-authenticate"].startswith("Bearer ")
        [noted] = [one for one in caplog.records if vars(one).get("event") == "unknown-api-key"]
        assert (noted.levelno, vars(noted)["client"]) == (logging.WARNING, "192.0.2.7")
        assert other not in caplog.text
    told = await visit.http.post("/api/membership/usage", json={"user_id": "123", "event_id": "e", "tokens": 1})
    assert (told.status_code, told.json()["error_code"]) == (401, "MISSING_AUTH")


@on_servers
async def test_no_api_key_is_in_the_store(visit: Visit, program: Program) -> None:
    issued = await visit.members.programs.issue_key("x")
    secret = issued.token.partition(f"{issued.id}_")[2].encode()
    assert len(secret) > 20
    assert {one.name for one in await visit.members.programs.list_keys()} == {"translation server", "x"}
    store = visit.app.state.stores["default"]
    for page in [page async for page in store.scan()]:
        for key in page:
            [kind] = await store.run([("TYPE", key)])
            held = b"" if kind != "string" and kind != b"string" else (await store.run([("GET", key)]))[0]
            assert secret not in key + (held or b"")


@on_servers
async def test_invalid_users_and_numbers_are_refused(visit: Visit, program: Program) -> None:
    good = {"user_id": "123", "event_id": "e", "tokens": 1}
    odd: tuple[dict[str, Any], ...] = (
        *({"user_id": one} for one in ("", "x" * 65, "é" * 33, "a\0b", "a\nb", 7, None)),
        *({"event_id": one} for one in ("", "x" * 201, "\0", None)),
        *({"tokens": one} for one in (-1, 10**13, 1.5, "x", None, True)),
    )
    for wrong in odd:
        told = await program.post("usage", **{**good, **wrong})
        assert told.status_code in (400, 422), (wrong, told.text)
    assert (await program.get("status", user_id="123")).json()["monthly_usage"]["tokens_used"] == 0


@on_servers
async def test_plan_changes_are_listed_newest_first(
    visit: Visit, program: Program, patreon: FakePatreon, clock: Clock
) -> None:
    for cents in (300, 900, 0):
        clock.pass_ms(60_000)
        await changes_to(visit, patreon, cents)
    told = (await program.get("plan-history", user_id="123")).json()["changes"]
    assert [(one["old_plan"], one["new_plan"]) for one in told] == [
        ("Ultimate", "Free"),
        ("Pro", "Ultimate"),
        ("Free", "Pro"),
    ]
    assert told[0]["at"] == "2026-09-21T00:03:00.000Z"
    assert {one["source"] for one in told} == {"members:pledge:update"}
    assert len((await program.get("plan-history", user_id="123", limit=1)).json()["changes"]) == 1
    assert (await program.get("plan-history", user_id="nobody")).json()["changes"] == []


@on_servers
async def test_crash_reports_can_be_read_page_by_page_and_one_by_one(
    visit: Visit, program: Program, clock: Clock
) -> None:
    ids = []
    for number in range(7):
        clock.pass_ms(1000 if number % 3 == 0 else 0)  # several in one millisecond
        ids.append(str(uuid4()))
        report = {
            "report_id": ids[-1],
            "crash_timestamp": "2026-01-18T09:30:00Z",
            "error_message": f"it broke {number}",
            "app_version": "1.0",
            "os_version": "11",
            "include_logs": True,
            "logs": "a\nb",
        }
        assert (await visit.http.post("/api/crash-report", json=report)).status_code == 200
    seen: list[str] = []
    page: dict[str, Any] = {"next_before": None}
    while True:
        query = {} if page["next_before"] is None else {"before": page["next_before"]}
        page = (await program.get("crash-reports", limit=2, **query)).json()
        seen += [one["report_id"] for one in page["reports"]]
        if page["next_before"] is None:
            break
    assert sorted(seen) == sorted(ids)
    assert seen[0] == ids[6]
    one = (await program.get(f"crash-reports/{ids[3]}")).json()
    assert (one["error_message"], one["logs"], one["system_info"]) == ("it broke 3", "a\nb", None)
    gone = await program.get(f"crash-reports/{uuid4()}")
    assert (gone.status_code, gone.json()["error_code"]) == (404, "REPORT_NOT_FOUND")


@on_servers
async def test_a_repeated_webhook_does_not_restore_an_old_plan(
    visit: Visit, program: Program, patreon: FakePatreon
) -> None:
    body = b'{"data": {"attributes": {"currently_entitled_amount_cents": 900}, "relationships": {"user": {"data": '
    body += b'{"id": "123"}}}}}'
    headers = {"x-patreon-event": "members:pledge:create", **signature(body)}
    await visit.http.post("/webhook", content=body, headers=headers)
    await changes_to(visit, patreon, 300)
    await visit.http.post("/webhook", content=body, headers=headers)
    assert (await program.get("status", user_id="123")).json()["plan"] == "Pro"


@on_servers
async def test_a_plan_read_before_a_webhook_does_not_overwrite_it(
    visit: Visit, program: Program, patreon: FakePatreon, clock: Clock
) -> None:
    ledger = visit.members.ledger
    read = PlanAsOf("Ultimate", clock())
    clock.pass_ms(1000)
    await changes_to(visit, patreon, 0)
    await ledger.profile_of("123", clock(), plan=read)  # as when tokens are issued that were requested before it
    assert (await program.get("status", user_id="123")).json()["plan"] == "Free"
    await ledger.profile_of("123", clock(), plan=PlanAsOf("Pro", clock()))
    assert (await program.get("status", user_id="123")).json()["plan"] == "Pro"


@on_all
async def test_an_api_key_is_issued_listed_and_revoked_on_every_store(members: Members) -> None:
    first = await members.programs.issue_key("one")
    second = await members.programs.issue_key("two")
    assert (await members.programs.admit(first.token)).name == "one"
    assert {one.id for one in await members.programs.list_keys()} == {first.id, second.id}
    assert await members.programs.revoke_key(first.id)
    assert await refusal(members.programs.admit(first.token)) == "API_KEY_INVALID"
    assert [one.id for one in await members.programs.list_keys()] == [second.id]
