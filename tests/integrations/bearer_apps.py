"""Applications behind BearerMiddleware, created by `make` according to the environment. A worker opens one store."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from litestar import Litestar, get, post
from litestar import Request as Asked
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from keystead import Hash, Keyspace, Value, after, connect, sliding, until
from keystead.integrations.asgi import BearerMiddleware, admitted_of
from keystead.parts.admission import Admission
from keystead.parts.cache import Cache, LoadMarkers
from keystead.parts.jwt import Access, AccessTokens, RevokedTokens, SigningKeys


class User(BaseModel):
    """The user of a request."""

    name: str


class BearerKeys(Keyspace):
    """The keys shared by all processes."""

    revoked = Value("jwt:blacklist:{jti}", str, lifetime=until("expires_at"), role="durable", doc="a revoked token")
    since = Value("jwt:since:{sub}", int, lifetime=after("2h"), role="durable", doc="when all of a user ended")
    user = Hash("session:user:{id:int}", User, lifetime=sliding("30m", touch_every="1m"), tag="id", doc="who")
    mark = LoadMarkers("session:user:{id:int}:mark", role="default", tag="id")


class Opened:
    """The state of a worker."""

    admission: Admission[User]

    def __init__(self, store: str, keys: str) -> None:
        self._url, self._keys = store, keys

    @asynccontextmanager
    async def lifespan(self, app: Any) -> AsyncIterator[None]:
        async with connect(self._url) as store:
            keys = BearerKeys(store)
            revoked = RevokedTokens(keys.revoked, keys.since)
            tokens = AccessTokens(SigningKeys.from_text(self._keys), issuer="i", audience="a", revoked=revoked)
            users = Cache(keys.user, keys.mark)
            self.admission = Admission(tokens, users, key=lambda access: keys.user(int(access.sub)), load=self._load)
            yield

    async def _load(self, access: Access) -> User:
        return User(name=f"user {access.sub}")

    def middleware(self, app: Any, **options: Any) -> Any:
        return BearerMiddleware(app, admission=lambda scope: self.admission, skip=["/login"], **options)


def starlette(opened: Opened, **options: Any) -> Any:
    async def login(request: Request) -> Response:
        return JSONResponse({"token": opened.admission.tokens.issue(request.query_params["user"]).token})

    async def me(request: Request) -> Response:
        if request.state.admitted is None:
            return JSONResponse({"user": None})
        who = admitted_of(request, User)
        return JSONResponse({"user": who.user.name, "sub": who.claims["sub"]})

    async def logout(request: Request) -> Response:
        return JSONResponse({"ended": await opened.admission.tokens.revoke(admitted_of(request, User).access)})

    async def logout_all(request: Request) -> Response:
        await opened.admission.tokens.revoke_all(admitted_of(request, User).sub)
        return JSONResponse({"ended": True})

    async def login_as(request: Request) -> Response:
        return JSONResponse({"reached": True})

    async def unseen(request: Request) -> Response:
        try:
            admitted_of(request, User)
        except LookupError as error:
            return JSONResponse({"error": str(error)})
        return JSONResponse({})

    async def socket(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.send_json({"user": admitted_of(websocket, User).user.name})
        await websocket.close()

    app = Starlette(
        routes=[
            Route("/login", login, methods=["POST"]),
            Route("/login/unseen", unseen),
            Route("/login-as", login_as),
            Route("/me", me),
            Route("/logout", logout, methods=["POST"]),
            Route("/logout-all", logout_all, methods=["POST"]),
            WebSocketRoute("/socket", socket),
        ],
        lifespan=opened.lifespan,
    )
    return opened.middleware(app, **options)


def litestar(opened: Opened, **options: Any) -> Any:
    @post("/login", status_code=200)
    async def login(user: str) -> dict[str, str]:
        return {"token": opened.admission.tokens.issue(user).token}

    @get("/me")
    async def me(request: Asked[Any, Any, Any]) -> dict[str, str]:
        return {"user": admitted_of(request, User).user.name, "sub": request.state.admitted.sub}

    @post("/logout", status_code=200)
    async def logout(request: Asked[Any, Any, Any]) -> dict[str, bool]:
        return {"ended": await opened.admission.tokens.revoke(admitted_of(request, User).access)}

    return opened.middleware(Litestar([login, me, logout], lifespan=[opened.lifespan]), **options)


def make() -> Any:
    """The application selected by the environment."""
    options = json.loads(os.environ["TEST_OPTIONS"])
    opened = Opened(options.pop("store"), options.pop("keys"))
    return globals()[os.environ["TEST_APP"]](opened, **options)
