"""Sign-in of an installed app that finishes in a browser: the app claims the session once."""

import asyncio
import json

import httpx2
import pytest

from tests.kits.login.browsing import ACCOUNT, BASE, HTML, Browser, Running, set_cookies
from tests.oidc import log_in

CLAIM = "/api/auth/discord/claim-session"


async def finished_elsewhere(site: Running, app: Browser, account: str = ACCOUNT) -> tuple[str, Browser]:
    """The app begins a login, another browser ends it and confirms. The state, and that browser."""
    started = await app.start(context="pwa")
    other = site.browser()
    page = await other.back(await log_in(started["authorizeUrl"], account), **HTML)
    assert "Which code does your app show?" in page.text
    confirm = page.text.partition('name="confirm" value="')[2].partition('"')[0]
    told = {"confirm": confirm, "code": started["code"]}
    answer = await other.http.post("/api/auth/discord/confirm", data=told, headers={"origin": BASE, **HTML})
    assert answer.status_code == 200
    assert "Go back to the app" in answer.text
    state: str = started["state"]
    return state, other


def told(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


async def test_an_app_claims_the_session_of_a_sign_in_that_finished_in_another_browser(stored_site: Running) -> None:
    app = stored_site.browser()
    state, other = await finished_elsewhere(stored_site, app)
    assert not await app.is_logged_in()
    answer = await app.post(CLAIM, {"state": state})
    assert answer.json() == {"ok": True, "claimed": True}
    assert await app.is_logged_in()
    # The bridge is taken away with the claim, and the browser that helped gets no session.
    assert any(cookie.startswith("d_pwa_bridge=; Max-Age=0") for cookie in set_cookies(answer))
    assert other.cookie("sid") is None
    assert not await other.is_logged_in()
    assert [key.partition(":")[0] for key in await stored_site.keys()] == ["sess", "user"]


async def test_the_claim_record_matches_the_running_system(redis_site: Running) -> None:
    app = redis_site.browser()
    await finished_elsewhere(redis_site, app)
    key = await redis_site.key("discord:pwa-session:")
    assert 595 < await redis_site.left_s(key) <= 600
    record = json.loads(await redis_site.ask("GET", key))
    assert list(record) == ["sid", "userId", "loginContext", "issuedAt", "metadata", "claimTokenDigest"]
    assert record["sid"].startswith("sealed.")
    assert (record["userId"], record["loginContext"]) == (ACCOUNT, "pwa")
    assert record["metadata"] == {"stateRestoredFromKv": True}


async def test_a_sign_in_finished_in_the_app_cannot_be_claimed_elsewhere(site: Running) -> None:
    app = site.browser()
    answer = await app.log_in(context="pwa")
    assert answer.json()["loginContext"] == "pwa"
    assert await app.is_logged_in()
    assert (await site.held("discord:pwa-session:"))["metadata"] == {"stateRestoredFromKv": False}


async def test_only_app_sign_ins_set_the_claim_cookie(site: Running) -> None:
    app, browser = site.browser(), site.browser()
    await app.start(context="pwa")
    await browser.start(context="something else")
    assert len(app.cookie("d_pwa_bridge") or "") == 43
    assert browser.cookie("d_pwa_bridge") is None
    await app.start()
    assert app.cookie("d_pwa_bridge") is None


async def test_a_claim_without_a_state_is_refused(site: Running) -> None:
    app = site.browser()
    await app.start(context="pwa")
    for body in ({}, {"state": ""}, {"state": None}):
        assert told(await app.post(CLAIM, body)) == (400, "STATE_REQUIRED")


@pytest.mark.parametrize("body", [b"", b"no json", b"[]", b'{"state": 1}', b'{"state": ["x"]}', b"\xff"])
async def test_a_claim_with_an_invalid_body_is_refused(site: Running, body: bytes) -> None:
    answer = await site.browser().http.post(CLAIM, content=body, headers={"content-type": "application/json"})
    assert told(answer) == (400, "BAD_REQUEST")


async def test_a_claim_without_its_cookie_is_refused_and_stays_claimable(site: Running) -> None:
    app, thief = site.browser(), site.browser()
    state, _ = await finished_elsewhere(site, app)
    assert told(await thief.post(CLAIM, {"state": state})) == (401, "CLAIM_TOKEN_REQUIRED")
    assert told(await thief.post(CLAIM, {"state": state}, cookie="d_pwa_bridge=short")) == (401, "CLAIM_TOKEN_REQUIRED")
    assert (await app.post(CLAIM, {"state": state})).status_code == 200


async def test_a_claim_with_another_cookie_is_refused_and_stays_claimable(site: Running) -> None:
    app, thief = site.browser(), site.browser()
    state, _ = await finished_elsewhere(site, app)
    await thief.start(context="pwa")
    assert told(await thief.post(CLAIM, {"state": state})) == (403, "CLAIM_TOKEN_WRONG")
    assert thief.cookie("sid") is None
    assert (await app.post(CLAIM, {"state": state})).status_code == 200


@pytest.mark.parametrize("state", ["x", "x" * 43, "../../x", "\ud800", "x" * 5000, "*"])
async def test_a_claim_of_an_unknown_state_is_refused(site: Running, state: str) -> None:
    app = site.browser()
    await app.start(context="pwa")
    answer = await app.http.post(
        CLAIM, content=json.dumps({"state": state}), headers={"content-type": "application/json", "origin": BASE}
    )
    assert told(answer) == (404, "NOT_FOUND")


async def test_an_early_claim_finds_nothing_and_breaks_nothing(site: Running) -> None:
    app = site.browser()
    started = await app.start(context="pwa")
    assert told(await app.post(CLAIM, {"state": started["state"]})) == (404, "NOT_FOUND")
    assert (await app.back(await log_in(started["authorizeUrl"], ACCOUNT))).status_code == 200
    assert (await app.post(CLAIM, {"state": started["state"]})).status_code == 200


async def test_a_record_without_a_digest_cannot_be_claimed(redis_site: Running) -> None:
    app = redis_site.browser()
    state, _ = await finished_elsewhere(redis_site, app)
    record = await redis_site.held("discord:pwa-session:")
    del record["claimTokenDigest"]
    await redis_site.ask("SET", await redis_site.key("discord:pwa-session:"), json.dumps(record), "KEEPTTL")
    assert told(await app.post(CLAIM, {"state": state})) == (410, "NOT_CLAIMABLE")


async def test_one_of_two_concurrent_claims_succeeds(stored_site: Running) -> None:
    app = stored_site.browser()
    state, _ = await finished_elsewhere(stored_site, app)
    bridge = f"d_pwa_bridge={app.cookie('d_pwa_bridge')}"
    tabs = [stored_site.browser() for _ in range(10)]
    answers = await asyncio.gather(*(tab.post(CLAIM, {"state": state}, cookie=bridge) for tab in tabs))
    statuses = sorted(answer.status_code for answer in answers)
    # Whoever saw the record, and lost, is told so; whoever came later found none.
    assert statuses[0] == 200
    assert set(statuses[1:]) <= {404, 409}


async def test_a_claim_of_an_ended_session_is_refused(site: Running) -> None:
    app = site.browser()
    state, _ = await finished_elsewhere(site, app)
    other = site.browser()
    await other.log_in()
    assert (await other.post("/api/auth/logout-others")).json() == {"ok": True, "ended": 1}
    answer = await app.post(CLAIM, {"state": state})
    assert told(answer) == (410, "SESSION_ENDED")
    assert app.cookie("sid") is None


async def test_a_claim_ends_the_previous_session_of_the_app(site: Running) -> None:
    app = site.browser()
    await app.log_in("somebody")
    before = app.cookie("sid") or ""
    state, _ = await finished_elsewhere(site, app)
    assert (await app.post(CLAIM, {"state": state})).status_code == 200
    assert app.cookie("sid") != before
    old = site.browser()
    assert not (await old.get("/api/auth/me?soft=1", cookie=f"sid={before}")).json()["loggedIn"]


async def test_a_claim_from_another_site_is_refused(site: Running) -> None:
    app = site.browser()
    state, _ = await finished_elsewhere(site, app)
    answer = await app.post(CLAIM, {"state": state}, origin="https://evil.example")
    assert told(answer) == (403, "CSRF")
    assert (await app.post(CLAIM, {"state": state})).status_code == 200
