"""The state of a sign-in: random, single-use, for ten minutes, in one browser (promises 36 to 40)."""

import asyncio
import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode

import pytest

from keystead.kits.login import Login
from tests.kits.login.browsing import ACCOUNT, BASE, HTML, PROVIDERS, Browser, Running, login_table, parameters, running
from tests.kits.login.front import Front
from tests.oidc import OidcProvider, cancel_login, log_in
from tests.parts.oauth.stand_in import stand_in


def code_of(answer: object) -> str:
    code: str = answer.json()["code"]  # type: ignore[attr-defined]
    return code


def digest(text: str) -> str:
    return urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()


@pytest.mark.parametrize("provider_name", PROVIDERS)
async def test_a_state_has_256_bits_and_never_repeats(browser: Browser, provider_name: str) -> None:
    states = [(await browser.start(provider_name))["state"] for _ in range(20)]
    assert len(set(states)) == 20
    assert {len(urlsafe_b64decode(f"{state}=")) for state in states} == {32}


@pytest.mark.parametrize("provider_name", PROVIDERS)
async def test_state_verifier_and_nonce_leave_the_server_only_as_the_protocol_requires(
    site: Running, browser: Browser, provider_name: str
) -> None:
    answer = await browser.get(f"/api/auth/{provider_name}/start")
    asked = parameters(answer.json()["authorizeUrl"])
    assert asked["code_challenge_method"] == "S256"
    assert len(urlsafe_b64decode(f"{asked['code_challenge']}=")) == 32
    # The nonce goes to an OpenID Connect provider alone, which repeats it; the verifier goes nowhere.
    assert ("nonce" in asked) is (provider_name == "acme")
    shown = answer.text + "".join(answer.headers.get_list("set-cookie"))
    record = await site.held(f"{'discord' if provider_name == 'discord' else 'oauth'}:auth:")
    assert record["verifier"] not in shown
    assert record["verifier"].startswith("sealed.")
    assert asked["code_challenge"] not in await site.everything()
    if provider_name == "discord":
        assert record["nonce"] not in shown


async def test_the_store_contains_neither_the_state_nor_the_browser_secret(site: Running, browser: Browser) -> None:
    started = await browser.start()
    held = await site.everything()
    assert digest(started["state"]) in held
    assert started["state"] not in held
    assert digest(browser.cookie("d_login") or "") in held
    assert (browser.cookie("d_login") or "") not in held


@pytest.mark.parametrize("provider_name", PROVIDERS)
async def test_a_state_is_accepted_once(stored_site: Running, provider_name: str) -> None:
    browser = stored_site.browser()
    started = await browser.start(provider_name)
    callback = await log_in(started["authorizeUrl"], ACCOUNT)
    assert (await browser.back(callback)).status_code == 200
    again = await browser.back(callback)
    assert (again.status_code, code_of(again)) == (400, "STATE_INVALID")
    assert await browser.is_logged_in()


async def test_one_of_many_concurrent_callbacks_succeeds_and_calls_the_provider(
    stored_site: Running, front: Front
) -> None:
    browser = stored_site.browser()
    callback = await log_in((await browser.start())["authorizeUrl"], ACCOUNT)
    answers = await asyncio.gather(*(browser.back(callback) for _ in range(10)))
    assert sorted(answer.status_code for answer in answers) == [200] + [400] * 9
    assert front.grants == ["authorization_code"]


async def test_a_state_expires_after_ten_minutes(stored_site: Running) -> None:
    browser = stored_site.browser()
    callback = await log_in((await browser.start())["authorizeUrl"], ACCOUNT)
    key = await stored_site.key("discord:auth:")
    assert await stored_site.left_s(key) <= 600
    await stored_site.ask("DEL", key)  # as if they were over
    answer = await browser.back(callback)
    assert (answer.status_code, code_of(answer)) == (400, "STATE_INVALID")


async def test_an_attackers_login_is_refused_in_the_browser_of_a_victim_who_is_logging_in(site: Running) -> None:
    attacker, victim = site.browser(), site.browser()
    await victim.start()
    planted = await log_in((await attacker.start())["authorizeUrl"], "attacker")
    answer = await victim.back(planted)
    assert (answer.status_code, code_of(answer)) == (400, "STATE_INVALID")
    assert not await victim.is_logged_in()
    # And nobody else can use it any more.
    assert code_of(await attacker.back(planted)) == "STATE_INVALID"


async def test_a_malformed_browser_secret_does_not_match(site: Running) -> None:
    browser = site.browser()
    callback = await log_in((await browser.start())["authorizeUrl"], ACCOUNT)
    browser.forget()
    answer = await browser.back(callback, cookie="d_login=x")
    assert code_of(answer) == "STATE_INVALID"


async def test_only_a_well_formed_browser_secret_is_reused(site: Running) -> None:
    browser = site.browser()
    await browser.get("/api/auth/discord/start", cookie="d_login=attackerchosenid")
    assert browser.cookie("d_login") != "attackerchosenid"


async def test_an_attackers_login_without_a_cookie_needs_confirmation(site: Running) -> None:
    attacker, victim = site.browser(), site.browser()
    planted = await log_in((await attacker.start())["authorizeUrl"], "attacker")
    page = await victim.back(planted, **HTML)
    assert page.status_code == 200
    assert "Sign in as attacker?" in page.text
    assert victim.cookie("sid") is None
    assert not await victim.is_logged_in()
    assert [key for key in await site.keys() if key.startswith("sess:")] == []


async def confirmation(browser: Browser, callback: str) -> str:
    """The confirmation token in the page."""
    page = await browser.back(callback, **HTML)
    assert page.status_code == 200, page.text
    return page.text.partition('name="confirm" value="')[2].partition('"')[0]


async def answered(browser: Browser, confirm: str, provider: str = "discord", **headers: str) -> int:
    answer = await browser.http.post(
        f"/api/auth/{provider}/confirm", data={"confirm": confirm}, headers={"origin": BASE, **HTML, **headers}
    )
    return answer.status_code


@pytest.mark.parametrize("provider_name", PROVIDERS)
async def test_a_login_survives_a_lost_cookie_after_confirmation(stored_site: Running, provider_name: str) -> None:
    browser = stored_site.browser()
    callback = await log_in((await browser.start(provider_name))["authorizeUrl"], ACCOUNT)
    browser.forget()
    confirm = await confirmation(browser, callback)
    assert await answered(browser, confirm, provider_name) == 200
    assert await browser.is_logged_in()
    assert [key.partition(":")[0] for key in await stored_site.keys()] == ["sess", "user"]


async def test_a_confirmation_is_accepted_once(site: Running) -> None:
    browser = site.browser()
    callback = await log_in((await browser.start())["authorizeUrl"], ACCOUNT)
    browser.forget()
    confirm = await confirmation(browser, callback)
    answers = await asyncio.gather(*(answered(browser, confirm) for _ in range(5)))
    assert sorted(answers) == [200, 400, 400, 400, 400]


async def test_only_the_asked_browser_can_confirm(site: Running) -> None:
    browser, other = site.browser(), site.browser()
    callback = await log_in((await browser.start())["authorizeUrl"], ACCOUNT)
    browser.forget()
    confirm = await confirmation(browser, callback)
    await other.start()  # so that it has a secret of its own
    assert await answered(other, confirm) == 400
    assert not await other.is_logged_in()
    # Somebody has guessed or stolen the question: it is void.
    assert await answered(browser, confirm) == 400


async def test_a_confirmation_from_another_site_or_for_another_provider_is_refused(site: Running) -> None:
    browser = site.browser()
    callback = await log_in((await browser.start())["authorizeUrl"], ACCOUNT)
    browser.forget()
    confirm = await confirmation(browser, callback)
    assert await answered(browser, confirm, origin="https://evil.example") == 403
    assert await answered(browser, confirm, origin="null") == 403
    assert await answered(browser, confirm, "acme") == 400
    assert not await browser.is_logged_in()


async def test_a_get_does_not_confirm(site: Running) -> None:
    browser = site.browser()
    callback = await log_in((await browser.start())["authorizeUrl"], ACCOUNT)
    browser.forget()
    confirm = await confirmation(browser, callback)
    assert (await browser.get(f"/api/auth/discord/confirm?confirm={confirm}")).status_code == 405
    assert not await browser.is_logged_in()


async def test_a_program_without_the_cookie_gets_confirmation_required(site: Running) -> None:
    browser = site.browser()
    callback = await log_in((await browser.start())["authorizeUrl"], ACCOUNT)
    browser.forget()
    answer = await browser.back(callback)
    assert (answer.status_code, code_of(answer)) == (409, "CONFIRMATION_REQUIRED")
    assert "set-cookie" not in answer.headers
    assert [key for key in await site.keys() if key.startswith(("sess:", "login:confirm:"))] == []


@pytest.mark.parametrize("provider_name", PROVIDERS)
async def test_three_concurrent_tabs_all_succeed(stored_site: Running, provider_name: str) -> None:
    browser = stored_site.browser()
    started = [await browser.start(provider_name) for _ in range(3)]
    callbacks = [await log_in(one["authorizeUrl"], ACCOUNT) for one in started]
    answers = await asyncio.gather(*(browser.back(callback) for callback in reversed(callbacks)))
    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert await browser.is_logged_in()


async def test_a_login_may_start_in_one_process_and_finish_in_another(
    store_url: str, provider: OidcProvider, front: Front
) -> None:
    table = login_table(provider, front)
    async with running(store_url, table) as one, running(store_url, table) as other:
        browser = one.browser()
        callback = await log_in((await browser.start())["authorizeUrl"], ACCOUNT)
        elsewhere = other.copy_of(browser)
        assert (await elsewhere.back(callback)).status_code == 200
        assert code_of(await browser.back(callback)) == "STATE_INVALID"
        assert await one.copy_of(elsewhere).is_logged_in()


@pytest.mark.parametrize("trouble", ["refusing", "down"])
async def test_a_state_is_consumed_before_the_code_is_exchanged(
    stored_site: Running, front: Front, trouble: str
) -> None:
    browser = stored_site.browser()
    callback = await log_in((await browser.start())["authorizeUrl"], ACCOUNT)
    setattr(front, trouble, True)
    answer = await browser.back(callback)
    status, code = {"refusing": (401, "PROVIDER_REFUSED"), "down": (502, "PROVIDER_UNAVAILABLE")}[trouble]
    assert (answer.status_code, code_of(answer)) == (status, code)
    setattr(front, trouble, False)
    assert code_of(await browser.back(callback)) == "STATE_INVALID"
    assert await stored_site.keys() == []


async def test_a_state_is_consumed_while_the_provider_hangs(stored_site: Running, front: Front) -> None:
    browser = stored_site.browser()
    callback = await log_in((await browser.start())["authorizeUrl"], ACCOUNT)
    front.answering.clear()
    hanging = asyncio.ensure_future(browser.back(callback))
    await front.reached.wait()
    assert await stored_site.keys() == []
    assert code_of(await browser.back(callback)) == "STATE_INVALID"
    front.answering.set()
    assert (await hanging).status_code == 200


@pytest.mark.parametrize(("began", "ended"), [("discord", "acme"), ("acme", "discord")])
async def test_a_state_of_one_provider_is_invalid_at_another(site: Running, began: str, ended: str) -> None:
    browser = site.browser()
    callback = await log_in((await browser.start(began))["authorizeUrl"], ACCOUNT)
    answer = await browser.back(callback.replace(f"/{began}/", f"/{ended}/"))
    assert code_of(answer) == "STATE_INVALID"


async def test_a_response_of_another_issuer_is_refused_before_the_code_is_sent(
    site: Running, browser: Browser, provider: OidcProvider, front: Front
) -> None:
    started = await browser.start("acme")
    assert (await site.held("oauth:auth:acme:"))["issuer"] == provider.issuer
    callback = await log_in(started["authorizeUrl"], ACCOUNT)
    iss = parameters(callback)["iss"]
    assert iss == provider.issuer
    mixed_up = callback.partition("&iss=")[0] + "&iss=https%3A%2F%2Fother.example"
    answer = await browser.back(mixed_up)
    assert (answer.status_code, code_of(answer)) == (401, "PROVIDER_REFUSED")
    assert front.grants == []


async def test_a_callback_without_the_promised_issuer_is_refused(browser: Browser, front: Front) -> None:
    callback = await log_in((await browser.start("acme"))["authorizeUrl"], ACCOUNT)
    answer = await browser.back(callback.partition("&iss=")[0])
    assert code_of(answer) == "PROVIDER_REFUSED"
    assert front.grants == []


async def test_a_code_of_another_login_is_refused_by_the_provider(browser: Browser) -> None:
    mine = await log_in((await browser.start())["authorizeUrl"], ACCOUNT)
    other = await log_in((await browser.start())["authorizeUrl"], "somebody else")
    swapped = mine.replace(parameters(mine)["code"], parameters(other)["code"])
    assert code_of(await browser.back(swapped)) == "PROVIDER_REFUSED"  # the verifier does not fit


async def test_a_code_that_comes_back_with_another_state_is_refused(browser: Browser) -> None:
    first = await log_in((await browser.start())["authorizeUrl"], ACCOUNT)
    await browser.back(first)
    second = (await browser.start())["state"]
    replayed = first.replace(parameters(first)["state"], second)
    assert code_of(await browser.back(replayed)) == "PROVIDER_REFUSED"
    assert await browser.is_logged_in()


async def test_a_replayed_code_does_not_end_the_session(site: Running, browser: Browser, front: Front) -> None:
    await browser.log_in()
    assert await front.replay() == (400, "invalid_grant")
    site.clock.move(seconds=3600)
    assert await browser.is_logged_in()
    assert front.refreshes() == 1
    assert (await site.held("sess:"))["ver"] == 1  # the provider has revoked the refresh token, as it should


@pytest.mark.parametrize("query", ["", "?code=x", "?state=y", "?code=&state=", "?code=x&state=y"])
async def test_an_incomplete_callback_is_refused(browser: Browser, front: Front, query: str) -> None:
    answer = await browser.get(f"/api/auth/discord/callback{query}")
    assert answer.status_code == 400
    assert code_of(answer) in ("BAD_CALLBACK", "STATE_INVALID")
    assert front.grants == []


async def test_a_cancelled_sign_in_consumes_its_state(
    stored_site: Running,
) -> None:
    browser = stored_site.browser()
    started = await browser.start(returnTo="/shop?item=1#top")
    cancelled = await cancel_login(started["authorizeUrl"])
    answer = await browser.back(cancelled)
    assert answer.status_code == 400
    assert answer.json() == {
        "ok": False,
        "error": "the sign-in was refused at the provider",
        "code": "OAUTH_ERROR",
        "oauthError": "access_denied",
        "redirectTo": "/shop?item=1&discord_oauth_error=access_denied#top",
    }
    assert await stored_site.keys() == []


async def test_a_foreign_error_text_is_not_echoed(browser: Browser) -> None:
    words = "error=Your+account+is+locked&error_description=Call+555"
    for headers in ({}, HTML):
        answer = await browser.get(f"/api/auth/discord/callback?{words}", **headers)
        assert answer.status_code == 400
        assert "locked" not in answer.text
        assert "555" not in answer.text
    assert (await browser.get(f"/api/auth/discord/callback?{words}")).json()["oauthError"] == "unknown_error"


async def test_a_login_cannot_start_while_discovery_fails(provider: OidcProvider, front: Front) -> None:
    table = login_table(provider, front)
    table["providers"]["gone"] = {"client_id": "x", "client_secret": "y", "issuer": "http://127.0.0.1:9"}
    async with running("memory://", table) as site:
        answer = await site.browser().get("/api/auth/gone/start")
        assert (answer.status_code, code_of(answer)) == (502, "PROVIDER_UNAVAILABLE")
        assert await site.keys() == []


async def test_a_hanging_provider_does_not_block_the_others(provider: OidcProvider, front: Front) -> None:
    table = login_table(provider, front)
    async with stand_in() as silent:
        places = {name: f"{silent.url}/{name}" for name in ("authorize_url", "token_url", "userinfo_url")}
        table["providers"]["slow"] = {"client_id": "id", **places}
        async with running("memory://", table) as site:
            login: Login = site.app.state.kits["login"]

            async def hanging() -> None:
                started = await login.sign_ins.start("slow", context="browser", return_to=None, browser=None)
                await login.sign_ins.callback(
                    "slow", code="x", state=started.state, iss=None, browser=started.browser, token=None
                )

            tasks = [asyncio.ensure_future(hanging()) for _ in range(120)]
            try:
                await silent.until_asked("/token_url", 100)  # as many as an HTTP client has connections
                await site.browser().log_in(provider="acme")
                assert not any(task.done() for task in tasks)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
