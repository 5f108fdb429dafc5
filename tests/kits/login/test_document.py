"""The table of the document, on a real Redis, during logins and logouts."""

import asyncio

import pytest

from tests.kits.login.browsing import ACCOUNT, Running
from tests.kits.login.front import Front
from tests.oidc import log_in

DAY_S = 86_400
SESSION_FIELDS = [
    *("uid", "name", "avatar", "access_token", "refresh_token", "scope", "token_type"),
    *("access_expires_at", "created_at", "last_seen_at", "ver"),
]


async def test_a_pending_sign_in_has_the_fields_of_the_document_for_ten_minutes(redis_site: Running) -> None:
    await redis_site.browser().start()
    key = await redis_site.key("discord:auth:")
    assert await redis_site.ask("TYPE", key) == b"string"
    record = await redis_site.held("discord:auth:")
    assert (
        {"verifier", "loginContext"}
        <= record.keys()
        <= {
            *("verifier", "loginContext", "claimTokenDigest"),
            *("returnTo", "browserDigest", "nonce", "issuer"),
        }
    )
    assert "claimTokenDigest" not in record
    assert 595 < await redis_site.left_s(key) <= 600


async def test_a_sign_in_of_an_installed_app_stores_the_digest_of_its_claim_token(redis_site: Running) -> None:
    await redis_site.browser().start(context="pwa")
    record = await redis_site.held("discord:auth:")
    assert record["loginContext"] == "pwa"
    assert len(record["claimTokenDigest"]) == 44


async def test_a_login_stores_the_session_and_its_set_entry_for_thirty_days(redis_site: Running) -> None:
    await redis_site.browser().log_in()
    session, listing = await redis_site.keys()
    assert session.startswith("sess:")
    assert listing == f"user:{ACCOUNT}:sessions"
    assert await redis_site.ask("TYPE", session) == b"string"
    assert await redis_site.ask("TYPE", listing) == b"set"
    assert await redis_site.ask("SMEMBERS", listing) == {session.removeprefix("sess:").encode()}
    for key in (session, listing):
        assert 30 * DAY_S - 5 < await redis_site.left_s(key) <= 30 * DAY_S


async def test_a_session_has_exactly_the_fields_of_the_document(redis_site: Running) -> None:
    await redis_site.browser().log_in()
    record = await redis_site.held("sess:")
    assert list(record) == SESSION_FIELDS
    assert (record["uid"], record["name"], record["token_type"], record["ver"]) == (ACCOUNT, "Ada", "Bearer", 1)
    now_ms = redis_site.clock()
    assert record["created_at"] == record["last_seen_at"]
    assert now_ms - 5_000 < record["created_at"] <= now_ms
    assert now_ms + 3_590_000 < record["access_expires_at"] <= now_ms + 3_600_000


async def test_a_refresh_holds_a_lock_of_five_seconds_and_releases_it(redis_site: Running, front: Front) -> None:
    browser = redis_site.browser()
    await browser.log_in()
    redis_site.clock.move(seconds=3600)
    front.answering.clear()
    front.reached.clear()
    asking = asyncio.ensure_future(browser.is_logged_in())
    await front.reached.wait()
    key = await redis_site.key("lock:sess:")
    session = await redis_site.key("sess:")
    assert key == f"lock:{session}"
    assert await redis_site.ask("TYPE", key) == b"string"
    assert 0 < await redis_site.left_s(key) <= 5
    front.answering.set()
    assert await asking
    assert [key for key in await redis_site.keys() if key.startswith("lock:")] == []
    assert (await redis_site.held("sess:"))["ver"] == 2


@pytest.mark.parametrize("provider_name", ["discord", "acme"])
async def test_a_logout_deletes_all_keys_of_the_session(stored_site: Running, provider_name: str) -> None:
    browser = stored_site.browser()
    await browser.log_in(provider=provider_name)
    assert len(await stored_site.keys()) == 2
    assert (await browser.post("/api/auth/logout")).json() == {"ok": True}
    assert await stored_site.keys() == []


async def test_a_sign_in_awaiting_confirmation_has_consumed_its_state(stored_site: Running) -> None:
    browser = stored_site.browser()
    started = await browser.start()
    callback = await log_in(started["authorizeUrl"], ACCOUNT)
    browser.forget()
    assert (await browser.back(callback, accept="text/html")).status_code == 200
    assert await stored_site.key("login:confirm:")
    assert [key for key in await stored_site.keys() if key.startswith("discord:auth:")] == []


async def test_request_counters_expire(redis_site: Running) -> None:
    await redis_site.browser().is_logged_in()
    [counter] = await redis_site.keys(counters=True)
    assert counter.startswith("rl:me:")
    assert 60 < await redis_site.left_s(counter) <= 70
