"""Refresh of the provider's tokens shortly before they expire: once, without losing the session."""

import asyncio
import json
from typing import Any

import pytest

from keystead.kits.login import LoginKeys
from keystead.schema import KeyRing
from tests.kits.login.browsing import RING, Browser, Running, login_table, running
from tests.kits.login.front import Front
from tests.oidc import OidcProvider
from tests.stopwatch import Stopwatch

LIFETIME_S = 3600  # of an access token of the provider


async def logged_in(site: Running) -> Browser:
    browser = site.browser()
    await browser.log_in()
    return browser


async def begun(site: Running, front: Front, browser: Browser) -> "asyncio.Task[bool]":
    """A request whose refresh was granted by the provider, with the response still pending."""
    site.clock.move(seconds=LIFETIME_S)
    front.answering.clear()
    front.reached.clear()
    asking = asyncio.ensure_future(browser.is_logged_in())
    await front.reached.wait()
    return asking


async def refresh_token(site: Running) -> str:
    keys = LoginKeys(site.store, seal=KeyRing.from_text(RING))
    session = await keys.session((await site.key("sess:")).removeprefix("sess:")).get()
    assert session is not None
    return session.refresh_token


async def test_tokens_are_renewed_thirty_seconds_before_they_expire_and_not_earlier(
    site: Running, front: Front
) -> None:
    browser = await logged_in(site)
    site.clock.move(seconds=LIFETIME_S - 40)
    assert await browser.is_logged_in()
    assert front.refreshes() == 0
    site.clock.move(seconds=11)
    assert await browser.is_logged_in()
    assert front.refreshes() == 1
    assert await browser.is_logged_in()
    assert front.refreshes() == 1


@pytest.mark.parametrize("provider_name", ["discord", "acme"])
async def test_a_refresh_increments_the_version_and_stores_the_new_tokens(
    stored_site: Running, front: Front, provider_name: str
) -> None:
    browser = stored_site.browser()
    await browser.log_in(provider=provider_name)
    before, token = await stored_site.held("sess:"), await refresh_token(stored_site)
    for ver in (2, 3, 4):
        stored_site.clock.move(seconds=LIFETIME_S)
        assert await browser.is_logged_in()
        after = await stored_site.held("sess:")
        assert after["ver"] == ver
        assert after["access_expires_at"] > stored_site.clock() + 3_500_000
        assert {name: after[name] for name in ("uid", "name", "created_at", "scope")} == {
            name: before[name] for name in ("uid", "name", "created_at", "scope")
        }
        assert await refresh_token(stored_site) != token  # this provider gives a new one each time
        token = await refresh_token(stored_site)
    assert front.refreshes() == 3
    assert [key for key in await stored_site.keys() if key.startswith("lock:")] == []


async def test_a_refresh_restarts_the_thirty_days_of_a_session(redis_site: Running) -> None:
    browser = await logged_in(redis_site)
    await redis_site.ask("PEXPIRE", await redis_site.key("sess:"), 100_000)
    redis_site.clock.move(seconds=LIFETIME_S)
    assert await browser.is_logged_in()
    assert await redis_site.left_s(await redis_site.key("sess:")) > 29 * 86_400


async def test_twenty_requests_at_two_processes_refresh_once_and_share_the_result(
    store_url: str, provider: OidcProvider, front: Front
) -> None:
    table = login_table(provider, front)
    async with running(store_url, table) as one, running(store_url, table, clock=one.clock) as other:
        browser = await logged_in(one)
        elsewhere = other.copy_of(browser)
        for ver in (2, 3):  # a refresh token that was used twice would be the end of all of them
            one.clock.move(seconds=LIFETIME_S)
            services = [one.app.state.kits["login"], other.app.state.kits["login"]] * 10
            answers = await asyncio.gather(*(service.session(browser.cookie("sid")) for service in services))
            assert front.refreshes() == ver - 1
            assert {live.session.ver for live in answers} == {ver}
            assert len({live.session.access_token for live in answers}) == 1
            assert (await one.held("sess:"))["ver"] == ver
        assert await browser.is_logged_in()
        assert await elsewhere.is_logged_in()


@pytest.mark.parametrize("trouble", [{"refusing": "invalid_client"}, {"down": True}])
async def test_a_failed_refresh_keeps_the_session_and_is_not_retried_immediately(
    stored_site: Running, front: Front, trouble: dict[str, Any]
) -> None:
    browser = await logged_in(stored_site)
    before, token = await stored_site.held("sess:"), await refresh_token(stored_site)
    stored_site.clock.move(seconds=LIFETIME_S)
    vars(front).update(trouble)
    asked: list[str] = front.grants
    began = len(asked)
    for _ in range(3):
        assert await browser.is_logged_in()
    after = await stored_site.held("sess:")
    assert (after["ver"], after["access_expires_at"]) == (1, before["access_expires_at"])
    assert await refresh_token(stored_site) == token
    assert len(asked) - began == 1
    lock = await stored_site.key("lock:sess:")
    assert 0 < await stored_site.left_s(lock) <= 5
    # When the five seconds are over, and the provider is back, it is tried again.
    front.refusing, front.down = "", False
    await stored_site.ask("DEL", lock)
    assert await browser.is_logged_in()
    assert (await stored_site.held("sess:"))["ver"] == 2


async def test_no_request_waits_after_a_failed_refresh(site: Running, front: Front) -> None:
    browser = await logged_in(site)
    site.clock.move(seconds=LIFETIME_S)
    front.refusing = "invalid_client"
    assert await browser.is_logged_in()
    watch = Stopwatch()
    assert await browser.is_logged_in()
    assert watch.seconds < 1  # less than those wait who wait for a refresh that is under way


async def test_a_client_disconnect_does_not_lose_the_new_tokens(stored_site: Running, front: Front) -> None:
    browser = await logged_in(stored_site)
    asking = await begun(stored_site, front, browser)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    front.answering.set()
    # The next request waits for what the first one asked for.
    assert await browser.is_logged_in()
    assert (await stored_site.held("sess:"))["ver"] == 2
    assert front.refreshes() == 1
    stored_site.clock.move(seconds=LIFETIME_S)
    assert await browser.is_logged_in()
    assert (await stored_site.held("sess:"))["ver"] == 3


async def test_a_server_stop_does_not_lose_the_new_tokens(store_url: str, provider: OidcProvider, front: Front) -> None:
    table = login_table(provider, front)
    async with running(store_url, table) as site:
        browser = await logged_in(site)
        asking = await begun(site, front, browser)
        asking.cancel()
        asyncio.get_running_loop().call_later(0.2, front.answering.set)
    async with running(store_url, table, clock=site.clock) as again:
        assert (await again.held("sess:"))["ver"] == 2
        assert await again.copy_of(browser).is_logged_in()


@pytest.mark.parametrize("end", ["logout", "logout-all"])
async def test_a_refresh_does_not_resurrect_a_logged_out_session(stored_site: Running, front: Front, end: str) -> None:
    browser = await logged_in(stored_site)
    same_browser = stored_site.copy_of(browser)
    token = browser.cookie("sid")
    asking = await begun(stored_site, front, browser)
    # The login is an hour ago by now: as recent as it must be.
    stored_site.clock.move(seconds=-60)
    assert (await same_browser.post(f"/api/auth/{end}")).status_code == 200
    front.answering.set()
    assert not await asking
    thief = stored_site.browser()
    assert not (await thief.get("/api/auth/me?soft=1", cookie=f"sid={token}")).json()["loggedIn"]
    assert [key for key in await stored_site.keys() if not key.startswith("end:")] == []


async def test_a_refresh_does_not_resurrect_a_session_ended_on_another_device(
    stored_site: Running, front: Front
) -> None:
    browser = await logged_in(stored_site)
    asking = await begun(stored_site, front, browser)
    front.answering.set()
    other = stored_site.browser()
    await other.log_in()
    assert await asking
    front.answering.clear()
    again = asyncio.ensure_future(browser.is_logged_in())
    assert (await other.post("/api/auth/logout-others")).status_code == 200
    front.answering.set()
    await again
    assert not await browser.is_logged_in()
    assert [one["current"] for one in await other.sessions()] == [True]


async def test_a_refresh_keeps_concurrent_changes(redis_site: Running, front: Front) -> None:
    browser = await logged_in(redis_site)
    asking = await begun(redis_site, front, browser)
    key = await redis_site.key("sess:")
    record = json.loads(await redis_site.ask("GET", key))
    await redis_site.ask("SET", key, json.dumps({**record, "name": "Ada King"}), "KEEPTTL")
    front.answering.set()
    assert await asking
    after = await redis_site.held("sess:")
    assert (after["name"], after["ver"]) == ("Ada King", 2)


async def test_a_session_without_a_refresh_token_continues(redis_site: Running, front: Front) -> None:
    browser = await logged_in(redis_site)
    keys = LoginKeys(redis_site.store, seal=KeyRing.from_text(RING))
    key = keys.session((await redis_site.key("sess:")).removeprefix("sess:"))
    session = await key.get()
    assert session is not None
    await key.replace(session.model_copy(update={"refresh_token": ""}))
    redis_site.clock.move(seconds=2 * LIFETIME_S)
    assert await browser.is_logged_in()
    assert front.refreshes() == 0


# --- a refresh whose answer was lost -------------------------------------------------------------------------


async def test_a_lost_refresh_response_is_not_retried_forever_and_is_reported(
    stored_site: Running, front: Front
) -> None:
    browser = await logged_in(stored_site)
    # The provider grants the refresh and spends the old token, and its answer never arrives.
    asking = await begun(stored_site, front, browser)
    service = stored_site.app.state.kits["login"]
    for task in list(service._refresh._tasks):
        task.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    front.answering.set()
    await stored_site.ask("DEL", await stored_site.key("lock:sess:"))  # its five seconds are over
    spent = front.refreshes()
    told = (await browser.get("/api/auth/me")).json()
    assert (told["loggedIn"], told["providerSignInRequired"]) == (True, True)
    assert told["startUrl"] == "/api/auth/discord/start"
    assert front.refreshes() == spent + 1
    # The provider is not asked again, however often the session is used and however much time passes.
    for _ in range(5):
        assert [key for key in await stored_site.keys() if key.startswith("lock:")] == []
        stored_site.clock.move(seconds=60)
        assert (await browser.get("/api/auth/me")).json() == told
    assert front.refreshes() == spent + 1
    page = await browser.get("/login", accept="text/html")
    assert "Discord no longer lets this site act for you." in page.text
    # A sign-in there makes a session that has tokens again.
    await browser.log_in()
    assert "providerSignInRequired" not in (await browser.get("/api/auth/me")).json()


async def test_a_late_refusal_does_not_overwrite_tokens_of_another_process(redis_site: Running, front: Front) -> None:
    browser = await logged_in(redis_site)
    redis_site.clock.move(seconds=LIFETIME_S)
    front.refusing = "invalid_grant"
    service = redis_site.app.state.kits["login"]
    asked = service._refresh._clients["discord"].refresh

    async def overtaken(token: str) -> Any:
        """While the provider refuses, a request with an expired lock stores its new tokens."""
        key = await redis_site.key("sess:")
        keys = LoginKeys(redis_site.store, seal=KeyRing.from_text(RING))
        session = await keys.session(key.removeprefix("sess:")).get()
        assert session is not None
        await keys.session(key.removeprefix("sess:")).replace(session.model_copy(update={"refresh_token": "newer"}))
        return await asked(token)

    service._refresh._clients["discord"].refresh = overtaken
    assert "providerSignInRequired" not in (await browser.get("/api/auth/me")).json()
    assert await refresh_token(redis_site) == "newer"


async def test_fifty_requests_with_a_spent_refresh_token_call_the_provider_once(
    store_url: str, provider: OidcProvider, front: Front
) -> None:
    table = login_table(provider, front)
    async with running(store_url, table) as one, running(store_url, table, clock=one.clock) as other:
        browser = await logged_in(one)
        one.clock.move(seconds=LIFETIME_S)
        front.refusing = "invalid_grant"
        services = [one.app.state.kits["login"], other.app.state.kits["login"]] * 25
        answers = await asyncio.gather(*(service.session(browser.cookie("sid")) for service in services))
        assert front.refreshes() == 1
        assert {live.session.provider_refused for live in answers} == {True}
