"""Cookies of the kit: host-only, HttpOnly, and never cached (promises 48 to 51)."""

import re
from http.cookiejar import CookieJar

import httpx2
import pytest

from tests.kits.login.browsing import (
    ACCOUNT,
    HTML,
    SECURE_BASE,
    Browser,
    Running,
    login_table,
    running,
    set_cookies,
)
from tests.kits.login.front import Front
from tests.oidc import OidcProvider, log_in

SECURE = re.compile(r"__Host-[a-z_]+=[A-Za-z0-9._~-]*(; Max-Age=\d+)?; Path=/; HttpOnly; Secure; SameSite=Lax")
PLAIN = re.compile(r"[a-z_]+=[A-Za-z0-9._~-]*(; Max-Age=\d+)?; Path=/; HttpOnly; SameSite=Lax")


async def all_answers(browser: Browser) -> list[httpx2.Response]:
    """Every response of the kit that sets or clears a cookie."""
    started = await browser.get("/api/auth/discord/start?context=pwa")
    finished = await browser.back(await log_in(started.json()["authorizeUrl"], ACCOUNT))
    claimed = await browser.post("/api/auth/discord/claim-session", {"state": started.json()["state"]})
    page = await browser.get("/login", **HTML)
    csrf = await browser.get("/api/auth/csrf")
    plain_start = await browser.get("/api/auth/discord/start")
    logout = await browser.post("/api/auth/logout")
    answers = [started, finished, claimed, page, csrf, plain_start, logout]
    assert [answer.status_code for answer in answers] == [200] * 7, [answer.text for answer in answers]
    return answers


async def test_over_https_every_cookie_has_the_host_prefix(provider: OidcProvider, front: Front) -> None:
    async with running("memory://", login_table(provider, front, SECURE_BASE), base=SECURE_BASE) as site:
        for answer in await all_answers(site.browser()):
            assert set_cookies(answer)
            for cookie in set_cookies(answer):
                assert SECURE.fullmatch(cookie), cookie


async def test_over_plain_http_in_development_cookies_have_no_prefix_and_no_secure(browser: Browser) -> None:
    for answer in await all_answers(browser):
        assert set_cookies(answer)
        for cookie in set_cookies(answer):
            assert PLAIN.fullmatch(cookie), cookie


async def test_over_https_a_cookie_without_the_prefix_is_ignored(provider: OidcProvider, front: Front) -> None:
    """Another host of the same domain could set it to fixate a session."""
    async with running("memory://", login_table(provider, front, SECURE_BASE), base=SECURE_BASE) as site:
        browser = site.browser()
        await browser.log_in()
        token = browser.cookie("__Host-sid")
        tossed = site.browser()
        assert not (await tossed.get("/api/auth/me?soft=1", cookie=f"sid={token}")).json()["loggedIn"]
        assert (await tossed.get("/api/auth/me?soft=1", cookie=f"__Host-sid={token}")).json()["loggedIn"]


@pytest.mark.parametrize("odd", [b"\xa0", b"\x85", b"\x1f"])
async def test_a_cookie_planted_by_a_sibling_host_is_ignored(provider: OidcProvider, front: Front, odd: bytes) -> None:
    async with running("memory://", login_table(provider, front, SECURE_BASE), base=SECURE_BASE) as site:
        attacker, victim = site.browser(), site.browser()
        await attacker.log_in()
        planted = odd + f"__Host-sid={attacker.cookie('__Host-sid')}".encode()
        answer = await victim.http.get("/api/auth/me?soft=1", headers=[(b"cookie", planted)])
        assert answer.json() == {"ok": False, "loggedIn": False}


async def test_every_cookie_is_cleared_with_the_attributes_it_was_set_with(
    provider: OidcProvider, front: Front
) -> None:
    for base in ("http://127.0.0.1:8712", SECURE_BASE):
        async with running("memory://", login_table(provider, front, base), base=base) as site:
            browser = site.browser()
            started = await browser.start(context="pwa")
            await browser.back(await log_in(started["authorizeUrl"], ACCOUNT))
            jar: CookieJar = browser.http.cookies.jar
            names = {cookie.name.removeprefix("__Host-") for cookie in jar}
            assert names == {"sid", "d_login", "d_pwa_bridge"}
            await browser.post("/api/auth/discord/claim-session", {"state": started["state"]})
            await browser.post("/api/auth/logout")
            assert {cookie.name.removeprefix("__Host-") for cookie in jar} == {"d_login"}


async def test_cookie_lifetimes_match_the_document_and_the_session_policy(browser: Browser) -> None:
    ages: dict[str, set[int | None]] = {}
    for answer in await all_answers(browser):
        for cookie in set_cookies(answer):
            name = cookie.partition("=")[0]
            age = re.search(r"Max-Age=(\d+)", cookie)
            ages.setdefault(name, set()).add(int(age[1]) if age else None)
    assert ages == {
        "sid": {90 * 86_400, 0},
        "d_login": {600},
        "d_pwa_bridge": {600, 0},
        "csrf": {None},
    }


async def test_session_responses_are_not_cached(browser: Browser) -> None:
    answers = await all_answers(browser)
    await browser.log_in()
    for path in ("/api/auth/me", "/api/discord/me", "/api/auth/sessions", "/api/auth/csrf", "/login"):
        answers.append(await browser.get(path))
    answers.append(await browser.post("/api/auth/logout", {"csrf": "wrong"}))
    answers.append(await browser.get("/api/auth/discord/callback?code=x&state=y"))
    for answer in answers:
        assert answer.headers["cache-control"] == "no-store", answer.request.url


async def test_the_largest_cookie_fits_browser_limits(site: Running) -> None:
    browser = site.browser()
    await browser.log_in("x" * 250, "acme")
    [sid] = [one for one in browser.http.cookies.jar if one.name == "sid"]
    assert len(sid.name) + len(sid.value or "") < 4096
    assert await browser.is_logged_in()


@pytest.mark.parametrize(
    "header",
    ["csrf=%%%", "csrf=a b", 'csrf="x', "csrf=" + "x" * 5000, "csrf=\xe9", "sid=\xe9; d_login=\xe9; csrf=;;;=", "="],
)
@pytest.mark.parametrize("path", ["/login", "/api/auth/csrf", "/api/auth/me?soft=1", "/api/auth/discord/start"])
async def test_a_malformed_cookie_counts_as_none(browser: Browser, path: str, header: str) -> None:
    answer = await browser.http.get(path, headers=[(b"cookie", header.encode("latin-1"))])
    assert answer.status_code == 200


async def test_cookies_in_several_headers_are_combined(browser: Browser) -> None:
    await browser.log_in()
    token = browser.cookie("sid")
    browser.forget()
    headers = [("cookie", "theme=dark"), ("cookie", f"sid={token}")]
    assert (await browser.http.get("/api/auth/me", headers=headers)).status_code == 200
