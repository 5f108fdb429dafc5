"""The routes of the kit, as an application uses them."""

from __future__ import annotations

import hmac
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from keystead.kits.login import KIT as LOGIN
from keystead.kits.membership import KIT
from keystead.parts.jwt import SigningKeys
from keystead.server import Settings, create_app
from tests.kits.membership.conftest import BASE, REDIRECT, SECRET, FakePatreon, table
from tests.parts.oauth.stand_in import answer

RING = "test:a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s"


@pytest.fixture
async def http(patreon: FakePatreon) -> AsyncIterator[httpx2.AsyncClient]:
    own = table(patreon.server.url, jwt_keys=f"2026a:{SigningKeys.new_key('EdDSA')}", limits={"crash_report": 2})
    settings = Settings(store="memory://", public_url=BASE, seal_keys=RING, tables={"membership": own})
    app = create_app(settings, [LOGIN, KIT])  # in this order the login kit would handle every logout
    async with app.router.lifespan_context(app):
        transport = httpx2.ASGITransport(app, client=("192.0.2.7", 50_000))
        async with httpx2.AsyncClient(transport=transport, base_url=BASE) as client:
            yield client


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def sign_in(http: httpx2.AsyncClient, path: str = "/api/auth/callback") -> dict[str, Any]:
    answer = await http.post(path, json={"code": "code-123", "redirect_uri": REDIRECT})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


@pytest.mark.parametrize("path", ["/api/auth/callback", "/api/patreon/exchange"])
async def test_a_code_is_exchanged_for_a_session(http: httpx2.AsyncClient, path: str) -> None:
    told = await sign_in(http, path)
    token = told.pop("session_token")
    assert told.pop("expires_in") > 29 * 86_400
    as_of = told.pop("plan_as_of")
    assert told == {
        "patreon_user_id": "123",
        "email": "ann@example.com",
        "full_name": "Ann",
        "plan": "Pro",
        "tier_id": "t1",
        "patron_status": "active_patron",
        "next_charge_date": "2026-02-01",
        "entitled_amount_cents": 300,
        "plan_is_stale": False,
    }
    valid = await http.post("/api/session/validate", json={"session_token": token})
    assert valid.json()["session_valid"] is True
    license_ = await http.get("/api/patreon/license-status", headers=bearer(token))
    synced = license_.json()
    assert synced.pop("plan_as_of") >= as_of
    assert synced == {
        "success": True,
        "session_valid": True,
        "session_expired": False,
        "plan": "Pro",
        "tier_id": "t1",
        "patron_status": "active_patron",
        "next_charge_date": "2026-02-01",
        "plan_is_stale": False,
        "error": None,
        "error_code": None,
    }


@pytest.mark.parametrize("path", ["/api/auth/logout", "/api/patreon/revoke", "/api/patreon/revoke-all"])
async def test_a_session_ends_by_its_token(http: httpx2.AsyncClient, path: str) -> None:
    token = (await sign_in(http))["session_token"]
    assert (await http.post(path, headers=bearer(token))).status_code == 200
    gone = await http.post("/api/session/validate", json={"session_token": token})
    assert gone.status_code == 401
    assert gone.json()["error_code"] == "SESSION_INVALID"
    again = await http.get("/api/patreon/license-status", headers=bearer(token))
    assert again.status_code == 401
    assert {name: again.json()[name] for name in ("success", "session_valid", "session_expired")} == {
        "success": False,
        "session_valid": False,
        "session_expired": True,
    }


async def test_a_logout_without_a_bearer_token_is_that_of_the_login_kit(http: httpx2.AsyncClient) -> None:
    answer = await http.post("/api/auth/logout", headers={"origin": BASE, "accept": "application/json"})
    assert answer.status_code == 200
    assert "sid=" in answer.headers["set-cookie"]
    foreign = await http.post("/api/auth/logout", headers={"origin": "https://evil.example"})
    assert foreign.status_code == 403


async def test_tokens_are_issued_and_refreshed_and_their_keys_published(http: httpx2.AsyncClient) -> None:
    token = (await sign_in(http))["session_token"]
    pair = (await http.post("/api/auth/token", headers=bearer(token))).json()
    assert (pair["expiresIn"], pair["tokenType"]) == (3600, "Bearer")
    next_ = (await http.post("/api/auth/refresh", json={"refreshToken": pair["refreshToken"]})).json()
    assert next_["refreshToken"] != pair["refreshToken"]
    [key] = (await http.get("/.well-known/jwks.json")).json()["keys"]
    assert (key["kid"], key["alg"]) == ("2026a", "EdDSA")
    assert "d" not in key
    lacking = await http.post("/api/auth/refresh", json={})
    assert (lacking.status_code, lacking.json()["error_code"]) == (400, "MISSING_REFRESH_TOKEN")
    none = await http.post("/api/auth/token")
    assert (none.status_code, none.json()["error_code"]) == (401, "MISSING_AUTH")


async def test_a_webhook_signature_covers_the_raw_body(http: httpx2.AsyncClient) -> None:
    await sign_in(http)
    body = b'{ "data": {"relationships": {"user": {"data": {"id": "123"}}}, "attributes": {}} }'
    headers = {"x-patreon-event": "members:pledge:create"}
    signature = hmac.new(SECRET.encode(), body, "md5").hexdigest()
    heard = await http.post("/webhook", content=body, headers=headers | {"x-patreon-signature": signature})
    assert heard.json() == {
        "success": True,
        "event": "members:pledge:create",
        "processed": True,
        "planChangeRecorded": False,
    }
    written_again = json.dumps(json.loads(body)).encode()
    wrong = await http.post("/webhook", content=written_again, headers=headers | {"x-patreon-signature": signature})
    assert (wrong.status_code, wrong.json()["error_code"]) == (401, "INVALID_SIGNATURE")


async def test_crash_reports_have_a_limit(http: httpx2.AsyncClient) -> None:
    report = {
        "report_id": str(uuid4()),
        "crash_timestamp": "2026-01-18T09:30:00Z",
        "error_message": "",
        "app_version": "1",
        "os_version": "2",
    }
    first = await http.post("/api/crash-report", json=report)
    assert (first.status_code, first.json()["success"], first.headers["ratelimit-remaining"]) == (200, True, "1")
    second = await http.post("/api/crash-report", json={**report, "report_id": "no uuid"})
    assert (second.status_code, second.json()["error_code"]) == (400, "VALIDATION_ERROR")
    third = await http.post("/api/crash-report", json=report)
    assert third.status_code == 429
    assert int(third.headers["retry-after"]) <= 60


async def test_a_provider_outage_does_not_tell_applications_to_sign_out(
    http: httpx2.AsyncClient, patreon: FakePatreon
) -> None:
    token = (await sign_in(http))["session_token"]
    body = b'{"data": {"relationships": {"user": {"data": {"id": "123"}}}}}'
    signature = hmac.new(SECRET.encode(), body, "md5").hexdigest()
    headers = {"x-patreon-event": "members:pledge:update", "x-patreon-signature": signature}
    assert (await http.post("/webhook", content=body, headers=headers)).status_code == 200
    patreon.says(answer({}, 502))
    told = await http.get("/api/patreon/license-status", headers=bearer(token))
    assert (told.status_code, told.json()["error_code"]) == (503, "PROVIDER_UNAVAILABLE")
    assert (told.json()["session_valid"], told.json()["session_expired"]) == (True, False)
    assert int(told.headers["retry-after"]) >= 1
