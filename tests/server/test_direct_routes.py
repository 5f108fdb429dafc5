"""A route that is called directly answers as FastAPI does, to well-formed and malformed requests alike."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Annotated, Any

import httpx2
import pytest
from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from pydantic import BaseModel, Field
from starlette.types import Message, Scope

from keystead.http.refusals import Refusal
from keystead.http.routing import KitRouter
from keystead.server.app import create_app
from keystead.server.direct_routes import DirectRoutes
from keystead.server.error_responses import add_error_responses
from keystead.server.logs import ACCESS
from keystead.server.metrics import Metrics
from keystead.server.request_layer import RequestLayer, RequestLimits
from keystead.server.secrets_file import new_seal_key
from keystead.server.settings import Settings


class Order(BaseModel):
    sku: str = Field(max_length=5)
    count: int = 1


class Receipt(BaseModel):
    sku: str
    total: int


class PrivateReceipt(Receipt):
    secret: str = "not for the response"


async def number_of(request: Request) -> int:
    request.app.state.calls += 1
    return int(request.app.state.calls)


Number = Annotated[int, Depends(number_of)]


async def twice(number: Number) -> int:
    return number * 2


async def ask(number: Number, doubled: Annotated[int, Depends(twice)], n: Annotated[int, Query(ge=0)] = 7) -> Response:
    return PlainTextResponse(f"{doubled - 2 * number} {n}")


async def order(body: Order, number: Number, x_who: Annotated[str, Header()] = "nobody") -> Receipt:
    if body.sku == "none":
        raise LookupError(body.sku)
    return PrivateReceipt(sku=f"{body.sku} for {x_who}", total=body.count)


async def find(id: int, tags: Annotated[list[str], Query()] = []) -> dict[str, Any]:  # noqa: B006 - FastAPI copies it
    return {"id": id, "tags": tags}


async def remove(id: int) -> None:
    return None


def blocking() -> str:
    return "in a thread"


async def in_thread(found: Annotated[str, Depends(blocking)]) -> str:
    return found


def translate(error: Exception) -> Refusal | None:
    return Refusal(404, "NOT_FOUND", "no such sku") if isinstance(error, LookupError) else None


def application() -> FastAPI:
    app = FastAPI(redirect_slashes=False)
    app.state.calls = 0
    plain, kit = APIRouter(), KitRouter("kit", translate)
    kit.add("GET /ask", ask, "Ask")
    kit.add("POST /orders", order, "Order", Receipt, status_code=201)
    plain.add_api_route("/shop/items/special", lambda: "first", methods=["GET"])
    plain.add_api_route("/shop/items/{id}", find, methods=["GET"])
    plain.add_api_route("/shop/items/{id}", remove, methods=["DELETE"], status_code=204)
    plain.add_api_route("/thread", in_thread, methods=["GET"])
    app.include_router(kit)
    app.include_router(plain)
    add_error_responses(app)
    return app


def client(*, direct: bool) -> httpx2.AsyncClient:
    app = application()
    routes = DirectRoutes(app) if direct else None
    app.add_middleware(RequestLayer, limits=RequestLimits(30, 1000), routes=routes)
    return httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://test")


REQUESTS: list[dict[str, Any]] = [
    {"method": "GET", "url": "/ask"},
    {"method": "GET", "url": "/ask?n=5"},
    {"method": "GET", "url": "/ask?n=-1"},
    {"method": "GET", "url": "/ask?n=x"},
    {"method": "GET", "url": "/ask?n=1&n=2"},
    {"method": "HEAD", "url": "/ask"},
    {"method": "POST", "url": "/ask"},
    {"method": "OPTIONS", "url": "/ask"},
    {"method": "POST", "url": "/orders", "json": {"sku": "a"}},
    {"method": "POST", "url": "/orders", "json": {"sku": "a", "count": 3}, "headers": {"x-who": "ann"}},
    {"method": "POST", "url": "/orders", "json": {"sku": "none"}},
    {"method": "POST", "url": "/orders", "json": {"sku": "too long"}},
    {"method": "POST", "url": "/orders", "json": {}},
    {"method": "POST", "url": "/orders", "json": [1]},
    {"method": "POST", "url": "/orders"},
    {"method": "POST", "url": "/orders", "content": b"{", "headers": {"content-type": "application/json"}},
    {"method": "POST", "url": "/orders", "content": b"[" * 900, "headers": {"content-type": "application/json"}},
    {"method": "POST", "url": "/orders", "content": b'{"sku":"a"}', "headers": {"content-type": "text/plain"}},
    {"method": "POST", "url": "/orders", "content": b'{"sku":"a"}', "headers": {"content-type": "application/x+json"}},
    {"method": "POST", "url": "/orders", "content": b"x" * 1001, "headers": {"content-type": "application/json"}},
    {"method": "GET", "url": "/shop/items/5?tags=a&tags=b"},
    {"method": "GET", "url": "/shop/items/five"},
    {"method": "GET", "url": "/shop/items/special"},
    {"method": "GET", "url": "/shop/items/5/more"},
    {"method": "GET", "url": "/shop/other"},
    {"method": "DELETE", "url": "/shop/items/5"},
    {"method": "PATCH", "url": "/shop/items/5"},
    {"method": "GET", "url": "/thread"},
    {"method": "GET", "url": "/nowhere"},
    {"method": "GET", "url": "/"},
]


@pytest.mark.parametrize("request_", REQUESTS, ids=lambda one: f"{one['method']} {one['url']} {str(one)[-24:]}")
async def test_a_direct_call_answers_as_fastapi_does(request_: dict[str, Any]) -> None:
    answers = []
    for direct in (False, True):
        async with client(direct=direct) as asked:
            answer = await asked.request(**{"headers": {}, **request_})
            headers = {name: value for name, value in answer.headers.items() if name != "x-request-id"}
            answers.append((answer.status_code, headers, answer.content))
    assert answers[0] == answers[1]


def test_which_routes_are_called_directly() -> None:
    routes = DirectRoutes(application())

    def is_direct(method: str, path: str) -> bool:
        return routes.find({"method": method, "path": path}) is not None

    assert is_direct("GET", "/ask")
    assert is_direct("POST", "/orders")
    assert is_direct("GET", "/shop/items/5")
    assert not is_direct("GET", "/thread")  # FastAPI calls it in a thread
    assert not is_direct("GET", "/shop/items/special")  # so it does this one, which comes first
    assert not is_direct("PUT", "/orders")
    assert not is_direct("GET", "/shop/items/5/more")


def test_the_routes_that_most_requests_ask_for_are_called_directly() -> None:
    routes = DirectRoutes(create_app(Settings(store="memory://", seal_keys=new_seal_key())))  # with all kits
    hot = [
        *(("GET", path) for path in ("/healthz", "/readyz", "/api/notifications", "/api/notifications/unread-counts")),
        *((method, path) for path in ("/api/visit", "/api/like") for method in ("GET", "POST")),
        *(("POST", f"/api/Sessions/{verb}") for verb in ("Get", "Set", "Delete")),
        ("POST", "/api/session/validate"),
    ]
    assert [one for one in hot if routes.find({"method": one[0], "path": one[1]}) is None] == []


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "by FastAPI"])
async def test_a_request_is_logged_and_counted_once_however_it_ends(direct: bool) -> None:
    app, metrics, log = application(), Metrics("test"), Log()

    async def break_off() -> StreamingResponse:
        async def parts() -> AsyncIterator[bytes]:
            yield b"a part"
            raise RuntimeError("the rest does not come")

        return StreamingResponse(parts())

    async def fail() -> Response:
        raise RuntimeError("unexpected")

    async def wait() -> Response:
        waiting.set()
        await asyncio.Event().wait()
        raise AssertionError("the client has left before")

    waiting = asyncio.Event()
    for endpoint in (break_off, fail, wait):
        app.add_api_route(f"/{endpoint.__name__}", endpoint, methods=["GET"])
    app.add_middleware(
        RequestLayer,
        limits=RequestLimits(30, 1000),
        routes=DirectRoutes(app) if direct else None,
        metrics=metrics,
        shared={"/orders": ["https://shop.example"]},
    )
    preflight = {"origin": "https://shop.example", "access-control-request-method": "POST"}
    from_elsewhere = {"method": "OPTIONS", "url": "/orders", "headers": preflight}
    requests = [*REQUESTS, from_elsewhere, *({"method": "GET", "url": url} for url in ("/break_off", "/fail"))]
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    ACCESS.addHandler(log)
    before, ACCESS.disabled = ACCESS.level, False
    ACCESS.setLevel(logging.DEBUG)
    try:
        async with httpx2.AsyncClient(transport=transport, base_url="http://test") as asked:
            for number, request in enumerate(requests, 1):
                await asked.request(**request)
                assert (len(log.records), counted(metrics)) == (number, number), request
            left = asyncio.ensure_future(asked.get("/wait"))
            await waiting.wait()
            left.cancel()
            await asyncio.wait({left})
            assert (len(log.records), counted(metrics)) == (len(requests) + 1, len(requests) + 1)
    finally:
        ACCESS.removeHandler(log)
        ACCESS.setLevel(before)


class Log(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


def counted(metrics: Metrics) -> float:
    metrics.write()
    lines = [line for line in metrics.page().decode().splitlines() if line.startswith("keystead_requests_total{")]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


async def test_dependencies_run_once_and_never_for_a_malformed_request() -> None:
    app = application()
    app.add_middleware(RequestLayer, limits=RequestLimits(30, 1000), routes=DirectRoutes(app))
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://test") as asked:
        assert (await asked.get("/ask")).text == "0 7"
        assert app.state.calls == 1
        before = app.state.calls
        assert (await asked.get("/ask?n=x")).status_code == 400
        assert app.state.calls == before + 1  # by FastAPI, which runs them before it says what is wrong


class Crowd:
    """Requests to a server that handles two at once. All wait, and only `/stream` has begun its response."""

    def __init__(self) -> None:
        self.leave, self.entered = asyncio.Event(), asyncio.Semaphore(0)
        self.layer = RequestLayer(self.app, RequestLimits(30, 1000, at_once=2, streams=["/stream", "/live/"]))

    async def app(self, scope: Scope, receive: Any, send: Any) -> None:
        self.entered.release()
        kind = b"text/event-stream" if scope["path"] == "/stream" else b"text/plain"
        if scope["path"] != "/stream":
            await self.leave.wait()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", kind)]})
        await self.leave.wait()
        await send({"type": "http.response.body", "body": b""})

    async def enter(self, *paths: str, accept: bytes = b"*/*") -> list[asyncio.Future[int]]:
        """Requests that the application has begun to handle."""
        begun: list[asyncio.Future[int]] = [asyncio.ensure_future(self.request(path, accept)) for path in paths]
        for _ in begun:
            await self.entered.acquire()
        return begun

    async def request(self, path: str = "/", accept: bytes = b"*/*") -> int:
        headers = [(b"accept", accept)]
        scope = {"method": "GET", "path": path, "headers": headers, "app": FastAPI()}
        [start, _] = await respond_to(self.layer, scope, None)
        status: int = start["status"]
        assert (status == 503) == (dict(start["headers"]).get(b"retry-after") == b"1")
        return status


async def test_more_requests_than_allowed_are_refused_at_once_and_streams_do_not_count() -> None:
    crowd = Crowd()
    waiting = await crowd.enter("/stream", "/stream", "/stream", "/a", "/b")
    assert await crowd.request() == 503
    waiting += await crowd.enter("/healthz")  # a health check is never refused
    crowd.leave.set()
    assert [await one for one in waiting] == [200] * 6
    assert await crowd.request() == 200


async def test_a_client_cannot_escape_the_limit_by_asking_for_an_event_stream() -> None:
    crowd = Crowd()
    waiting = await crowd.enter("/a", "/b", accept=b"text/event-stream")
    assert [await crowd.request("/a", b"text/event-stream") for _ in range(5)] == [503] * 5
    crowd.leave.set()
    assert [await one for one in waiting] == [200] * 2


async def test_streams_that_begin_have_a_limit_of_their_own() -> None:
    crowd = Crowd()
    waiting = await crowd.enter("/a", "/b", "/live/slow", "/live/slow")
    assert [await crowd.request(path) for path in ("/stream", "/live/slow", "/a")] == [503] * 3
    crowd.leave.set()
    assert [await one for one in waiting] == [200] * 4
    crowd = Crowd()
    waiting = await crowd.enter("/live/slow", "/live/slow", "/a", "/b")  # nor do they crowd out other requests
    crowd.leave.set()
    assert [await one for one in waiting] == [200] * 4


async def test_dependencies_that_a_test_overrides_are_overridden() -> None:
    app = application()
    app.add_middleware(RequestLayer, limits=RequestLimits(30, 1000), routes=DirectRoutes(app))

    async def always_100() -> int:
        return 100

    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://test") as asked:
        assert (await asked.get("/ask")).text == "0 7"
        app.dependency_overrides[twice] = always_100
        assert (await asked.get("/ask")).text == "96 7"
        app.dependency_overrides.clear()
        assert (await asked.get("/ask")).text == "0 7"


async def respond_to(layer: Any, scope: dict[str, Any], receive: Any) -> list[Message]:
    sent: list[Message] = []

    async def send(message: Message) -> None:
        sent.append(message)

    await layer({"type": "http", "query_string": b"", "headers": [], **scope}, receive, send)
    return sent


async def test_the_body_of_a_malformed_request_is_not_read_for_nothing() -> None:
    """A route that streams its body may take a large one, which must not be collected in memory to refuse it."""
    app = FastAPI()

    async def upload(request: Request, n: int) -> Response:
        raise AssertionError("it is refused before")

    app.add_api_route("/upload", upload, methods=["POST"])
    add_error_responses(app)
    app.add_middleware(RequestLayer, limits=RequestLimits(30, 10**9), routes=DirectRoutes(app))

    async def receive() -> Message:
        raise AssertionError("nothing is read")

    sent = await respond_to(app, {"method": "POST", "path": "/upload", "query_string": b"n=x"}, receive)
    assert sent[0]["status"] == 400


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_an_overloaded_server_tells_pages_of_other_sites_too(method: str) -> None:
    async def app(scope: Scope, receive: Any, send: Any) -> None:
        raise AssertionError("it is refused before")

    layer = RequestLayer(app, RequestLimits(30, 1000, at_once=1), shared={"/api/visit": ["*"]})
    layer.requests.count = 1
    start, body = await respond_to(layer, {"method": method, "path": "/api/visit"}, None)
    headers = dict(start["headers"])
    assert (start["status"], headers[b"access-control-allow-origin"], headers[b"retry-after"]) == (503, b"*", b"1")
    assert headers[b"x-content-type-options"] == b"nosniff"
    assert (b"OVERLOADED" in body["body"]) == (method == "GET")
    [other, _] = await respond_to(layer, {"method": method, "path": "/api/me"}, None)
    assert b"access-control-allow-origin" not in dict(other["headers"])
