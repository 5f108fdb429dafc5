"""The demo provider stands in for Patreon in development without a configured client."""

from __future__ import annotations

import asyncio
import hmac
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
import uvicorn

from keystead.demo.demo_patreon import identity_of, pledge_event
from keystead.demo.demo_service import AMOUNTS, PEOPLE
from keystead.kits.membership import KIT
from keystead.kits.membership.service import LIMITS
from keystead.kits.membership.service.patreon import parse_membership
from keystead.parts.oauth import challenge_of, new_verifier
from keystead.server import Settings, create_app
from keystead.server.app import site_of

RING = "test:a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s"
APP = "http://127.0.0.1:49152/callback"  # where a desktop app listens
CLIENT = {"client_id": "keystead", "client_secret": "secret", "redirect_uris": (APP,)}


@asynccontextmanager
async def serving(**settings: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """A server that sends requests to itself, as in development."""
    listening = socket.create_server(("127.0.0.1", 0))  # early requests wait in the backlog
    port = listening.getsockname()[1]
    app = create_app(Settings(store="memory://", port=port, seal_keys=RING, **settings), [KIT])
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="none"))
    running = asyncio.create_task(server.serve([listening]))
    try:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
            yield http
    finally:
        server.should_exit = True
        await running


@pytest.fixture
async def http() -> AsyncIterator[httpx2.AsyncClient]:
    async with serving() as client:
        yield client


async def authorized(
    http: httpx2.AsyncClient, verifier: str, redirect_uri: str, client: str = "demo-patreon", **choice: str
) -> httpx2.Response:
    """The response to a click on the sign-in page."""
    asked = {
        "response_type": "code",
        "client_id": client,
        "redirect_uri": redirect_uri,
        "scope": "identity",
        "state": "the-state",
        "code_challenge": challenge_of(verifier),
        "code_challenge_method": "S256",
    }
    return await http.post("/demo/authorize", data={**asked, **(choice or {"person": "demo-ada"})})


async def code_of(http: httpx2.AsyncClient, verifier: str, redirect_uri: str, **choice: str) -> str:
    answer = await authorized(http, verifier, redirect_uri, **choice)
    assert answer.status_code == 303, answer.text
    assert answer.headers["location"].startswith(redirect_uri)
    return parse_qs(urlsplit(answer.headers["location"]).query)["code"][0]


async def signed_in(http: httpx2.AsyncClient, redirect_uri: str = APP, **choice: str) -> dict[str, Any]:
    verifier = new_verifier()
    code = await code_of(http, verifier, redirect_uri, **choice)
    sent = {"code": code, "redirect_uri": redirect_uri, "code_verifier": verifier}
    answer = await http.post("/api/auth/callback", json=sent)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def plan(http: httpx2.AsyncClient, token: str) -> str:
    """The plan, from the cache if there is an entry."""
    answer = await http.post("/api/session/validate", json={"session_token": token})
    assert answer.status_code == 200, answer.text
    told: str = answer.json()["plan"]
    return told


async def pays(http: httpx2.AsyncClient, person: str, cents: int, **more: str) -> httpx2.Response:
    return await http.post("/demo/patreon", data={"person": person, "cents": str(cents), **more})


async def test_a_sign_in_returns_the_paid_plan(http: httpx2.AsyncClient) -> None:
    told = {person.id: await signed_in(http, person=person.id) for person in PEOPLE}
    assert {who: one["plan"] for who, one in told.items()} == {
        "demo-ada": "Ultimate",
        "demo-grace": "Premium",
        "demo-alan": "Pro",
    }
    ada = told["demo-ada"]
    assert (ada["full_name"], ada["email"], ada["patron_status"]) == (
        "Ada Lovelace",
        "ada@example.com",
        "active_patron",
    )
    nobody = await signed_in(http, name="Mia")
    assert (nobody["plan"], nobody["full_name"], nobody["patron_status"]) == ("Free", "Mia", "not_patron")
    assert (await pays(http, nobody["patreon_user_id"], 500)).headers["location"].endswith("event=create&status=200")
    assert await plan(http, nobody["session_token"]) == "Premium"


@pytest.mark.parametrize("cents", AMOUNTS)
def test_the_kit_can_parse_the_stand_ins_identity(cents: int) -> None:
    december = 1_797_552_000_000  # 2026-12-18
    read = parse_membership(identity_of(PEOPLE[0], cents, december), None, "patreon")
    assert (read.user_id, read.pledge_amount_cents, read.entitled_amount_cents) == ("demo-ada", cents, cents)
    assert read.next_charge_date == ("2027-01-01" if cents else None)
    assert read.tier_id == (f"tier-{cents}" if cents else None)


async def test_a_changed_pledge_is_visible_immediately_but_only_with_a_webhook(http: httpx2.AsyncClient) -> None:
    token = (await signed_in(http))["session_token"]
    pair = (await http.post("/api/auth/token", headers={"authorization": f"Bearer {token}"})).json()
    assert await plan(http, token) == "Ultimate"
    for cents, event, word in ((500, "update", "Premium"), (0, "delete", "Free"), (300, "create", "Pro")):
        answer = await pays(http, "demo-ada", cents)
        assert parse_qs(urlsplit(answer.headers["location"]).query) == {
            "person": ["demo-ada"],
            "event": [event],
            "status": ["200"],
        }
        shown = await http.get(answer.headers["location"])
        assert f"members:pledge:{event}" in shown.text
        assert await plan(http, token) == word
        quota = await http.get("/api/quota/status", headers={"authorization": f"Bearer {pair['accessToken']}"})
        assert quota.json()["plan"] == word
    same = await pays(http, "demo-ada", 300)
    assert "event" not in same.headers["location"]  # nothing has changed, so no webhook is sent


async def test_only_the_stand_in_can_sign_webhooks(http: httpx2.AsyncClient) -> None:
    await signed_in(http)
    event = pledge_event(PEOPLE[0], 900, 300, 0)
    named = {"x-patreon-event": "members:pledge:update"}
    unsigned = await http.post("/webhook", content=event.body, headers=named)
    assert (unsigned.status_code, unsigned.json()["error_code"]) == (401, "MISSING_SIGNATURE")
    for secret in (b"", b"test", b"k" * 32):
        signature = hmac.new(secret, event.body, "md5").hexdigest()
        answer = await http.post("/webhook", content=event.body, headers={**named, "x-patreon-signature": signature})
        assert (answer.status_code, answer.json()["error_code"]) == (401, "INVALID_SIGNATURE")


async def test_a_configured_webhook_secret_is_accepted_in_addition_to_the_stand_ins() -> None:
    async with serving(tables={"membership": {"webhook_secret": "mine"}}) as http:
        body = json.dumps({"data": {"relationships": {"user": {"data": {"id": "demo-ada"}}}}}).encode()
        signature = hmac.new(b"mine", body, "md5").hexdigest()
        headers = {"x-patreon-event": "members:pledge:create", "x-patreon-signature": signature}
        assert (await http.post("/webhook", content=body, headers=headers)).status_code == 200
        assert (await pays(http, "demo-ada", 0)).headers["location"].endswith("status=200")


async def test_an_impossible_pledge_is_refused(http: httpx2.AsyncClient) -> None:
    for sent in (
        {"person": "demo-ada", "cents": "400"},
        {"person": "demo-ada", "cents": "٣٠٠"},
        {"person": "demo-nobody", "cents": "300"},
        {"person": "a:b", "cents": "300"},
        {"cents": "300"},
    ):
        assert (await http.post("/demo/patreon", data=sent)).status_code == 400, sent


async def test_another_site_cannot_change_a_pledge_or_be_redirected_to(http: httpx2.AsyncClient) -> None:
    sent = {"person": "demo-ada", "cents": "300"}
    foreign = await http.post("/demo/patreon", data=sent, headers={"origin": "https://evil.example"})
    assert foreign.status_code == 403
    assert (await signed_in(http))["plan"] == "Ultimate"
    for back in ("https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)"):
        assert "Back to the application" not in (await http.get("/demo/patreon", params={"back": back})).text
    assert 'href="/membership/try"' in (await http.get("/demo/patreon?back=/membership/try")).text


async def test_redirects_lead_only_to_this_server_and_loopback_applications(http: httpx2.AsyncClient) -> None:
    verifier = new_verifier()
    for address in (str(http.base_url.join("/membership/try")), APP, "http://localhost:8080/done?x=1"):
        assert await code_of(http, verifier, address)
    for address in (
        "https://evil.example/",
        "http://127.0.0.1.evil.example:80/",
        "http://127.0.0.1:80@evil.example/",
        "http://127.0.0.1/",
        "https://127.0.0.1:8080/",
        "http://localhost:8080",
        "http://192.0.2.1:8080/",
    ):
        assert (await authorized(http, verifier, address)).status_code == 400, address
    # Sign-ins to this server itself redirect only to it.
    assert (await authorized(http, verifier, APP, client="demo")).status_code == 400


async def test_a_code_is_valid_only_for_its_client(http: httpx2.AsyncClient) -> None:
    verifier = new_verifier()
    code = await code_of(http, verifier, APP)
    sent = {"grant_type": "authorization_code", "code": code, "code_verifier": verifier, "redirect_uri": APP}
    assert (await http.post("/demo/token", data={**sent, "client_id": "demo"})).status_code == 400


async def test_the_form_policy_allows_only_the_requesting_application(http: httpx2.AsyncClient) -> None:
    asked = {
        "response_type": "code",
        "client_id": "demo-patreon",
        "redirect_uri": APP,
        "code_challenge": challenge_of(new_verifier()),
        "code_challenge_method": "S256",
    }
    page = await http.get("/demo/authorize", params=asked)
    assert "form-action 'self' http://127.0.0.1:49152;" in page.headers["content-security-policy"]
    assert "pays $9 a month" in page.text


async def test_the_start_page_links_to_the_try_page(http: httpx2.AsyncClient) -> None:
    assert 'href="/membership/try"' in (await http.get("/")).text
    page = await http.get("/membership/try")
    assert page.status_code == 200
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]


async def test_with_a_configured_client_there_is_no_stand_in() -> None:
    async with serving(tables={"membership": CLIENT}) as http:
        assert (await http.get("/membership/try")).status_code == 404
        assert "/membership/try" not in (await http.get("/")).text
        body = pledge_event(PEOPLE[0], 0, 300, 0).body
        answer = await http.post("/webhook", content=body, headers={"x-patreon-signature": "0" * 32})
        assert (answer.status_code, answer.json()["error_code"]) == (503, "WEBHOOK_NOT_CONFIGURED")


# Anyone who reaches the demo provider could sign in as anyone.
@pytest.mark.parametrize(
    "settings",
    [
        {"mode": "production", "public_url": "http://127.0.0.1:8712", "database": "memory://"},
        {"public_url": "https://example.com"},
        {"host": "0.0.0.0"},
    ],
    ids=["production", "public", "every address"],
)
async def test_a_publicly_reachable_server_has_no_stand_in(settings: dict[str, Any]) -> None:
    given = Settings(store="memory://", seal_keys=RING, **settings)
    assert site_of(given).stand_ins == {}
    app = create_app(given, [KIT])
    async with app.router.lifespan_context(app):
        transport = httpx2.ASGITransport(app, client=("192.0.2.7", 50_000))
        async with httpx2.AsyncClient(transport=transport, base_url=given.origin) as http:
            for path in ("/membership/try", "/demo/patreon", "/demo/patreon/identity", "/demo/authorize"):
                assert (await http.get(path)).status_code == 404, path
            assert "/membership/try" not in (await http.get("/")).text
            sent = {"code": "code", "redirect_uri": f"{given.origin}/membership/try"}
            refused = await http.post("/api/auth/callback", json=sent)
            assert refused.json()["error_code"] in ("INVALID_REDIRECT_URI", "CONFIG_ERROR")
            unsigned = await http.post("/webhook", content=b"{}")
            assert (unsigned.status_code, unsigned.json()["error_code"]) == (503, "WEBHOOK_NOT_CONFIGURED")


async def test_a_limit_of_0_disables_it() -> None:
    table = {"membership": {"limits": dict.fromkeys(LIMITS, 0)}}
    app = create_app(Settings(store="memory://", seal_keys=RING, tables=table), [KIT])
    async with app.router.lifespan_context(app):
        members = app.state.kits["membership"]
        assert (members.crash_reports, members.webhooks, members.sign_ins) == (None, None, None)
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://127.0.0.1:8700") as http:
            reports = [await http.post("/api/crash-report", json={}) for _ in range(LIMITS["crash_report"] + 1)]
            assert {answer.status_code for answer in reports} == {400}
            assert (await http.post("/webhook", json={})).status_code == 401
            assert (await http.post("/api/auth/callback", json={})).status_code == 400
