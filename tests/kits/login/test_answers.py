"""Responses of the routes: one error format, rate limits, health, and no information leaks."""

import re
from typing import Any

import pytest
from fastapi.routing import APIRoute

from keystead.kits.login.routes import router
from keystead.kits.login.routes.request import STATUS
from keystead.kits.login.service import LIMITS
from tests.kits.login.browsing import ACCOUNT, BASE, HTML, Running, login_table, running
from tests.kits.login.front import Front
from tests.oidc import OidcProvider, log_in

ROUTES = [route for route in router().routes if isinstance(route, APIRoute)]
PATHS = sorted({route.path for route in ROUTES})


def filled(path: str, provider: str = "discord") -> str:
    return path.replace("{provider}", provider).replace("{id}", "x")


def is_error(answer: Any, code: str | None = None) -> bool:
    body = answer.json()
    return (
        body["ok"] is False
        and isinstance(body["error"], str)
        and len(body["error"]) > 5
        and re.fullmatch("[A-Z_]+", body["code"]) is not None
        and code in (None, body["code"])
        and not re.search(r"Traceback|File \"|line \d+|keystead\.|Error\b", answer.text)
    )


def test_the_kit_has_the_documented_routes() -> None:
    assert {
        *("/api/auth/{provider}/start", "/api/auth/{provider}/callback", "/api/auth/{provider}/claim-session"),
        *("/api/discord/me", "/api/discord/csrf", "/api/auth/logout", "/api/auth/logout-all"),
        *("/api/auth/sessions", "/api/auth/sessions/{id}"),
    } <= set(PATHS)


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("query", ["?health", "?health=1", "?x=1&health=1"])
async def test_each_route_has_a_health_check(site: Running, path: str, query: str) -> None:
    answer = await site.browser().get(filled(path) + query)
    assert (answer.status_code, answer.json()) == (200, {"ok": True, "route": path})
    assert "set-cookie" not in answer.headers
    assert await site.keys(counters=True) == []


@pytest.mark.parametrize("path", PATHS)
async def test_an_unsupported_method_gets_a_json_error(site: Running, path: str) -> None:
    allowed = {method for route in ROUTES if route.path == path for method in route.methods or ()}
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE"} - allowed:
        answer = await site.browser().http.request(method, filled(path), headers={"origin": BASE})
        assert answer.status_code == 405
        assert is_error(answer, "METHOD_NOT_ALLOWED")
        assert set(answer.headers["allow"].split(", ")) >= allowed


@pytest.mark.parametrize("action", ["start", "callback", "claim-session", "confirm"])
async def test_an_unknown_provider_is_not_found(site: Running, action: str) -> None:
    browser = site.browser()
    path = f"/api/auth/nobody/{action}"
    if action in ("start", "callback"):
        answers = [
            await browser.get(path),
            await browser.get(f"{path}?code=x&state=y"),
            await browser.get(f"{path}?error=x"),
        ]
    else:
        await browser.start(context="pwa")
        answers = [await browser.post(path, {"state": "x" * 43, "confirm": "x" * 43})]
    for answer in answers:
        assert answer.status_code == 404
        assert is_error(answer, "UNKNOWN_PROVIDER")


@pytest.mark.parametrize("name", ["DISCORD", "a.b", "a%2Fb", "%00", "é", "x" * 33, "-x", "a b", "{x}", "*"])
async def test_an_invalid_provider_name_gets_a_json_error(site: Running, name: str) -> None:
    answer = await site.browser().get(f"/api/auth/{name}/start")
    assert answer.status_code in (400, 404)
    assert is_error(answer)


@pytest.mark.parametrize("path", ["/api/auth", "/api/auth/", "/api/auth/discord", "/api/auth/me/", "/api/discord/x"])
async def test_an_unknown_path_gets_a_json_error(site: Running, path: str) -> None:
    answer = await site.browser().get(path)
    assert answer.status_code == 404
    assert is_error(answer, "NOT_FOUND")


async def test_a_browser_gets_a_page_for_an_error_and_a_program_gets_json(site: Running) -> None:
    browser = site.browser()
    path = "/api/auth/discord/callback?code=x&state=y"
    page = await browser.get(path, **HTML)
    assert page.headers["content-type"].startswith("text/html")
    assert "This sign-in has expired" in page.text
    assert (await browser.get(path, accept="application/problem+json")).json()["code"] == "STATE_INVALID"


async def test_start_redirects_browsers_and_returns_json_to_programs(site: Running) -> None:
    browser = site.browser()
    redirect = await browser.get("/api/auth/discord/start", **HTML)
    assert redirect.status_code == 302
    assert redirect.headers["location"].startswith("http://127.0.0.1:")
    for told in (
        await browser.get("/api/auth/discord/start?format=json", **HTML),
        await browser.get("/api/auth/discord/start", accept="application/vnd.x+json"),
    ):
        assert list(told.json()) == ["ok", "authorizeUrl", "appAuthorizeUrl", "state"]
        assert told.json()["appAuthorizeUrl"].startswith("discord://-/oauth2/authorize?")
    acme = await browser.get("/api/auth/acme/start")
    assert acme.json()["appAuthorizeUrl"] is None


async def test_providers_are_listed(site: Running) -> None:
    told = (await site.browser().get("/api/auth/providers")).json()
    assert told["ok"] is True
    assert [name for name in told["providers"] if name != "demo"] == ["discord", "acme"]


def test_each_refusal_has_an_error_status() -> None:
    assert {code for code, status in STATUS.items() if not 400 <= status < 600} == set()


# --- limits ----------------------------------------------------------------------------------------------------

REQUESTS = {
    "start": ("GET", "/api/auth/discord/start"),
    "callback": ("GET", "/api/auth/discord/callback?code=x&state=y"),
    "claim": ("POST", "/api/auth/discord/claim-session"),
    "me": ("GET", "/api/auth/me?soft=1"),
    "csrf": ("GET", "/api/auth/csrf"),
    "logout": ("POST", "/api/auth/logout"),
    "sessions": ("GET", "/api/auth/sessions"),
    "token": ("POST", "/api/auth/token"),
}


@pytest.mark.parametrize("name", LIMITS)
async def test_a_rate_limited_client_gets_retry_after_and_others_are_not_affected(
    provider: OidcProvider, front: Front, name: str
) -> None:
    async with running("memory://", login_table(provider, front, limits={name: 3})) as site:
        browser, other = site.browser(), site.browser()
        method, path = REQUESTS[name]

        async def ask(client: Any, **headers: str) -> Any:
            return await client.http.request(method, path, json={}, headers={"origin": BASE, **headers})

        # The minute may end in between: then the count begins anew.
        answers = [await ask(browser) for _ in range(8)]
        limited = [answer for answer in answers if answer.status_code == 429]
        assert 2 <= len(limited) <= 5
        assert answers[0].status_code != 429
        for answer in limited:
            assert is_error(answer, "RATE_LIMITED")
            assert 1 <= int(answer.headers["retry-after"]) <= 60
            assert answer.json()["retryAfter"] == int(answer.headers["retry-after"])
        assert (await ask(other)).status_code != 429
        # Nobody gets further by saying that they are somebody else.
        said = {"x-forwarded-for": "203.0.113.9", "forwarded": "for=203.0.113.9", "x-real-ip": "203.0.113.9"}
        site.clock.move(seconds=60)
        answers = [await ask(browser, **said) for _ in range(8)]
        assert 2 <= len([answer for answer in answers if answer.status_code == 429]) <= 5


async def test_the_rate_limit_resets_every_minute(provider: OidcProvider, front: Front) -> None:
    async with running("memory://", login_table(provider, front, limits={"me": 1})) as site:
        browser = site.browser()
        statuses = [(await browser.get("/api/auth/me?soft=1")).status_code for _ in range(3)]
        assert statuses[-1] == 429
        site.clock.move(seconds=60)
        assert await browser.is_logged_in() is False


async def test_a_limit_of_zero_means_no_limit(provider: OidcProvider, front: Front) -> None:
    async with running("memory://", login_table(provider, front, limits={"me": 0})) as site:
        browser = site.browser()
        statuses = {(await browser.get("/api/auth/me?soft=1")).status_code for _ in range(130)}
        assert statuses == {200}
        assert await site.keys(counters=True) == []


async def test_an_ipv6_network_counts_as_one_client(provider: OidcProvider, front: Front) -> None:
    async with running("memory://", login_table(provider, front, limits={"me": 2})) as site:
        statuses = [
            (await site.browser(address=f"2001:db8:1:2::{at:x}").get("/api/auth/me?soft=1")).status_code
            for at in range(1, 8)
        ]
        assert 429 in statuses
        other = await site.browser(address="2001:db8:1:3::1").get("/api/auth/me?soft=1")
        assert other.status_code == 200


# --- ids that people bring -------------------------------------------------------------------------------------

HOSTILE = [
    *("a:b", "user:*", "*", "{x}", "{a}{b}", "a}b{c", "x:sessions", "..", "a/b", "a%2Fb", "?", "[a-z]", "\\", '"', "'"),
    *("ユーザー", "é", "e\u0301", "😀", "<script>alert(1)</script>", "x" * 255, "ü" * 200),
]


@pytest.mark.parametrize("account", HOSTILE)
async def test_hostile_user_ids_do_not_collide(stored_site: Running, account: str) -> None:
    if len(account) > 100 and account[0] != "x":
        account = account[:100]
    other = stored_site.browser()
    await other.log_in("x", "acme")
    browser = stored_site.browser()
    await browser.log_in(account, "acme")
    assert (await browser.get("/api/auth/me")).json()["user"]["id"] == f"acme.{account}"
    assert len(await browser.sessions()) == 1
    assert (await browser.get("/login", **HTML)).status_code == 200
    before = len(await stored_site.keys())
    assert before == 4
    assert (await browser.post("/api/auth/logout-all")).json() == {"ok": True, "ended": 1}
    assert await other.is_logged_in()
    assert len([key for key in await stored_site.keys() if not key.startswith("end:")]) == 2


@pytest.mark.parametrize("account", ["a\nb", "a\x00b", "\x7f", "a\u2028b", "x" * 256, "😀" * 255])
async def test_an_invalid_user_id_gets_a_json_error(stored_site: Running, account: str) -> None:
    browser = stored_site.browser()
    callback = await log_in((await browser.start("acme"))["authorizeUrl"], account)
    answer = await browser.back(callback)
    assert answer.status_code == 401
    assert is_error(answer, "PROVIDER_REFUSED")
    assert await stored_site.keys() == []


async def test_user_names_are_escaped(provider: OidcProvider, front: Front, site: Running) -> None:
    browser = site.browser()
    await browser.log_in("<img src=x onerror=alert(1)>")
    page = await browser.get("/login", **HTML)
    assert "<img src=x" not in page.text
    assert "&lt;img src=x" in page.text
    assert (await browser.get("/api/auth/me")).json()["user"]["id"] != ACCOUNT
