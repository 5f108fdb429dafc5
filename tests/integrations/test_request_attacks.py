"""`request.session` against attackers, damage and outages."""

import asyncio
from typing import Any

import httpx2
import pytest
from starlette.requests import Request

from keystead import Store, connect
from keystead.errors import BadDeclaration, BadValue, StoreUnavailable
from keystead.integrations.asgi import (
    RequestSession,
    session_of,
)
from keystead.parts.datasessions import DataSessions, Policy, data_session_keys
from tests.integrations.request_apps import app_with, asked, browser_of, memory, session_keys_of
from tests.parts.datasessions.conftest import keys_of
from tests.parts.sessions.conftest import Clock
from tests.parts.sessions.relays import Relay

__all__ = ["memory"]


async def test_tokens_that_clients_choose_are_never_adopted(memory: Store) -> None:
    hostile = [
        "attackerchosenid",
        "null",
        "." * 300,
        "%00%0d%0a",
        "a" * 4_000,
        f"{'A' * 43}.{'A' * 43}.YW5u",
        f"{'A' * 43}.{'A' * 43}.QEA",
    ]
    app = app_with(store=memory)
    for token in hostile:
        async with browser_of(app) as browser:
            cookie = f"__Host-sid={token}; __Host-sid2=x; =; ;;"
            found = await browser.get("/read", headers=[("cookie", cookie)])
            assert found.json()["data"] == {}
            assert "set-cookie" not in found.headers
            set_cookie = (await browser.get("/sign-in?user=ann", headers=[("cookie", cookie)])).headers["set-cookie"]
            assert token not in set_cookie
    async with browser_of(app) as browser:  # two different cookies: one of them was planted
        await browser.get("/put?n=1")
        both = f"__Host-sid={browser.cookies['__Host-sid']}; __Host-sid=planted"
        browser.cookies = httpx2.Cookies()
        assert (await asked(browser, "/read", headers={"cookie": both}))["data"] == {}


async def test_signing_in_as_somebody_else_takes_nothing_of_the_first_user_along(memory: Store) -> None:
    async def switch(session: RequestSession, request: Request) -> Any:
        session["written by ann"] = 1
        await session.sign_in("bob", lambda data: {**data, "merged": len(data)})

    async def mistake(session: RequestSession, request: Request) -> Any:
        number: Any = 7
        with pytest.raises(BadValue, match="must be text"):
            await session.sign_in(number)
        return session.user

    async with browser_of(app_with({"switch": switch, "mistake": mistake}, store=memory)) as browser:
        await browser.get("/sign-in?user=ann")
        assert await asked(browser, "/mistake") == "ann"
        await browser.get("/put?secret=of-ann")
        token_of_ann = browser.cookies["__Host-sid"]
        await browser.get("/switch")
        assert await asked(browser, "/read") == {"data": {"merged": 0}, "user": "bob", "gone": None}
        browser.cookies.set("__Host-sid", token_of_ann, domain="shop.example", path="/")
        assert (await asked(browser, "/read"))["user"] is None
        assert "of-ann" not in repr(
            [await memory.run([("HGETALL", key)]) for key in await keys_of(memory) if "data" in key]
        )


async def test_an_address_begins_only_so_many_sessions_and_holds_only_so_many(memory: Store) -> None:
    app = app_with(store=memory, creations="3/minute", anonymous=Policy(idle="1d", absolute="1d", cap=2))

    async def begin(address: str, path: str = "/put?n=1") -> httpx2.Response:
        async with browser_of(app, (address, 1)) as browser:
            return await browser.get(path)

    found = await asyncio.gather(*(begin("2001:db8::1") for _ in range(5)))
    assert sorted(one.status_code for one in found) == [200, 200, 200, 429, 429]
    refused = next(one for one in found if one.status_code == 429)
    assert (refused.json()["code"], 0 < int(refused.headers["retry-after"]) <= 60) == ("RATE_LIMITED", True)
    assert "set-cookie" not in refused.headers
    assert len([key for key in await keys_of(memory) if ":sess:" in key]) == 2
    assert (await begin("2001:db8::2")).status_code == 429  # the same household
    assert (await begin("2001:db8:0:1::1")).status_code == 200
    assert (await begin("2001:db8::1", "/page")).status_code == 200
    assert (await begin("2001:db8::1", "/sign-in?user=ann")).status_code == 200  # users have a limit of their own
    behind = app_with(store=memory, creations="1/minute", prefix="b", client=lambda scope: str(scope["query_string"]))
    async with browser_of(behind) as browser:
        assert (await browser.get("/put?n=1")).status_code == 200
    async with browser_of(behind) as browser:
        assert [(await browser.get(f"/put?n={n}")).status_code for n in (1, 2)] == [429, 200]


async def test_a_session_has_room_for_so_much(memory: Store) -> None:
    async def large(session: RequestSession, request: Request) -> Any:
        session["large"] = "x" * 100_000

    async def many(session: RequestSession, request: Request) -> Any:
        session.update({f"k{n}": n for n in range(101)})

    async with browser_of(app_with({"large": large, "many": many}, store=memory)) as browser:
        for path, sentence in (("/large", "has 100002 bytes as JSON"), ("/many", "at most 100 keys")):
            with pytest.raises(BadValue, match=sentence):
                await browser.get(path)
        assert await session_keys_of(memory) == set()


async def test_an_unreadable_session_is_signed_out_stays_stored_and_is_logged(
    memory: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async with browser_of(app_with(store=memory)) as browser:
        await browser.get("/put?n=1")
        token = browser.cookies["__Host-sid"]
        [key] = [key for key in await keys_of(memory) if ":data:" in key]
        await memory.run([("HSET", key, "n", "{no")])
        found = await browser.get("/read")
        assert (found.json()["gone"], "set-cookie" in found.headers) == ("unreadable", False)
        assert await memory.run([("HGET", key, "n")]) == [b"{no"]
        assert "a session cannot be read" in caplog.text
        assert token not in caplog.text


class Outage(Relay):
    is_down = False

    async def before(self) -> None:
        if self.is_down:
            raise StoreUnavailable("SECRET is down")


async def test_an_outage_is_a_503_at_each_step_and_never_a_signed_out_user(memory: Store) -> None:
    relay = Outage(memory)

    async def fails_midway(session: RequestSession, request: Request) -> Any:
        session["n"] = 2
        relay.is_down = True

    async with browser_of(app_with({"midway": fails_midway}, store=relay)) as browser:
        await browser.get("/sign-in?user=ann")
        await browser.get("/put?n=1")
        for path in ("/midway", "/read", "/page"):
            refused = await browser.get(path)
            assert (refused.status_code, refused.json()["code"]) == (503, "STORE_UNAVAILABLE")
            assert "SECRET" not in refused.text
            assert "set-cookie" not in refused.headers
        async with browser_of(app_with(store=relay)) as visitor:
            assert (await visitor.get("/page")).status_code == 200
            assert (await visitor.get("/put?n=1")).status_code == 503
        relay.is_down = False
        assert await asked(browser, "/read") == {"data": {"n": "1"}, "user": "ann", "gone": None}


async def test_without_the_middleware_or_a_store_the_error_says_what_to_do() -> None:
    with pytest.raises(LookupError, match="add RequestSessionMiddleware"):
        session_of(Request({"type": "http"}))
    with pytest.raises(BadDeclaration, match="RequestSessionMiddleware needs store="):
        app_with()


async def test_sessions_of_an_own_keyspace_end_by_its_clock() -> None:
    clock = Clock()
    users, visitors = Policy(idle="1h", absolute="24h"), Policy(idle="10m", absolute="2h")
    async with connect("memory://") as store:
        sessions = DataSessions(data_session_keys(users, visitors)(store, now_ms=clock), users, visitors)
        async with browser_of(app_with(sessions=sessions)) as browser:
            begun = await browser.get("/put?n=1")
            assert "Max-Age=7200;" in begun.headers["set-cookie"]
            signed_in = await browser.get("/sign-in?user=ann")
            assert "Max-Age=86400;" in signed_in.headers["set-cookie"]
            clock.pass_ms(59 * 60_000)
            assert (await asked(browser, "/read"))["user"] == "ann"
            clock.pass_ms(60 * 60_000)
            assert (await asked(browser, "/read"))["gone"] == "expired"
            await browser.get("/put?n=2")
            clock.pass_ms(10 * 60_000)
            assert (await asked(browser, "/read"))["gone"] == "expired"
