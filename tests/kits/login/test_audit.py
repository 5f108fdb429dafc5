"""The audit log has sign-ins, sign-outs and ended sessions, and never a secret."""

from __future__ import annotations

import asyncio

import pytest

from keystead.kits.login import LoginKeys
from keystead.parts.audit import AuditEntry
from keystead.schema import KeyRing
from tests.kits.login.browsing import ACCOUNT, HTML, RING, Browser, Running, login_table, running
from tests.kits.login.front import Front
from tests.oidc import OidcProvider, log_in


async def entries(site: Running) -> list[AuditEntry]:
    """The entries of the log, the oldest first."""
    keys = LoginKeys(site.store, seal=KeyRing.from_text(RING))
    return [one.item for one in await keys.audit().entries()]


async def events(site: Running) -> list[str]:
    return [one.event for one in await entries(site)]


async def id_of(browser: Browser) -> str:
    [found] = [one["id"] for one in await browser.sessions() if one["current"]]
    return str(found)


async def test_sign_in_and_sign_out_are_audited_with_user_address_and_session(stored_site: Running) -> None:
    browser = stored_site.browser()
    await browser.log_in()
    id = await id_of(browser)
    await browser.post("/api/auth/logout")
    noted = [(one.event, one.who, one.what, one.where) for one in await entries(stored_site)]
    assert noted == [
        ("signed-in", f"login:{ACCOUNT}", id, browser.address),
        ("signed-out", f"login:{ACCOUNT}", id, browser.address),
    ]


async def test_a_sign_out_without_a_session_is_not_audited(stored_site: Running) -> None:
    browser = stored_site.browser()
    await browser.log_in()
    await browser.post("/api/auth/logout")
    await browser.post("/api/auth/logout")
    forged = f"sid={'x' * 43}.{'YW5u'}"
    await stored_site.browser().post("/api/auth/logout", cookie=forged)
    assert await events(stored_site) == ["signed-in", "signed-out"]


async def test_revocations_are_audited(stored_site: Running) -> None:
    first, second, third = [stored_site.browser() for _ in range(3)]
    for one in (first, second, third):
        await one.log_in()
    other = await id_of(second)
    assert (await first.delete(f"/api/auth/sessions/{other}")).json()["ended"] == 1
    assert (await first.delete(f"/api/auth/sessions/{other}")).json()["ended"] == 0
    assert (await first.post("/api/auth/logout-others")).json()["ended"] == 1
    assert (await first.post("/api/auth/logout-all")).json()["ended"] == 1
    noted = [(one.event, one.what, one.where) for one in (await entries(stored_site))[3:]]
    assert noted == [
        ("session-revoked", other, first.address),
        ("other-sessions-revoked", f"login:{ACCOUNT}", first.address),
        ("all-sessions-revoked", f"login:{ACCOUNT}", first.address),
    ]


async def test_an_eviction_is_audited_with_the_evicted_session(
    store_url: str, provider: OidcProvider, front: Front
) -> None:
    async with running(store_url, login_table(provider, front, cap=1)) as site:
        first, second = site.browser(), site.browser()
        await first.log_in()
        id = await id_of(first)
        await second.log_in()
        evicted = [(one.what, one.who, one.why) for one in await entries(site) if one.event == "session-evicted"]
        assert evicted == [(id, f"login:{ACCOUNT}", "too many sessions")]
        assert await events(site) == ["signed-in", "session-evicted", "signed-in"]


@pytest.mark.matrix
async def test_fifty_concurrent_sign_ins_and_evictions_are_audited_once_each(stored_site: Running) -> None:
    browsers = [stored_site.browser() for _ in range(50)]
    callbacks = [await log_in((await one.start())["authorizeUrl"], ACCOUNT) for one in browsers]
    answers = await asyncio.gather(*(one.back(url) for one, url in zip(browsers, callbacks, strict=True)))
    assert {answer.status_code for answer in answers} == {200}
    noted = await entries(stored_site)
    made = {one.what for one in noted if one.event == "signed-in"}
    evicted = [one.what for one in noted if one.event == "session-evicted"]
    assert len(made) == 50
    assert len(evicted) == len(set(evicted)) == 45
    alive = {one["id"] for browser in browsers if await browser.is_logged_in() for one in await browser.sessions()}
    assert alive == made - set(evicted)


async def test_fifty_concurrent_sign_outs_of_one_session_are_audited_once(stored_site: Running) -> None:
    browser = stored_site.browser()
    await browser.log_in()
    service = stored_site.app.state.kits["login"]
    await asyncio.gather(*(service.logout(browser.cookie("sid")) for _ in range(50)))
    assert await events(stored_site) == ["signed-in", "signed-out"]


async def test_a_denied_sign_in_is_audited(stored_site: Running) -> None:
    attacker, victim = stored_site.browser(), stored_site.browser()
    page = await victim.back(await log_in((await attacker.start())["authorizeUrl"], "mallory"), **HTML)
    confirm = page.text.partition('name="confirm" value="')[2].partition('"')[0]
    answer = await victim.http.post(
        "/api/auth/discord/confirm",
        data={"confirm": confirm, "deny": "1"},
        headers={"origin": victim.base, **HTML},
        follow_redirects=False,
    )
    assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    [noted] = await entries(stored_site)
    assert (noted.event, noted.who, noted.where) == ("sign-in-denied", "login:mallory", victim.address)
    assert [key for key in await stored_site.keys() if not key.startswith("discord:auth:")] == []
