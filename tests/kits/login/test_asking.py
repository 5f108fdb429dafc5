"""Confirmation pages: the code of an app, the session to end, and sign-out everywhere."""

from __future__ import annotations

import re

import httpx2
import pytest

from keystead.kits.login.service.user_agent import browser_and_device
from tests.kits.login.browsing import ACCOUNT, HTML, Browser, Running, login_table, running
from tests.kits.login.front import Front
from tests.oidc import OidcProvider, log_in

CONFIRM = "/api/auth/discord/confirm"
FIREFOX = "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:143.0) Gecko/20100101 Firefox/143.0"
IPHONE = (
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_6 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.6 "
    "Mobile/15E148 Safari/604.1"
)


def buttons(page: str) -> list[dict[str, str]]:
    """The hidden fields of each form of a page, in order, with the class of its button."""
    found = []
    for form in re.findall(r"<form.*?</form>", page.partition("<main")[2], re.DOTALL):
        fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', form))
        fields["class"] = (re.findall(r'<button class="([^"]*)"', form) or [""])[0]
        found.append(fields)
    return found


async def answer(browser: Browser, **fields: str) -> httpx2.Response:
    return await browser.http.post(
        CONFIRM, data=fields, headers={"origin": browser.base, **HTML}, follow_redirects=False
    )


# --- the code of an installed app ----------------------------------------------------------------------------


async def test_the_page_shows_the_code_of_the_app_among_decoys(site: Running) -> None:
    app, helper = site.browser(), site.browser()
    started = await app.start(context="pwa")
    assert re.fullmatch(r"\d{4}", started["code"])
    page = await helper.back(await log_in(started["authorizeUrl"], ACCOUNT), **HTML)
    codes = [one["code"] for one in buttons(page.text) if "code" in one]
    assert len(set(codes)) == 3
    assert started["code"] in codes
    assert started["state"] not in page.text
    assert "code" not in await app.start()  # a browser has nothing to compare


async def test_a_phished_link_yields_no_session(stored_site: Running, front: Front) -> None:
    """A victim who clicks on picks a wrong code or declines: no session, and the provider's tokens are revoked."""
    stranger, victim = stored_site.browser(), stored_site.browser()
    started = await stranger.start(context="pwa")
    page = await victim.back(await log_in(started["authorizeUrl"], ACCOUNT), **HTML)
    first, *others = buttons(page.text)
    assert (first["deny"], first["class"]) == ("1", "")  # the prominent button, and the first
    assert {one["class"] for one in others} == {"quiet code"}
    assert (await answer(victim, confirm=first["confirm"])).status_code == 403  # without any code
    claimed = await stranger.post("/api/auth/discord/claim-session", {"state": started["state"]})
    assert claimed.json()["code"] == "NOT_FOUND"
    assert [key for key in await stored_site.keys() if key.startswith(("sess:", "login:confirm"))] == []


async def test_a_wrong_code_ends_the_sign_in(stored_site: Running) -> None:
    app, helper = stored_site.browser(), stored_site.browser()
    started = await app.start(context="pwa")
    page = await helper.back(await log_in(started["authorizeUrl"], ACCOUNT), **HTML)
    wrong, right = sorted(
        (one for one in buttons(page.text) if "code" in one), key=lambda one: one["code"] == started["code"]
    )[-2:]
    said = await answer(helper, confirm=wrong["confirm"], code=wrong["code"])
    assert said.status_code == 403
    assert "That is not the code in your app." in said.text
    # There is no second try.
    assert (await answer(helper, confirm=right["confirm"], code=right["code"])).status_code == 400
    assert [key for key in await stored_site.keys() if key.startswith("sess:")] == []


async def test_the_right_code_signs_the_app_in_under_its_own_name(stored_site: Running) -> None:
    app, helper = stored_site.browser(), stored_site.browser()
    app.http.headers["user-agent"], helper.http.headers["user-agent"] = IPHONE, FIREFOX
    started = await app.start(context="pwa")
    page = await helper.back(await log_in(started["authorizeUrl"], ACCOUNT), **HTML)
    [right] = [one for one in buttons(page.text) if one.get("code") == started["code"]]
    assert (await answer(helper, confirm=right["confirm"], code=right["code"])).status_code == 200
    assert (await app.post("/api/auth/discord/claim-session", {"state": started["state"]})).status_code == 200
    [session] = await app.sessions()
    assert (session["browser"], session["device"]) == ("Safari", "iPhone")


# --- as many sessions as allowed -----------------------------------------------------------------------------


async def test_at_the_cap_the_user_ends_a_session_to_sign_in(
    store_url: str, provider: OidcProvider, front: Front
) -> None:
    async with running(store_url, login_table(provider, front, cap=2, at_cap="refuse")) as site:
        first, second, third = [site.browser() for _ in range(3)]
        first.http.headers["user-agent"], second.http.headers["user-agent"] = FIREFOX, IPHONE
        await first.log_in()
        await second.log_in()
        started = await third.start(returnTo="/shop")
        page = await third.back(await log_in(started["authorizeUrl"], ACCOUNT), **HTML)
        assert page.status_code == 409
        assert "Firefox on Windows" in page.text
        assert "Safari on iPhone" in page.text
        assert third.cookie("sid") is None
        safe, *choices = buttons(page.text)
        assert (safe["deny"], safe["class"]) == ("1", "")
        [own] = [one["id"] for one in await first.sessions() if one["current"]]
        [chosen] = [one for one in choices if one["end"] == own]
        gone_on = await answer(third, confirm=chosen["confirm"], end=own)
        assert gone_on.status_code == 200
        assert "/shop" in gone_on.text
        assert await third.is_logged_in()
        assert await second.is_logged_in()
        assert not await first.is_logged_in()
        # The question was answered: the same answer again ends nothing.
        [other] = [one["id"] for one in await second.sessions() if one["current"]]
        assert (await answer(third, confirm=chosen["confirm"], end=other)).status_code == 400
        assert await second.is_logged_in()


async def test_at_the_cap_only_the_asked_browser_can_end_a_session(provider: OidcProvider, front: Front) -> None:
    async with running("memory://", login_table(provider, front, cap=1, at_cap="refuse")) as site:
        first, second, thief = [site.browser() for _ in range(3)]
        await first.log_in()
        page = await second.back(await log_in((await second.start())["authorizeUrl"], ACCOUNT), **HTML)
        chosen = buttons(page.text)[1]
        assert (await answer(thief, confirm=chosen["confirm"], end=chosen["end"])).status_code == 400
        assert await first.is_logged_in()


async def test_at_the_cap_another_users_session_id_ends_nothing(provider: OidcProvider, front: Front) -> None:
    async with running("memory://", login_table(provider, front, cap=1, at_cap="refuse")) as site:
        first, second, other = [site.browser() for _ in range(3)]
        await first.log_in()
        await other.log_in("somebody else")
        [theirs] = [one["id"] for one in await other.sessions()]
        page = await second.back(await log_in((await second.start())["authorizeUrl"], ACCOUNT), **HTML)
        again = await answer(second, confirm=buttons(page.text)[1]["confirm"], end=theirs)
        assert again.status_code == 409
        assert await other.is_logged_in()
        assert await first.is_logged_in()
        chosen = buttons(again.text)[1]
        assert (await answer(second, confirm=chosen["confirm"], end=chosen["end"])).status_code == 200
        assert await second.is_logged_in()


async def test_at_the_cap_an_app_confirms_its_code_and_then_ends_a_session(
    provider: OidcProvider, front: Front
) -> None:
    async with running("memory://", login_table(provider, front, cap=1, at_cap="refuse")) as site:
        first, app, helper = [site.browser() for _ in range(3)]
        await first.log_in()
        started = await app.start(context="pwa")
        page = await helper.back(await log_in(started["authorizeUrl"], ACCOUNT), **HTML)
        [right] = [one for one in buttons(page.text) if one.get("code") == started["code"]]
        asked = await answer(helper, confirm=right["confirm"], code=right["code"])
        assert asked.status_code == 409
        chosen = buttons(asked.text)[1]
        assert (await answer(helper, confirm=chosen["confirm"], end=chosen["end"])).status_code == 200
        assert helper.cookie("sid") is None
        assert (await app.post("/api/auth/discord/claim-session", {"state": started["state"]})).status_code == 200
        assert await app.is_logged_in()


# --- sign out everywhere -------------------------------------------------------------------------------------


async def test_sign_out_everywhere_asks_for_confirmation(site: Running) -> None:
    browser, other = site.browser(), site.browser()
    await browser.log_in()
    await other.log_in()
    account = await browser.get("/login", **HTML)
    assert 'action="/api/auth/logout-all"' not in account.text
    assert 'href="/login/everywhere"' in account.text
    page = await browser.get("/login/everywhere", **HTML)
    assert "You are signed in on 2 devices" in page.text
    assert re.search(r'<a class="button" href="/login">No, stay signed in</a>', page.text)
    [form] = buttons(page.text)
    assert form["class"] == "danger"
    assert await other.is_logged_in()  # to look at the page ends nothing
    headers = {"origin": browser.base, **HTML}
    done = await browser.http.post("/api/auth/logout-all", data={"csrf": form["csrf"]}, headers=headers)
    assert done.status_code == 303
    assert not await other.is_logged_in()
    assert (await browser.http.get("/login/everywhere", headers=HTML, follow_redirects=False)).status_code == 303


# --- which device, and in which language ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("agent", "known_as"),
    [
        (FIREFOX, ("Firefox", "Windows")),
        (IPHONE, ("Safari", "iPhone")),
        (
            "Mozilla/5.0 (Linux; Android 15; Pixel 9) AppleWebKit/537.36 Chrome/140.0 Mobile Safari/537.36",
            ("Chrome", "Android"),
        ),
        (
            "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605.1.15 Version/18.6 Safari/605.1.15",
            ("Safari", "Mac"),
        ),
        ("Mozilla/5.0 (Windows NT 10.0) AppleWebKit/537.36 Chrome/140.0 Safari/537.36 Edg/140.0", ("Edge", "Windows")),
        ("Mozilla/5.0 (X11; CrOS x86_64) AppleWebKit/537.36 Chrome/140.0 Safari/537.36", ("Chrome", "ChromeOS")),
        (
            "Mozilla/5.0 (Linux; Android 15) SamsungBrowser/28.0 Chrome/130.0 Mobile Safari/537.36",
            ("Samsung Internet", "Android"),
        ),
        ("curl/8.5.0", ("curl", None)),
        ("", (None, None)),
        ("<script>" * 10_000, (None, None)),
    ],
)
def test_browser_and_device_are_read_from_the_user_agent(agent: str, known_as: tuple[str | None, str | None]) -> None:
    assert browser_and_device(agent) == known_as


async def test_the_account_page_names_the_browser_and_the_device_of_each_session(stored_site: Running) -> None:
    laptop, phone = stored_site.browser(), stored_site.browser()
    laptop.http.headers["user-agent"], phone.http.headers["user-agent"] = FIREFOX, IPHONE
    await laptop.log_in()
    await phone.log_in()
    page = (await laptop.get("/login", **HTML)).text
    assert page.index("Safari on iPhone") < page.index("Firefox on Windows")  # the latest first
    assert len(re.findall(r'<time datetime="\d{4}-\d\d-\d\dT[^"]+\+00:00">', page)) == 4
    japanese = (await laptop.get("/login", **HTML | {"accept-language": "ja"})).text
    assert len(re.findall(r">\d{4}/\d\d/\d\d \d+:\d\d:\d\d</time>", japanese)) == 4, "a date of the language"
    listed = [(one["browser"], one["device"]) for one in await laptop.sessions()]
    assert listed == [("Safari", "iPhone"), ("Firefox", "Windows")]
    assert "Gecko" not in await stored_site.everything()


@pytest.mark.parametrize(
    ("accept", "language", "word"),
    [("ja,en;q=0.8", "ja", "サインイン"), ("ko-KR,ko;q=0.9", "ko", "로그인"), ("de", "en", "Sign in")],
)
async def test_pages_use_the_language_of_the_browser(site: Running, accept: str, language: str, word: str) -> None:
    browser = site.browser()
    for path in ("/login", "/api/auth/discord/callback?code=x&state=y"):
        page = await browser.http.get(path, headers={**HTML, "accept-language": accept})
        assert f'<html lang="{language}">' in page.text
        assert page.headers["vary"] == "accept-language, cookie"
        assert word in page.text or (language == "en" and "sign-in" in page.text)
