"""Applications that use `request.session`, called in process by a browser with cookies."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from keystead import Store, connect
from keystead.integrations.asgi import RequestSession, RequestSessionMiddleware, session_of
from tests.parts.datasessions.conftest import keys_of

Handler = Callable[[RequestSession, Request], Awaitable[Any]]
ADDRESS = ("192.0.2.1", 50_000)


async def read(session: RequestSession, request: Request) -> Any:
    return {"data": dict(session), "user": session.user, "gone": session.gone}


async def put(session: RequestSession, request: Request) -> Any:
    session.update(request.query_params)


async def clear(session: RequestSession, request: Request) -> Any:
    request.session.clear()


async def sign_in(session: RequestSession, request: Request) -> Any:
    await session.sign_in(request.query_params["user"])


async def sign_out(session: RequestSession, request: Request) -> Any:
    return await session.end()


async def add_to_cart(session: RequestSession, request: Request) -> Any:
    """All items in one key, which every request changes."""

    def added(data: dict[str, Any]) -> dict[str, Any]:
        return {**data, "cart": [*data.get("cart", []), request.query_params["item"]]}

    return await session.change(added)


async def page(request: Request) -> Response:
    return Response("hello")


USUAL: dict[str, Handler] = {
    "read": read,
    "put": put,
    "clear": clear,
    "sign-in": sign_in,
    "sign-out": sign_out,
    "add": add_to_cart,
}


def app_with(handlers: dict[str, Handler] | None = None, **options: Any) -> RequestSessionMiddleware:
    """Each handler is a path; `/page` does not touch the session."""

    def route(name: str, handler: Handler) -> Route:
        async def endpoint(request: Request) -> Response:
            return JSONResponse(await handler(session_of(request), request))

        return Route(f"/{name}", endpoint, methods=["GET", "POST"])

    routes = [route(name, handler) for name, handler in {**USUAL, **(handlers or {})}.items()]
    return RequestSessionMiddleware(Starlette(routes=[*routes, Route("/page", page)]), **options)


@asynccontextmanager
async def browser_of(app: Any, address: tuple[str, int] = ADDRESS) -> AsyncIterator[httpx2.AsyncClient]:
    transport = httpx2.ASGITransport(app, client=address)
    async with httpx2.AsyncClient(transport=transport, base_url="https://shop.example") as client:
        yield client


async def asked(client: httpx2.AsyncClient, path: str, **options: Any) -> Any:
    response = await client.get(path, **options)
    assert response.status_code == 200, response.text
    return response.json()


@pytest.fixture
async def memory() -> AsyncIterator[Store]:
    async with connect("memory://") as store:
        yield store


async def session_keys_of(store: Store) -> set[str]:
    return {key for key in await keys_of(store) if ":sess:" in key or ":data:" in key}
