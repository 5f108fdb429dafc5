"""`request.session`: what is stored, when, and what parallel requests, sign-ins and attackers do to it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any

import httpx2
import pytest
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket

from keystead import Store, connect
from keystead.errors import BadDeclaration, BadValue, StoreUnavailable
from keystead.integrations.asgi import (
    RequestSession,
    RequestSessionMiddleware,
    flash,
    session_of,
    take_flashes,
)
from keystead.parts.datasessions import DataSessions, Policy, data_session_keys
from tests.every_store import mariadb_server, on, postgres_server, store, stores
from tests.integrations.request_apps import app_with, asked, browser_of
from tests.parts.datasessions.conftest import keys_of
from tests.parts.sessions.conftest import Clock
from tests.parts.sessions.relays import Actor, Gated, Relay, Slots, every_order, in_order
from tests.real_servers import redis_server, valkey_cluster

__all__ = ["mariadb_server", "postgres_server", "redis_server", "store", "stores", "valkey_cluster"]

more: list[Any] = [pytest.param(name, marks=pytest.mark.matrix) for name in ("cluster", "postgres", "mariadb")]
everywhere = on("memory", "redis", "sqlite", *more)


@pytest.fixture
async def memory() -> AsyncIterator[Store]:
    async with connect("memory://") as store:
        yield store


async def session_keys_of(store: Store) -> set[str]:
    return {key for key in await keys_of(store) if ":sess:" in key or ":data:" in key}


# --- one request after the other ---------------------------------------------------------------------------


async def test_a_request_writes_the_keys_that_differ_also_within_lists_and_nothing_if_none_does(memory: Store) -> None:
    async def nested(session: RequestSession, request: Request) -> Any:
        session["cart"]["items"].append("pear")

    relay = Relay(memory)
    async with browser_of(app_with({"nested": nested}, store=relay)) as browser:
        await browser.get("/put?large=xxxxxxxx")
        begun = await browser.post("/put?cart=1")
        assert "set-cookie" not in begun.headers  # the cookie is set once
        async with browser_of(app_with({"fill": _fill_cart}, store=relay)) as other:
            other.cookies = browser.cookies
            await other.get("/fill")
        relay.log.clear()
        await browser.get("/nested")
        assert len(relay.log) == 2
        assert "xxx" not in repr(relay.log[1])
        assert (await asked(browser, "/read"))["data"] == {"large": "xxxxxxxx", "cart": {"items": ["apple", "pear"]}}
        relay.log.clear()
        assert (await browser.get("/read")).headers["cache-control"] == "no-store"
        assert len(relay.log) == 1
        untouched = await browser.get("/page")
        assert (len(relay.log), "vary" in untouched.headers) == (2, False)


async def _fill_cart(session: RequestSession, request: Request) -> Any:
    session["cart"] = {"items": ["apple"]}


async def test_visits_create_no_key_and_cost_no_round_trip(memory: Store) -> None:
    """Ten thousand, also of pages that look into the session, and of scripts that begin an empty cart."""

    async def look(scope: Any, receive: Any, send: Any) -> None:
        session = scope["session"]
        cart = session.setdefault("cart", [])
        assert [len(cart), session.get("theme"), session.user, session.pop("next", None)] == [0, None, None, None]
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    relay = Relay(memory)
    app = RequestSessionMiddleware(look, store=relay)
    sent = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def visit(*headers: tuple[bytes, bytes]) -> None:
        scope = {"type": "http", "method": "GET", "path": "/", "headers": headers, "client": ("192.0.2.1", 1)}
        await app(scope, None, send)  # type: ignore[arg-type]

    for n in range(5_000):
        await visit()
        await visit((b"cookie", f"__Host-sid={n}; theme=dark".encode()))
    assert len(sent) == 20_000
    assert relay.log == []
    assert await keys_of(memory) == set()
    assert not any(name == b"set-cookie" for message in sent for name, _ in message.get("headers", ()))


async def test_clear_ends_the_session_and_what_is_set_afterwards_begins_another(memory: Store) -> None:
    async def restart(session: RequestSession, request: Request) -> Any:
        session.clear()
        session["new"] = 1

    async with browser_of(app_with({"restart": restart}, store=memory)) as browser:
        await browser.get("/sign-in?user=ann")
        await browser.get("/put?secret=1")
        old = browser.cookies["__Host-sid"]
        await browser.get("/restart")
        assert browser.cookies["__Host-sid"].split(".")[0] != old.split(".")[0]
        assert await asked(browser, "/read") == {"data": {"new": 1}, "user": None, "gone": None}
        async with browser_of(app_with(store=memory)) as thief:
            thief.cookies.set("__Host-sid", old)
            assert (await asked(thief, "/read"))["gone"] == "unknown"
        ended = await browser.get("/clear")
        assert ended.headers["set-cookie"].startswith("__Host-sid=; Max-Age=0")
        assert await session_keys_of(memory) == set()


async def test_each_method_of_a_dict_is_there_and_copies_are_plain(memory: Store) -> None:
    async def methods(session: RequestSession, request: Request) -> Any:
        import copy
        import json

        session |= {"a": [1], "b": 2}
        assert (copy.deepcopy(session), type(copy.copy(session))) == ({"a": [1], "b": 2}, dict)
        assert json.loads(json.dumps(session)) == {**session} == dict(session) == session == session | {}
        assert (session.popitem(), session.setdefault("c", 3), "a" in session, len(session)) == (("b", 2), 3, True, 2)
        assert (list(reversed(session)), bool(session)) == (["c", "a"], True)
        assert (session.pop("c"), session.pop("c", 0)) == (3, 0)
        with pytest.raises(KeyError):
            del session["c"]
        match session:
            case {"a": [one]}:
                session.update(d=one)

    async with browser_of(app_with({"methods": methods}, store=memory)) as browser:
        await asked(browser, "/methods")
        assert (await asked(browser, "/read"))["data"] == {"a": [1], "d": 1}


class Basket(BaseModel):
    items: list[str] = []
    theme: str = "light"


async def test_a_model_gives_the_session_types(memory: Store) -> None:
    async def typed(session: RequestSession, request: Request) -> Any:
        basket = session.typed(Basket)
        assert session.typed(Basket) is basket
        basket.items.append("apple")
        session["other"] = 1

    async def wrong(session: RequestSession, request: Request) -> Any:
        session["items"] = "SECRET"
        with pytest.raises(BadValue, match=r"^the session does not fit Basket: items$"):
            session.typed(Basket)
        session["items"] = ["pear"]
        return session.typed(Basket).items

    async with browser_of(app_with({"typed": typed, "wrong": wrong}, store=memory)) as browser:
        await asked(browser, "/typed")
        assert (await asked(browser, "/read"))["data"] == {"items": ["apple"], "other": 1}
        assert await asked(browser, "/wrong") == ["pear"]


async def test_flash_messages_are_shown_once_in_order(memory: Store) -> None:
    async def say(session: RequestSession, request: Request) -> Any:
        for n in range(12):
            flash(request, f"saved {n}", "ok" if n else "error")

    async def show(session: RequestSession, request: Request) -> Any:
        return [[str(one), one.category] for one in take_flashes(request)]

    async with browser_of(app_with({"say": say, "show": show}, store=memory)) as browser:
        assert await asked(browser, "/show") == []
        await asked(browser, "/say")
        assert await asked(browser, "/show") == [["saved 0", "error"], *[[f"saved {n}", "ok"] for n in range(1, 12)]]
        assert await asked(browser, "/show") == []


# --- when it is written ------------------------------------------------------------------------------------


def streaming_app(store: Store | str) -> Any:
    async def stream(request: Request) -> Response:
        async def parts() -> Any:
            yield b"begun"
            request.session["late"] = 1

        return StreamingResponse(parts())

    async def background(request: Request) -> Response:
        cart = request.session.get("cart")

        async def later() -> None:
            if cart is None:
                request.session["lost"] = 1
            else:
                cart.append("later")

        return JSONResponse({}, background=BackgroundTask(later))

    async def failing(request: Request) -> Response:
        request.session["failed"] = 1
        if "status" in request.query_params:
            return Response(status_code=503)
        raise ValueError("a fault of the application")

    async def unfit(request: Request) -> Response:
        request.session["unfit"] = object()
        return Response()

    async def socket(websocket: WebSocket) -> None:
        await websocket.accept()
        session = session_of(websocket)
        async for text in websocket.iter_text():
            session[text] = 1
            await websocket.send_json(await session.save() if text != "late" else None)

    async def begin(request: Request) -> Response:
        request.session["cart"] = ["now"]
        return Response()

    async def read(request: Request) -> Response:
        return JSONResponse(request.session)

    handlers = {"stream": stream, "background": background, "failing": failing, "unfit": unfit, "begin": begin}
    routes = [Route(f"/{name}", handler) for name, handler in {**handlers, "read": read}.items()]
    app = Starlette(routes=[*routes, WebSocketRoute("/socket", socket)])
    app.add_middleware(RequestSessionMiddleware, store=store)
    return app


async def test_streams_and_background_tasks_are_stored_at_their_end_and_failures_are_not(
    memory: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async with browser_of(streaming_app(memory)) as browser:
        for path in ("/stream", "/background"):  # no session yet, and it is too late for a cookie
            response = await browser.get(path)
            assert (response.status_code, "set-cookie" in response.headers) == (200, False)
        assert caplog.text.count("was not stored") == 2
        assert await keys_of(memory) == set()
        await browser.get("/begin")
        await browser.get("/stream")
        await browser.get("/background")
        assert (await browser.get("/failing?status")).status_code == 503
        with pytest.raises(ValueError, match="a fault of the application"):
            await browser.get("/failing")
        with pytest.raises(BadValue, match="'unfit' of the session cannot be stored as JSON"):
            await browser.get("/unfit")
        assert await asked(browser, "/read") == {"cart": ["now", "later"], "late": 1}


def test_on_a_websocket_changes_are_stored_by_save_and_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    with TestClient(streaming_app("memory://"), base_url="https://testserver") as browser:
        with browser.websocket_connect("wss://testserver/socket") as socket:
            socket.send_text("late")
            assert socket.receive_json() is None
        assert "a cookie, which a WebSocket cannot do" in caplog.text
        browser.get("/begin")
        with browser.websocket_connect("wss://testserver/socket") as socket:
            socket.send_text("one")
            assert socket.receive_json() is True
            assert browser.get("/read").json() == {"cart": ["now"], "one": 1}
            socket.send_text("late")
            assert socket.receive_json() is None
        assert browser.get("/read").json() == {"cart": ["now"], "one": 1, "late": 1}


async def test_a_lazy_session_costs_nothing_until_it_is_asked_for(memory: Store) -> None:
    def in_thread(request: Request) -> Response:
        request.session["n"] = request.session.get("n", 0) + 1
        return JSONResponse(dict(request.session))

    async def loads(request: Request) -> Response:
        await session_of(request).load()
        return JSONResponse(dict(request.session))

    async def forgets(request: Request) -> Response:
        with pytest.raises(RuntimeError, match=r"await request.session.load\(\) first"):
            request.session.get("n")
        return Response()

    async def untouched(request: Request) -> Response:
        return Response()

    relay = Relay(memory)
    app = Starlette(routes=[Route(f"/{one.__name__}", one) for one in (in_thread, loads, forgets, untouched)])
    app.add_middleware(RequestSessionMiddleware, store=relay, lazy=True)
    async with browser_of(app) as browser:
        assert await asked(browser, "/in_thread") == {"n": 1}
        assert await asked(browser, "/in_thread") == await asked(browser, "/loads") == {"n": 2}
        relay.log.clear()
        assert [(await browser.get(path)).status_code for path in ("/untouched", "/forgets")] == [200, 200]
        assert relay.log == []


# --- parallel requests ---------------------------------------------------------------------------------------


Check = Callable[[dict[Actor, httpx2.Response], httpx2.AsyncClient], Any]


async def in_every_order_of(
    make_store: Callable[[], Any], switches: int | None, begin: Sequence[str], paths: dict[Actor, str], check: Check
) -> int:
    """Two requests of one browser, in every order of their calls to the store; each order in an empty one."""

    async def one(first: Sequence[Actor]) -> list[tuple[Actor, bool]]:
        async with make_store() as empty:
            gated = Gated(empty)
            async with browser_of(app_with(store=gated)) as browser:
                for path in begin:
                    assert (await browser.get(path)).status_code == 200
                programs: dict[Actor, Callable[[], Any]] = {
                    actor: partial(browser.get, path) for actor, path in paths.items()
                }
                order, found = await in_order(gated, programs, first)
                await check(found, browser)
        return order

    return await every_order(one, switches=switches)


def in_memory() -> Any:
    return connect("memory://")


# In `make test` the turn goes from one request to the other at most twice.
orders = pytest.mark.parametrize(
    ("make_store", "switches"),
    [
        pytest.param(in_memory, 2, id="memory"),
        pytest.param(in_memory, None, id="memory-all", marks=pytest.mark.matrix),
        pytest.param(Slots, 3, id="slots", marks=pytest.mark.matrix),
    ],
)


@orders
async def test_parallel_requests_that_change_different_keys_both_succeed(
    make_store: Callable[[], Any], switches: int | None
) -> None:
    async def check(found: dict[Actor, httpx2.Response], browser: httpx2.AsyncClient) -> None:
        assert (await asked(browser, "/read"))["data"] == {"kept": "1", "theme": "dark", "language": "ko"}

    paths: dict[Actor, str] = {"a": "/put?theme=dark", "b": "/put?language=ko"}
    assert await in_every_order_of(make_store, switches, ["/put?kept=1"], paths, check) > 2


@orders
async def test_parallel_changes_of_one_key_by_a_function_both_succeed(
    make_store: Callable[[], Any], switches: int | None
) -> None:
    async def check(found: dict[Actor, httpx2.Response], browser: httpx2.AsyncClient) -> None:
        assert {one.json() for one in found.values()} == {True}
        assert sorted((await asked(browser, "/read"))["data"]["cart"]) == ["apple", "nut", "pear"]

    paths: dict[Actor, str] = {"a": "/add?item=apple", "b": "/add?item=pear"}
    assert await in_every_order_of(make_store, switches, ["/add?item=nut"], paths, check) > 5


@orders
@pytest.mark.parametrize("end", ["/sign-out", pytest.param("/clear", marks=pytest.mark.matrix)])
async def test_a_session_that_ends_during_a_request_is_never_revived(
    make_store: Callable[[], Any], switches: int | None, end: str
) -> None:
    """A request that arrives after the end begins a new, anonymous session, without anything of the old one."""

    async def check(found: dict[Actor, httpx2.Response], browser: httpx2.AsyncClient) -> None:
        after = await asked(browser, "/read")
        assert after["user"] is None
        assert after["data"] in ({}, {"late": "1"})

    paths: dict[Actor, str] = {"a": end, "b": "/put?late=1"}
    assert await in_every_order_of(make_store, switches, ["/put?secret=1", "/sign-in?user=ann"], paths, check) > 2


@orders
async def test_a_cart_in_two_tabs_survives_sign_in_whenever_that_happens(
    make_store: Callable[[], Any], switches: int | None
) -> None:
    """A request that comes with the old token right after the sign-in is a 503; sent again, it finds its cart."""
    refused = 0

    async def check(found: dict[Actor, httpx2.Response], browser: httpx2.AsyncClient) -> None:
        nonlocal refused
        if found["b"].status_code == 503:
            assert (found["b"].json()["code"], found["b"].headers["retry-after"]) == ("CONTENDED", "1")
            assert "set-cookie" not in found["b"].headers
            refused += 1
            await browser.get("/add?item=pear")
        after = await asked(browser, "/read")
        assert (after["user"], after["data"]) == ("ann", {"cart": ["apple", "pear"]})

    paths: dict[Actor, str] = {"a": "/sign-in?user=ann", "b": "/add?item=pear"}
    assert await in_every_order_of(make_store, switches, ["/add?item=apple"], paths, check) > 5
    assert refused > 0


@orders
async def test_two_sign_ins_of_one_browser_both_have_the_cart(
    make_store: Callable[[], Any], switches: int | None
) -> None:
    async def check(found: dict[Actor, httpx2.Response], browser: httpx2.AsyncClient) -> None:
        assert [one.status_code for one in found.values()] == [200, 200]
        for response in found.values():
            browser.cookies = httpx2.Cookies()
            browser.cookies.set("__Host-sid", response.headers["set-cookie"].partition(";")[0].partition("=")[2])
            after = await asked(browser, "/read")
            assert (after["user"], after["data"]) == ("ann", {"cart": ["apple"]})

    paths: dict[Actor, str] = {"a": "/sign-in?user=ann", "b": "/sign-in?user=ann"}
    assert await in_every_order_of(make_store, switches, ["/add?item=apple"], paths, check) > 2


@everywhere
async def test_a_cart_filled_in_two_tabs_is_merged_with_that_of_the_user(store: Store) -> None:
    saved = {"cart": ["honey"]}

    async def check_out(session: RequestSession, request: Request) -> Any:
        session["seen"] = True
        await session.sign_in("ann", lambda data: {**data, "cart": [*saved["cart"], *data["cart"]]})

    async with browser_of(app_with({"check-out": check_out}, store=store)) as browser:
        await browser.get("/add?item=nut")
        tabs = [browser.get(f"/add?item=apple-{n}") for n in range(5)]
        assert {response.status_code for response in await asyncio.gather(*tabs)} == {200}
        anonymous = browser.cookies["__Host-sid"]
        await browser.get("/check-out")
        after = await asked(browser, "/read")
        assert (after["user"], after["data"]["seen"], after["data"]["cart"][:2]) == ("ann", True, ["honey", "nut"])
        assert sorted(after["data"]["cart"][2:]) == [f"apple-{n}" for n in range(5)]
        async with browser_of(app_with(store=store)) as thief:  # the token from before the sign-in
            thief.cookies.set("__Host-sid", anonymous)
            assert (await asked(thief, "/read"))["data"] == {}


@everywhere
async def test_fifty_sign_ins_at_once_respect_the_cap(store: Store) -> None:
    policy = Policy(cap=3)
    app = app_with(store=store, policy=policy)

    async def device(n: int) -> bool:
        async with browser_of(app) as browser:
            await browser.get(f"/put?n={n}")
            assert (await browser.get("/sign-in?user=ann")).status_code == 200
            return bool(browser.cookies["__Host-sid"])

    assert await asyncio.gather(*map(device, range(50))) == [True] * 50
    sessions = DataSessions(data_session_keys(policy)(store), policy)
    assert len(await sessions.list_for("ann")) == 3


# --- attackers, and others who do harm -----------------------------------------------------------------------


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

    async with browser_of(app_with({"switch": switch}, store=memory)) as browser:
        await browser.get("/sign-in?user=ann")
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
