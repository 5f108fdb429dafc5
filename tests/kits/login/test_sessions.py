"""Sessions on several devices, and ending them."""

import asyncio

import httpx2
import pytest

from tests.kits.login.browsing import ACCOUNT, BASE, HTML, Browser, Running, login_table, running, set_cookies
from tests.kits.login.front import Front
from tests.oidc import OidcProvider, log_in


def told(answer: httpx2.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["code"]


async def devices(site: Running, number: int, account: str = ACCOUNT) -> list[Browser]:
    found = [site.browser() for _ in range(number)]
    for browser in found:
        await browser.log_in(account)
    return found


@pytest.mark.parametrize("path", ["/api/auth/me", "/api/discord/me"])
async def test_me_returns_the_signed_in_user(site: Running, path: str) -> None:
    browser = site.browser()
    assert told(await browser.get(path)) == (401, "NOT_LOGGED_IN")
    soft = await browser.get(f"{path}?soft=1")
    assert (soft.status_code, soft.json()) == (200, {"ok": False, "loggedIn": False})
    assert (await browser.get(f"{path}?soft=0")).status_code == 401
    await browser.log_in()
    for query in ("", "?soft=1"):
        answer = await browser.get(path + query)
        user = {"id": ACCOUNT, "name": "Ada", "avatar": None}
        assert (answer.status_code, answer.json()) == (200, {"ok": True, "loggedIn": True, "user": user})


async def test_user_ids_of_other_providers_are_prefixed(site: Running) -> None:
    browser = site.browser()
    await browser.log_in(provider="acme")
    assert (await browser.get("/api/auth/me")).json()["user"]["id"] == f"acme.{ACCOUNT}"
    other = site.browser()
    await other.log_in()
    assert len(await browser.sessions()) == len(await other.sessions()) == 1


async def test_a_new_login_gives_a_new_token_and_revokes_the_old_one(stored_site: Running) -> None:
    browser, thief = stored_site.browser(), stored_site.browser()
    await browser.log_in()
    old = browser.cookie("sid")
    await browser.log_in()
    assert browser.cookie("sid") != old
    assert told(await thief.get("/api/auth/me", cookie=f"sid={old}"))[0] == 401
    assert len(await browser.sessions()) == 1


async def test_a_login_as_another_user_ends_the_previous_session(site: Running) -> None:
    browser, thief = site.browser(), site.browser()
    await browser.log_in("first")
    old = browser.cookie("sid")
    await browser.log_in("second")
    assert told(await thief.get("/api/auth/me", cookie=f"sid={old}"))[0] == 401
    assert (await browser.get("/api/auth/me")).json()["user"]["id"] == "second"


@pytest.mark.parametrize("path", ["/api/auth/me", "/api/auth/me?soft=1", "/login", "/api/auth/sessions"])
async def test_a_late_response_does_not_clear_the_cookie_of_a_new_login(site: Running, path: str) -> None:
    """It was sent before the login in another tab, and arrives after it."""
    browser = site.browser()
    await browser.log_in()
    late = site.copy_of(browser)
    await browser.log_in()
    answer = await late.get(path)
    assert [one for one in set_cookies(answer) if one.startswith("sid=")] == []
    assert not await late.is_logged_in()
    assert await browser.is_logged_in()


async def test_a_session_is_valid_only_while_its_provider_is_configured(
    store_url: str, provider: OidcProvider, front: Front
) -> None:
    table = login_table(provider, front)
    async with running(store_url, table) as site:
        browser, other = site.browser(), site.browser()
        await browser.log_in()
        await other.log_in(provider="acme")
    for name, gone, stays in (("discord", browser, other), ("acme", other, browser)):
        left = {key: value for key, value in table["providers"].items() if key != name}
        async with running(store_url, {**table, "providers": left}) as site:
            visitor = site.copy_of(gone)
            for path in ("/api/auth/me", "/api/auth/sessions"):
                assert told(await visitor.get(path)) == (401, "NOT_LOGGED_IN")
            assert told(await visitor.post("/api/auth/logout-all")) == (401, "NOT_LOGGED_IN")
            assert "Ada" not in (await visitor.get("/login", **HTML)).text
            assert await site.copy_of(stays).is_logged_in()
    async with running(store_url, table) as site:  # a provider that was missing by mistake logs nobody out
        assert await site.copy_of(browser).is_logged_in()
        assert await site.copy_of(other).is_logged_in()


async def test_a_logout_ends_a_session_of_an_unconfigured_provider(
    store_url: str, provider: OidcProvider, front: Front
) -> None:
    table = login_table(provider, front)
    async with running(store_url, table) as site:
        browser = site.browser()
        await browser.log_in()
    async with running(store_url, {**table, "providers": {"acme": table["providers"]["acme"]}}) as site:
        await site.copy_of(browser).post("/api/auth/logout")
    async with running(store_url, table) as site:
        assert not await site.copy_of(browser).is_logged_in()


@pytest.mark.parametrize("token", ["attackerchosenid", "x" * 43, f"{'x' * 43}.MTIz", "", "..", "x" * 4000, "{}*:"])
async def test_a_made_up_token_is_never_adopted(site: Running, token: str) -> None:
    browser = site.browser()
    answer = await browser.get("/api/auth/me", cookie=f"sid={token}")
    assert told(answer) == (401, "NOT_LOGGED_IN")
    started = await browser.start()
    callback = await log_in(started["authorizeUrl"], ACCOUNT)
    fixed = f"sid={token}; d_login={browser.cookie('d_login')}"
    browser.forget()
    finished = await browser.back(callback, cookie=fixed)
    assert finished.status_code == 200
    [cookie] = [one for one in set_cookies(finished) if one.startswith("sid=")]
    assert cookie.partition(";")[0] != f"sid={token}"
    assert len([key for key in await site.keys() if key.startswith("sess:")]) == 1


async def test_a_listed_session_id_is_not_a_credential(site: Running) -> None:
    browser = site.browser()
    await browser.log_in()
    [session] = await browser.sessions()
    user = (browser.cookie("sid") or "").partition(".")[2]
    for token in (session["id"], f"{session['id']}.{user}"):
        assert told(await site.browser().get("/api/auth/me", cookie=f"sid={token}")) == (401, "NOT_LOGGED_IN")


async def test_sessions_are_listed_latest_first(site: Running) -> None:
    first = site.browser()
    await first.log_in()
    site.clock.move(seconds=100)
    second = site.browser()
    await second.log_in()
    await site.browser().log_in("somebody else")
    listed = await second.sessions()
    assert [one["current"] for one in listed] == [True, False]
    assert list(listed[0]) == ["id", "current", "createdAt", "lastSeenAt", "endsAt", "browser", "device"]
    assert 99_000 < listed[0]["createdAt"] - listed[1]["createdAt"] < 130_000
    assert listed[0]["endsAt"] - listed[0]["lastSeenAt"] == 30 * 86_400_000
    assert [one["current"] for one in await first.sessions()] == [False, True]


async def test_listing_sessions_needs_a_session(site: Running) -> None:
    assert told(await site.browser().get("/api/auth/sessions")) == (401, "NOT_LOGGED_IN")


async def test_last_seen_is_updated(site: Running) -> None:
    browser = site.browser()
    await browser.log_in()
    site.clock.move(seconds=600)
    assert await browser.is_logged_in()
    [session] = await browser.sessions()
    assert session["lastSeenAt"] - session["createdAt"] >= 600_000


async def test_a_session_expires_after_thirty_days_without_use(stored_site: Running) -> None:
    browser = stored_site.browser()
    await browser.log_in()
    stored_site.clock.move(seconds=30 * 86_400 - 60)
    assert await browser.is_logged_in()
    stored_site.clock.move(seconds=30 * 86_400)
    answer = await browser.get("/api/auth/me")
    assert told(answer) == (401, "SESSION_EXPIRED")
    assert [key for key in await stored_site.keys() if key.startswith(("sess:", "user:"))] == []


async def test_a_session_ends_ninety_days_after_login_despite_use(provider: OidcProvider, front: Front) -> None:
    table = login_table(provider, front)
    async with running("memory://", table) as site:
        browser = site.browser()
        await browser.log_in()
        for _ in range(4):
            site.clock.move(seconds=20 * 86_400)
            assert await browser.is_logged_in()
        site.clock.move(seconds=10 * 86_400)
        assert told(await browser.get("/api/auth/me")) == (401, "SESSION_EXPIRED")


async def test_another_session_can_be_ended_by_its_id(stored_site: Running) -> None:
    first, second = await devices(stored_site, 2)
    [other] = [one["id"] for one in await first.sessions() if not one["current"]]
    assert (await first.delete(f"/api/auth/sessions/{other}")).json() == {"ok": True, "ended": 1}
    assert told(await second.get("/api/auth/me")) == (401, "SESSION_REVOKED")
    assert await first.is_logged_in()
    assert len(await first.sessions()) == 1


async def test_ending_the_current_session_by_id_clears_the_cookie(site: Running) -> None:
    [browser] = await devices(site, 1)
    [own] = [one["id"] for one in await browser.sessions()]
    site.clock.move(seconds=7200)  # nobody needs a recent login to log out
    assert (await browser.delete(f"/api/auth/sessions/{own}")).json() == {"ok": True, "ended": 1}
    assert browser.cookie("sid") is None
    assert await site.keys() == []


async def test_another_users_session_is_not_ended_and_not_revealed(site: Running) -> None:
    [browser] = await devices(site, 1)
    [victim] = await devices(site, 1, "victim")
    [foreign] = [one["id"] for one in await victim.sessions()]
    unknown = "x" * len(foreign)
    answers = [await browser.delete(f"/api/auth/sessions/{id}") for id in (foreign, unknown)]
    assert answers[0].json() == answers[1].json() == {"ok": True, "ended": 0}
    names = [sorted(answer.headers) for answer in answers]
    assert names[0] == names[1]
    assert await victim.is_logged_in()


@pytest.mark.parametrize("id", ["*", "%2A", "{x}", "%0A", "a%3Ab", "..%2F..", "é", "x" * 64, "-" * 43])
async def test_an_invalid_session_id_ends_nothing(site: Running, id: str) -> None:
    first, second = await devices(site, 2)
    answer = await first.delete(f"/api/auth/sessions/{id}")
    assert answer.status_code in (200, 400, 404)
    assert answer.status_code != 200 or answer.json() == {"ok": True, "ended": 0}
    assert await second.is_logged_in()
    assert await first.is_logged_in()


async def test_logout_all_and_logout_others_end_the_right_sessions(stored_site: Running) -> None:
    first, second, third = await devices(stored_site, 3)
    assert (await first.post("/api/auth/logout-others")).json() == {"ok": True, "ended": 2}
    assert await first.is_logged_in()
    for other in (second, third):
        assert told(await other.get("/api/auth/me")) == (401, "SESSION_REVOKED")
    [second] = await devices(stored_site, 1)
    answer = await first.post("/api/auth/logout-all")
    assert answer.json() == {"ok": True, "ended": 2}
    assert first.cookie("sid") is None
    assert not await second.is_logged_in()
    assert [key for key in await stored_site.keys() if not key.startswith("end:")] == []


@pytest.mark.parametrize("path", ["/api/auth/logout-all", "/api/auth/logout-others"])
async def test_ending_other_sessions_needs_a_recent_login(site: Running, path: str) -> None:
    first, second = await devices(site, 2)
    [other] = [one["id"] for one in await first.sessions() if not one["current"]]
    site.clock.move(seconds=3601)
    answer = await first.post(path)
    assert told(answer) == (403, "LOGIN_AGAIN")
    assert answer.json()["startUrl"] == "/api/auth/discord/start"
    assert told(await first.delete(f"/api/auth/sessions/{other}")) == (403, "LOGIN_AGAIN")
    assert await second.is_logged_in()
    await first.log_in()
    assert (await first.post(path)).status_code == 200
    assert not await second.is_logged_in()


async def test_the_page_asks_for_a_recent_login(site: Running) -> None:
    [browser] = await devices(site, 1)
    site.clock.move(seconds=3601)
    csrf = (await browser.get("/api/auth/csrf")).json()["token"]
    page = await browser.http.post(
        "/api/auth/logout-all", data={"csrf": csrf}, headers={"origin": BASE, **HTML}, follow_redirects=False
    )
    assert page.status_code == 403
    assert 'href="/api/auth/discord/start?returnTo=/login"' in page.text


@pytest.mark.parametrize("path", ["/api/auth/logout-all", "/api/auth/logout-others", "/api/auth/sessions/x"])
async def test_ending_other_sessions_needs_a_session(site: Running, path: str) -> None:
    browser = site.browser()
    answer = await (browser.delete(path) if path.endswith("/x") else browser.post(path))
    assert told(answer) == (401, "NOT_LOGGED_IN")


async def test_a_logout_responds_the_same_with_and_without_a_session(site: Running) -> None:
    [browser] = await devices(site, 1)
    answers = [await browser.post("/api/auth/logout") for _ in range(2)]
    answers.append(await site.browser().post("/api/auth/logout", cookie="sid=never-was-one"))
    for answer in answers:
        assert (answer.status_code, answer.json()) == (200, {"ok": True})
        assert set_cookies(answer) == ["sid=; Max-Age=0; Path=/; HttpOnly; SameSite=Lax"]


async def test_a_logout_takes_effect_in_every_process_immediately(
    store_url: str, provider: OidcProvider, front: Front
) -> None:
    table = login_table(provider, front)
    async with running(store_url, table) as one, running(store_url, table) as other:
        browser = one.browser()
        await browser.log_in()
        elsewhere = other.copy_of(browser)
        assert await elsewhere.is_logged_in()
        await browser.post("/api/auth/logout")
        assert not await elsewhere.is_logged_in()


async def test_with_near_reads_a_logout_takes_effect_elsewhere_within_the_bound(
    store_url: str, provider: OidcProvider, front: Front
) -> None:
    table = login_table(provider, front, near="1s", limits={"me": 0})
    loop = asyncio.get_running_loop()
    async with running(store_url, table) as one, running(store_url, table) as other:
        browser = one.browser()
        await browser.log_in()
        elsewhere = other.copy_of(browser)
        near = other.app.state.stores["default"].near
        while near.hits == 0:
            assert await elsewhere.is_logged_in()
        await browser.post("/api/auth/logout")
        assert not await browser.is_logged_in()
        began = ended = loop.time()
        while await elsewhere.is_logged_in():
            assert began - ended <= 1.0
            began = loop.time()


async def test_a_sixth_login_evicts_the_first_session_with_a_reason(stored_site: Running) -> None:
    found = []
    for _ in range(6):
        found += await devices(stored_site, 1)
        stored_site.clock.move(seconds=1)
    first, *others = found
    answer = await first.get("/api/auth/me")
    assert told(answer) == (401, "SESSION_EVICTED")
    assert "another device" in answer.json()["error"]
    assert [await other.is_logged_in() for other in others] == [True] * 5


async def test_the_login_page_explains_an_eviction(provider: OidcProvider, front: Front) -> None:
    async with running("memory://", login_table(provider, front, cap=1)) as site:
        first, _ = await devices(site, 2)
        page = await first.get("/login", **HTML)
        assert "signed in on another device" in page.text


async def test_twenty_concurrent_logins_leave_five_sessions(stored_site: Running) -> None:
    found = [stored_site.browser() for _ in range(20)]
    started = [await browser.start() for browser in found]
    callbacks = [await log_in(one["authorizeUrl"], ACCOUNT) for one in started]
    answers = await asyncio.gather(*(one.back(url) for one, url in zip(found, callbacks, strict=True)))
    assert {answer.status_code for answer in answers} == {200}
    alive = [browser for browser in found if await browser.is_logged_in()]
    assert len(alive) == 5
    assert len(await alive[0].sessions()) == 5
    assert len([key for key in await stored_site.keys() if key.startswith("sess:")]) == 5


async def test_at_cap_refuse_refuses_a_login_beyond_the_cap(provider: OidcProvider, front: Front) -> None:
    async with running("memory://", login_table(provider, front, cap=2, at_cap="refuse")) as site:
        await devices(site, 2)
        third = site.browser()
        answer = await third.back(await log_in((await third.start())["authorizeUrl"], ACCOUNT))
        assert told(answer) == (409, "TOO_MANY_SESSIONS")
        assert third.cookie("sid") is None


async def test_an_unreadable_session_counts_as_signed_out(redis_site: Running) -> None:
    [browser] = await devices(redis_site, 1)
    await redis_site.ask("SET", await redis_site.key("sess:"), b"\x80\x04 no JSON", "KEEPTTL")
    assert told(await browser.get("/api/auth/me")) == (401, "NOT_LOGGED_IN")


@pytest.mark.parametrize("family", ["discord:auth:", "login:confirm:", "discord:pwa-session:"])
async def test_an_unreadable_sign_in_is_over(redis_site: Running, family: str) -> None:
    browser = redis_site.browser()
    started = await browser.start(context="pwa")
    callback = await log_in(started["authorizeUrl"], ACCOUNT)
    if family == "login:confirm:":
        browser.forget()
    if family != "discord:auth:":
        page = await browser.back(callback, **HTML)
        confirm = page.text.partition('name="confirm" value="')[2].partition('"')[0]
    await redis_site.ask("SET", await redis_site.key(family), b"no JSON", "KEEPTTL")
    if family == "discord:auth:":
        answer = await browser.back(callback)
    elif family == "login:confirm:":
        answer = await browser.http.post(
            "/api/auth/discord/confirm", data={"confirm": confirm}, headers={"origin": BASE}
        )
    else:
        answer = await browser.post("/api/auth/discord/claim-session", {"state": started["state"]})
    assert answer.status_code in (400, 404)
