"""Middleware for `request.session`, in place of the one of Starlette, FastAPI or Litestar."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from copy import copy
from typing import Any, Final

from starlette.types import Receive, Scope, Send

from keystead.errors import BadDeclaration
from keystead.integrations.asgi.csrf_guard import CSRF_BODY_MAX_BYTES
from keystead.integrations.asgi.lifespan import SessionsLifespan
from keystead.integrations.asgi.request_response import RequestResponse
from keystead.integrations.asgi.request_session import REQUEST_SESSION, RequestSession
from keystead.integrations.asgi.session_layer import SessionLayer
from keystead.integrations.asgi.types import App
from keystead.parts.datasessions import ANONYMOUS, DataSessions, Policy, data_session_keys
from keystead.stores import Store, connect

FIELDS_MAX: Final = 100
VALUE_MAX_BYTES: Final = 100_000
_GIVEN: Final = "keystead.given"  # in the scope: its token, until its session is there


class RequestSessionMiddleware(SessionLayer[DataSessions]):
    """`request.session`, stored in any Keystead store, in place of the session middleware of the framework.

        app.add_middleware(RequestSessionMiddleware, store="redis://localhost")

    store       a URL, opened at startup (or with the first request, if the server has no lifespan) and closed at
                shutdown; or a Store that you open and close yourself
    policy      session lifetimes of signed-in users, and the maximum number per user
    anonymous   the same before sign-in; its maximum is per client address
    creations   how many anonymous sessions a client address can begin; beyond that the response is a 429. None: any
    client      a function of the scope that returns the client address; by default the one that the server states.
                Behind a proxy let the server take it from the proxy's headers
    prefix      the prefix of the keys, `app:sess:…`; applications that share a store need different ones
    sessions    instead of all these: DataSessions of your own keyspace, whose store you open
    lazy        read the session when it is asked for, not with each request: at once in a handler that runs in a
                thread; in an `async` one after `await request.session.load()`
    csrf        whether unsafe requests must send the CSRF token

    The other options are those of `SessionMiddleware`. A request without a cookie costs no round trip. One with
    a cookie costs one, and a second one if something has changed. A store outage is a 503 with Retry-After.
    """

    def __init__(
        self,
        app: App,
        *,
        store: str | Store | None = None,
        policy: Policy | None = None,
        anonymous: Policy = ANONYMOUS,
        creations: str | None = "100/minute",
        client: Callable[[Scope], str] | None = None,
        prefix: str = "app",
        sessions: DataSessions | None = None,
        lazy: bool = False,
        cookie: str = "sid",
        development: bool = False,
        skip: Sequence[str] = (),
        csrf: bool = False,
        csrf_exempt: Sequence[str] = (),
        trusted_origins: Sequence[str] = (),
        csrf_body_max_bytes: int = CSRF_BODY_MAX_BYTES,
    ) -> None:
        super().__init__(
            app,
            _lifespan(store, policy, anonymous, prefix, creations)
            if sessions is None
            else SessionsLifespan(None, lambda: sessions),
            cookie=cookie,
            development=development,
            skip=skip,
            csrf=csrf,
            csrf_exempt=csrf_exempt,
            trusted_origins=trusted_origins,
            csrf_body_max_bytes=csrf_body_max_bytes,
        )
        self._client = client
        self._lazy = lazy

    def _start_read(self, sessions: DataSessions, cookies: bytes, scope: Scope) -> Any:
        token = scope[_GIVEN] = self._find_token(cookies, scope)
        return None if token is None or self._lazy else sessions.load(token)

    def _respond(self, scope: Scope, sessions: DataSessions, cookies: bytes, send: Send, found: Any) -> RequestResponse:
        loop = asyncio.get_running_loop() if self._lazy else None
        response = RequestResponse(self._cookies, cookies, send, scope, self._client, loop)
        response.session = RequestSession(sessions, response, found, scope.pop(_GIVEN, None))
        scope["session"] = scope[REQUEST_SESSION] = response.session
        return response


class LitestarSessions:
    """`RequestSessionMiddleware` for the middleware list of Litestar, in place of `ServerSideSessionConfig(…)`.

        sessions = LitestarSessions(store="redis://localhost")
        app = Litestar([…], middleware=[sessions.middleware], lifespan=[sessions.lifespan])

    Litestar makes its middleware once for each route; all of them share one store.
    """

    def __init__(self, **options: Any) -> None:
        self._layer = RequestSessionMiddleware(_no_app, **options)

    def middleware(self, app: App) -> Any:  # the ASGI types of Litestar are not those of Starlette
        layer = copy(self._layer)
        layer.app = app
        return layer

    @asynccontextmanager
    async def lifespan(self, app: object) -> AsyncIterator[None]:
        await self._layer._lifespan.open()
        try:
            yield
        finally:
            await self._layer.close()


async def _no_app(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("each route has its own")


def _lifespan(
    store: str | Store | None, policy: Policy | None, anonymous: Policy, prefix: str, creations: str | None
) -> SessionsLifespan[DataSessions]:
    if store is None:
        raise BadDeclaration('RequestSessionMiddleware needs store="redis://…" or sessions=DataSessions(…)')
    keyspace = data_session_keys(policy, anonymous, prefix=prefix, creations=creations)
    # An invalid URL is an error here, not in the first request.
    opened = connect(store) if isinstance(store, str) else store

    def bind() -> DataSessions:
        return DataSessions(keyspace(opened), policy, anonymous, fields_max=FIELDS_MAX, value_max_bytes=VALUE_MAX_BYTES)

    return SessionsLifespan(opened if isinstance(store, str) else None, bind)
