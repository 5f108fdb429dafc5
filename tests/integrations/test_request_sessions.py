"""`request.session`: what is stored, and when."""

from typing import Any

import pytest
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket

from keystead import Store
from keystead.errors import BadValue
from keystead.integrations.asgi import (
    RequestSession,
    RequestSessionMiddleware,
    flash,
    session_of,
    take_flashes,
)
from tests.integrations.request_apps import app_with, asked, browser_of, memory, session_keys_of
from tests.parts.datasessions.conftest import keys_of
from tests.parts.sessions.relays import Relay

__all__ = ["memory"]


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
        for _ in range(10):  # no page shows any of 120 messages
            await asked(browser, "/say")
        assert len((await asked(browser, "/read"))["data"]) == 20
        assert (await asked(browser, "/show"))[-1] == ["saved 11", "ok"]


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
