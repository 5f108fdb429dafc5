"""Store outage: the kit reports it quickly and recovers (design, rule 6)."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import httpx2
import pytest

from tests import servers
from tests.kits.login.browsing import ACCOUNT, HTML, Browser, Running, login_table, running
from tests.kits.login.front import Front
from tests.oidc import OidcProvider, log_in


@pytest.fixture
def own_redis() -> Iterator[servers.Server]:
    with servers.redis() as server:
        yield server


@pytest.fixture
async def fragile_site(own_redis: servers.Server, provider: OidcProvider, front: Front) -> AsyncIterator[Running]:
    async with running(f"{own_redis.url}?timeout=1s&connect_timeout=1s", login_table(provider, front)) as site:
        yield site


async def all_at_once(browser: Browser, callback: str) -> list[httpx2.Response]:
    return await asyncio.gather(
        browser.get("/api/auth/me"),
        browser.get("/api/auth/me?soft=1"),
        browser.get("/api/auth/discord/start"),
        browser.back(callback),
        browser.get("/api/auth/sessions"),
        browser.get("/api/auth/csrf"),
        browser.post("/api/auth/logout"),
        browser.post("/api/auth/logout-all"),
        browser.delete("/api/auth/sessions/x"),
        browser.post("/api/auth/discord/claim-session", {"state": "x"}),
    )


@pytest.mark.parametrize("how", ["paused", "killed"])
async def test_a_store_outage_is_reported_and_logs_nobody_out(
    own_redis: servers.Server, fragile_site: Running, how: str
) -> None:
    browser = fragile_site.browser()
    await browser.log_in()
    callback = await log_in((await browser.start())["authorizeUrl"], ACCOUNT)
    if how == "paused":
        own_redis.pause()
    else:
        own_redis.kill()
    try:
        async with asyncio.timeout(30):
            answers = await all_at_once(browser, callback)
            page = await browser.get("/login", **HTML)
    finally:
        if how == "paused":
            own_redis.resume()
        else:
            own_redis.start()
    for answer in [*answers, page]:
        assert answer.status_code == 503, answer.request.url
        assert int(answer.headers["retry-after"]) >= 1
        assert "set-cookie" not in answer.headers  # the cookie stays, for when the store is back
    assert {answer.json()["code"] for answer in answers} == {"STORE_UNAVAILABLE"}
    assert page.headers["content-type"].startswith("text/html")

    async with asyncio.timeout(60):
        while (await browser.get("/api/auth/me?soft=1")).status_code != 200:
            pass
    await browser.log_in()
    assert await browser.is_logged_in()


async def test_health_does_not_depend_on_the_store(own_redis: servers.Server, fragile_site: Running) -> None:
    own_redis.kill()
    answer = await fragile_site.browser().get("/api/auth/me?health")
    assert answer.status_code == 200
