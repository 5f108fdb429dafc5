"""A request leaves nothing for the garbage collector, whose pauses would grow with the size of the program."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.responses import PlainTextResponse, Response
from starlette.types import Message, Scope

from keystead.http.routing import KitRouter
from keystead.server.direct_routes import DirectRoutes
from keystead.server.request_layer import RequestLayer, RequestLimits


async def hello() -> Response:
    return PlainTextResponse("hello")


def layer_around_hello() -> RequestLayer:
    app, router = FastAPI(), KitRouter("hello", lambda error: None)
    router.add("GET /hello", hello, "Say hello")
    app.include_router(router)
    shared = {"/open": ["*"], "/hello-from": ["https://shop.example"]}
    return RequestLayer(app, RequestLimits(30, 1000), routes=DirectRoutes(app), shared=shared)


async def request(layer: RequestLayer, path: str) -> None:
    async def receive() -> Message:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Message) -> None:
        pass

    scope: Scope = {
        "type": "http", "method": "GET", "path": path, "raw_path": path.encode(), "query_string": b"",
        "root_path": "", "headers": [(b"accept", b"*/*")], "client": ("127.0.0.1", 5), "server": ("127.0.0.1", 80),
        "scheme": "http", "http_version": "1.1",
    }  # fmt: skip
    await layer(scope, receive, send)


def ours(found: list[Any]) -> list[str]:
    return sorted({type(one).__qualname__ for one in found if type(one).__module__.startswith("keystead.")})


@pytest.mark.parametrize("path", ["/hello", "/hello-from"])
async def test_a_finished_request_is_freed_without_the_garbage_collector(path: str) -> None:
    layer = layer_around_hello()
    await request(layer, path)
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        for _ in range(5):
            await request(layer, path)
        gc.collect()
        assert ours(gc.garbage) == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
