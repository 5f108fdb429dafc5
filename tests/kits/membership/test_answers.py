"""Responses: stale plans, Retry-After, and one format for all errors."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from fastapi.routing import APIRoute

from keystead.errors import StoreUnavailable
from keystead.kits.membership.routes import router
from tests.kits.membership.conftest import REDIRECT, FakePatreon, on_servers
from tests.kits.membership.visiting import Visit, bearer, signature, visiting
from tests.parts.oauth.stand_in import answer
from tests.parts.sessions.conftest import Clock

HOUR_MS = 3_600_000


@pytest.fixture
def clock() -> Clock:
    return Clock(1_790_000_025_000)  # 2026-09-21


@pytest.fixture
def settings_of(urls: dict[str, str], tmp_path: Path) -> dict[str, str]:
    return {"store": urls["default"], "database": f"sqlite:///{tmp_path}/rows.db"}


@pytest.fixture
async def visit(patreon: FakePatreon, clock: Clock, settings_of: dict[str, str]) -> AsyncIterator[Visit]:
    async with visiting(patreon, now_ms=clock, own={"limits": {"crash_report": 1000}}, **settings_of) as opened:
        yield opened


# --- stale plans -----------------------------------------------------------------------------------------------


async def told_of(visit: Visit, token: str) -> dict[str, tuple[bool, int]]:
    """The age of the plan on each route that returns it."""
    answers = {
        "validate": await visit.http.post("/api/session/validate", json={"session_token": token}),
        "license-status": await visit.http.get("/api/patreon/license-status", headers=bearer(token)),
        "quota": await visit.quota(token),
        "sync": await visit.http.get("/api/sync/init", headers=bearer(token)),
    }
    for name, one in answers.items():
        assert one.status_code == 200, (name, one.text)
    return {name: (one.json()["plan_is_stale"], one.json()["plan_as_of"]) for name, one in answers.items()}


async def expire(visit: Visit, *families: str) -> None:
    """Expire the cache entries of these families, and the entitlements."""
    store = visit.app.state.stores["default"]
    keys = {"membership": "membership:123", "mark": "membership:123:mark"}
    auth = [key async for page in store.scan() for key in page if key.startswith(b"auth:")]
    await store.run([("DEL", one) for one in [*(keys[name] for name in families), *auth]])


@on_servers
async def test_a_plan_is_marked_stale_while_the_provider_does_not_answer(
    visit: Visit, patreon: FakePatreon, clock: Clock
) -> None:
    token = await visit.sign_in()
    began_ms = clock()
    assert set((await told_of(visit, token)).values()) == {(False, began_ms)}
    patreon.says(answer({}, 500))
    clock.pass_ms(HOUR_MS)
    await expire(visit, "membership")
    assert set((await told_of(visit, token)).values()) == {(True, began_ms)}
    pair = await visit.pair(token)
    claims = json.loads(base64.urlsafe_b64decode(pair["accessToken"].split(".")[1] + "=="))
    assert claims["planIsStale"] is True
    patreon.says(None)
    clock.pass_ms(300_000)
    await expire(visit, "mark")
    assert set((await told_of(visit, token)).values()) == {(False, clock())}


@on_servers
async def test_a_sync_without_an_answer_of_the_provider_is_marked_stale(
    visit: Visit, patreon: FakePatreon, clock: Clock
) -> None:
    """A user who has just paid must not mistake the old plan for a fresh answer of the provider."""
    token, began_ms = await visit.sign_in(), clock()
    clock.pass_ms(60_000)
    patreon.says(answer({}, 500))
    told = (await visit.http.get("/api/patreon/license-status", headers=bearer(token))).json()
    assert (told["plan_is_stale"], told["plan_as_of"]) == (True, began_ms)


@on_servers
async def test_cache_entries_of_older_versions_are_read(visit: Visit, clock: Clock) -> None:
    token = await visit.sign_in()
    await visit.quota(token)
    store = visit.app.state.stores["default"]
    [key] = [key async for page in store.scan() for key in page if key.startswith(b"auth:") and key.count(b":") == 1]
    held = {"userId": "123", "plan": "Ultimate", "hasBonusTokens": False, "cachedAt": clock()}
    await store.run([("SET", key, json.dumps(held).encode(), "PX", 60_000)])
    told = (await visit.quota(token)).json()
    assert (told["plan"], told["plan_is_stale"], told["plan_as_of"]) == ("Ultimate", False, clock())


# --- Retry-After -----------------------------------------------------------------------------------------------


@on_servers
async def test_configuration_errors_have_no_retry_after(
    patreon: FakePatreon, clock: Clock, settings_of: dict[str, str]
) -> None:
    """In development, with neither a client nor a stand-in: the server that runs this has no demo provider."""
    own = {"client_id": "", "client_secret": None, "webhook_secret": None}
    async with visiting(patreon, now_ms=clock, own=own, **settings_of) as visit:
        visit.members.provider.stand_in = None
        sign_in = {"code": "code-123", "redirect_uri": REDIRECT}
        for told, code in (
            (await visit.http.post("/api/auth/callback", json=sign_in), "CONFIG_ERROR"),
            (await visit.http.post("/oauth/token", json=sign_in), "CONFIG_ERROR"),
            (await visit.http.post("/webhook", content=b"{}"), "WEBHOOK_NOT_CONFIGURED"),
        ):
            assert (told.status_code, told.json()["error_code"]) == (503, code)
            assert "retry-after" not in told.headers


@on_servers
@pytest.mark.parametrize(
    ("said", "wait_s"),
    [("120", 120), ("Mon, 21 Sep 2026 14:14:45 GMT", 60), ("7200", 7200), ("soon", 60)],
)
async def test_a_retry_after_of_the_provider_is_passed_on_at_sign_in(
    visit: Visit, patreon: FakePatreon, said: str, wait_s: int, clock: Clock
) -> None:
    clock.now_ms = 1_790_000_025_000  # 14:13:45
    patreon.server.answers["/token"] = answer({}, 429, f"retry-after: {said}\r\n")
    told = await visit.http.post("/api/auth/callback", json={"code": "code-123", "redirect_uri": REDIRECT})
    assert (told.status_code, told.json()["error_code"]) == (503, "PROVIDER_UNAVAILABLE")
    assert told.headers["retry-after"] == str(wait_s)


@on_servers
async def test_a_limit_reports_when_its_window_ends(
    patreon: FakePatreon, clock: Clock, settings_of: dict[str, str]
) -> None:
    async with visiting(patreon, now_ms=clock, own={"limits": {"sync": 1}}, **settings_of) as visit:
        token = await visit.sign_in()
        store = visit.app.state.stores["default"]

        async def left_s() -> int:
            [(seconds, _)] = await store.run([("TIME",)])
            return 60 - int(seconds) % 60

        refused: list[tuple[int, int, int]] = []
        while len(refused) < 2:  # a new window may begin meanwhile
            before = await left_s()
            told = await visit.http.get("/api/patreon/license-status", headers=bearer(token))
            if told.status_code == 429:
                assert told.json()["error_code"] == "RATE_LIMITED"
                refused.append((before, int(told.headers["retry-after"]), await left_s()))
        for most, wait_s, least in refused:
            assert least <= wait_s <= most or least > most


# --- error format ----------------------------------------------------------------------------------------------

BODIES: dict[str, bytes] = {
    "nothing": b"",
    "a list": b"[]",
    "half": b'{"code": ',
    "deep": b"[" * 100_000,
    "deep in a field": b'{"code": ' + b"[" * 900 + b"]" * 900 + b"}",
    "wrong types": json.dumps(
        {
            key: {"a": [1, {"b": None}]}
            for key in (
                *("code", "redirect_uri", "session_token", "refreshToken", "refresh_token", "report_id", "user_id"),
                *("event_id", "bonus_id", "tokens", "consent_type", "version", "accepted_at", "bonuses"),
            )
        }
    ).encode(),
    "odd texts": b'{"code": "\\ud800", "user_id": "\\u0000", "event_id": "\\ud800", "bonus_id": "a", "tokens": 1,'
    b' "consent_type": "x", "version": "\\u0000", "accepted_at": "x", "bonuses": [{"id": "\\u0000",'
    b' "used_tokens": -1}], "refresh_token": "", "redirect_uri": "x", "session_token": "\\u0000"}',
    "large numbers": b'{"user_id": "1", "event_id": "1", "bonus_id": "1", "tokens": 1' + b"0" * 400 + b"}",
}
INTERNALS = ("function-", "[", "(", "pydantic", "Error", "keystead", "Traceback", "type=", "sqlite", "redis")


def is_of_the_shape(told: httpx2.Response) -> str:
    """What is wrong with an error response; empty if it has the documented format."""
    found = told.json()
    if found.get("ok") is not False or not isinstance(found.get("error"), str) or not found["error"]:
        return "no sentence"
    if not isinstance(found.get("code"), str) or found.get("error_code") != found["code"]:
        return "no code"
    return next((f"it names {one}" for one in INTERNALS if one in found["error"]), "")


@on_servers
async def test_every_error_of_every_route_has_the_documented_shape_and_names_no_internals(visit: Visit) -> None:
    visit.members.sign_ins = None
    session = await visit.sign_in()
    key = (await visit.members.programs.issue_key("test")).token
    offenders: list[Any] = []
    for route in router().routes:
        if not isinstance(route, APIRoute) or route.path in ("/health", "/membership/try", "/.well-known/jwks.json"):
            continue
        path = route.path.replace("{report_id}", "not-a-uuid")
        for who in ("", session, key, "a.b.c"):
            for name, body in BODIES.items():
                method = next(iter(route.methods or ()))
                headers = {"content-type": "application/json", **signature(body), **(bearer(who) if who else {})}
                query = {"user_id": "\0", "limit": "x", "before": "y"}
                told = await visit.http.request(method, path, content=body, headers=headers, params=query)
                if told.status_code < 400:
                    continue
                wrong = is_of_the_shape(told)
                if wrong or (told.status_code >= 500 and told.json()["code"] != "NOT_IMPLEMENTED"):
                    offenders.append((method, path, name, who[:3], told.status_code, wrong, told.text[:200]))
        session = await visit.sign_in()  # a logout may have ended it
    assert offenders == []


@on_servers
async def test_rate_limits_and_store_outages_have_the_same_error_format(
    patreon: FakePatreon, clock: Clock, settings_of: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with visiting(patreon, now_ms=clock, own={"limits": {"sign_in": 1}}, **settings_of) as visit:
        token = await visit.sign_in()
        sent = {"code": "code-123", "redirect_uri": REDIRECT}
        answers = [await visit.http.post("/api/auth/callback", json=sent) for _ in range(3)]
        refused = next(one for one in answers if one.status_code == 429)
        assert is_of_the_shape(refused) == ""

        async def away_(*_: object) -> None:
            raise StoreUnavailable("redis://somewhere does not answer")

        monkeypatch.setattr(visit.members, "entitled", away_)
        away = await visit.quota(token)
        assert (away.status_code, is_of_the_shape(away)) == (503, "")
        assert away.headers["retry-after"] == "1"


@on_servers
@pytest.mark.parametrize("depth", [50, 500, 900, 960, 990, 5_000])
async def test_deeply_nested_system_info_is_stored_or_refused(visit: Visit, depth: int) -> None:
    head = {
        "report_id": str(uuid4()),
        "crash_timestamp": "2026-01-18T09:30:00Z",
        "error_message": "it broke",
        "app_version": "1.0",
        "os_version": "11",
        "include_system_info": True,
    }
    body = json.dumps(head)[:-1] + ', "system_info": ' + '{"a":' * depth + "1" + "}" * depth + "}"
    told = await visit.http.post("/api/crash-report", content=body, headers={"content-type": "application/json"})
    assert told.status_code in (200, 400), told.text
    assert told.status_code == 200 or is_of_the_shape(told) == ""
