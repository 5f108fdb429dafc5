"""A sign-out revokes the provider's tokens, however long the provider is unreachable."""

from __future__ import annotations

import asyncio

from keystead.kits.login import Login, LoginKeys, Session
from keystead.parts.outbox import DeliveryCounts
from keystead.schema import KeyRing
from tests.kits.login.browsing import ACCOUNT, HTML, RING, Browser, Running, login_table, running
from tests.kits.login.front import Front
from tests.oidc import OidcProvider, log_in


def login_of(site: Running) -> Login:
    login: Login = site.app.state.kits["login"]
    return login


async def session_of(site: Running, browser: Browser) -> Session:
    live = await login_of(site).sessions.read(browser.cookie("sid") or "")
    assert live
    return live.session


async def delivered(site: Running) -> None:
    """Wait until the outbox is empty."""
    outbox = login_of(site).revocations.outbox
    while await everything_queued(site):
        await outbox.deliver_due()


async def everything_queued(site: Running) -> list[str]:
    found = [key.decode() async for page in site.store.scan() for key in page]
    return [key for key in found if key.startswith("outbox:queue:")]


async def test_a_sign_out_revokes_the_providers_tokens(stored_site: Running, front: Front) -> None:
    for provider in ("discord", "acme"):
        browser = stored_site.browser()
        await browser.log_in(provider=provider)
        session = await session_of(stored_site, browser)
        front.revoked.clear()
        await browser.post("/api/auth/logout")
        await delivered(stored_site)
        assert front.revoked == [session.refresh_token, session.access_token]
    # Nothing is left of it.
    left = [key.decode() async for page in stored_site.store.scan() for key in page]
    assert [key for key in left if key.startswith(("login:revoke:", "outbox:queue:", "sess:", "user:"))] == []


async def test_a_revoked_token_is_invalid_at_the_provider(stored_site: Running, front: Front) -> None:
    browser = stored_site.browser()
    await browser.log_in(provider="acme")
    stored_site.clock.move(seconds=3600)
    assert await browser.is_logged_in()  # which asks for new tokens
    await browser.post("/api/auth/logout")
    await delivered(stored_site)
    assert (await front.replay())[0] == 400


async def test_revocation_is_retried_until_the_provider_is_back_also_by_the_next_process(
    store_url: str, provider: OidcProvider, front: Front
) -> None:
    table = login_table(provider, front)
    async with running(store_url, table) as site:
        browser = site.browser()
        await browser.log_in()
        session = await session_of(site, browser)
        front.down = True
        assert (await browser.post("/api/auth/logout")).status_code == 200
        assert not await browser.is_logged_in()
        await login_of(site).revocations.outbox.deliver_due()
        assert front.revoked == []
        assert session.refresh_token not in await site.everything()  # it waits sealed
    front.down = False
    async with running(store_url, table, clock=site.clock) as again:
        site.clock.move(seconds=60)
        await delivered(again)
    assert front.revoked == [session.refresh_token, session.access_token]


async def test_every_way_to_end_a_session_revokes_its_tokens(
    store_url: str, provider: OidcProvider, front: Front
) -> None:
    async with running(store_url, login_table(provider, front, cap=3)) as site:
        browsers = [site.browser() for _ in range(6)]
        tokens = []
        for one in browsers[:4]:  # the fourth evicts the first
            await one.log_in(provider="acme")
            tokens.append((await session_of(site, one)).refresh_token)
        await delivered(site)
        assert front.revoked[::2] == tokens[:1]
        [second] = [one["id"] for one in await browsers[1].sessions() if one["current"]]
        await browsers[3].delete(f"/api/auth/sessions/{second}")
        await delivered(site)
        assert front.revoked[::2] == tokens[:2]
        await browsers[3].post("/api/auth/logout-others")
        await delivered(site)
        assert front.revoked[::2] == tokens[:3]
        await browsers[3].log_in(provider="acme")  # in the same browser, whose session ends
        tokens.append((await session_of(site, browsers[3])).refresh_token)
        await delivered(site)
        assert front.revoked[::2] == tokens[:4]
        await browsers[3].post("/api/auth/logout-all")
        await delivered(site)
        assert front.revoked[::2] == tokens


async def test_a_grant_wide_revocation_waits_for_the_last_session(stored_site: Running, front: Front) -> None:
    """As at Discord and Google: revoking earlier would affect the user's other devices."""
    first, second = stored_site.browser(), stored_site.browser()
    await first.log_in()
    await second.log_in()
    last = (await session_of(stored_site, second)).refresh_token
    await first.post("/api/auth/logout")
    await delivered(stored_site)
    assert front.revoked == []
    await second.post("/api/auth/logout")
    await delivered(stored_site)
    assert front.revoked[:1] == [last]


async def test_a_denied_sign_in_revokes_its_tokens(stored_site: Running, front: Front) -> None:
    attacker, victim = stored_site.browser(), stored_site.browser()
    page = await victim.back(await log_in((await attacker.start())["authorizeUrl"], ACCOUNT), **HTML)
    confirm = page.text.partition('name="confirm" value="')[2].partition('"')[0]
    denied = {"confirm": confirm, "deny": "1"}
    await victim.http.post("/api/auth/discord/confirm", data=denied, headers={"origin": victim.base, **HTML})
    await delivered(stored_site)
    assert len(front.revoked) == 2


async def test_a_provider_without_a_revocation_endpoint_is_not_called(provider: OidcProvider, front: Front) -> None:
    table = login_table(provider, front)
    places = {name: table["providers"]["discord"][name] for name in ("authorize_url", "token_url", "userinfo_url")}
    client = {"client_id": provider.client_id, "client_secret": provider.client_secret}
    redirect = table["providers"]["discord"]["redirect_uri"].replace("discord", "acme")
    table["providers"] = {"acme": {**client, **places, "scope": "openid offline_access", "redirect_uri": redirect}}
    async with running("memory://", table) as site:
        browser = site.browser()
        await browser.log_in(provider="acme")
        await browser.post("/api/auth/logout")
        await delivered(site)
        keys = LoginKeys(site.store, seal=KeyRing.from_text(RING))
        assert [key.key async for key in keys.revocation.scan()] == []
        assert await login_of(site).revocations.outbox.deliver_due() == DeliveryCounts()
    assert front.revoked == []


async def test_tokens_received_after_a_sign_out_are_revoked(stored_site: Running, front: Front) -> None:
    browser = stored_site.browser()
    await browser.log_in(provider="acme")
    stored_site.clock.move(seconds=3600)
    front.answering.clear()
    front.reached.clear()
    asking = asyncio.ensure_future(browser.is_logged_in())
    await front.reached.wait()
    issued = set(front.issued)
    await login_of(stored_site).logout(browser.cookie("sid"))
    front.answering.set()
    assert not await asking
    await front.until_revoked(4)
    assert len(set(front.revoked)) == 4
    assert set(front.revoked) <= issued
