"""The same application with and without sessions, for each framework: `POST /login`, and `GET /me`, which is measured.

Served by Granian as `bench.session_apps:make`, with the name of an application in `BENCH_APP` and a Redis URL in
`BENCH_REDIS`. `/me` returns a name; with sessions it is a field of the session. All have the same routes, because a
router tries them one by one.
"""

import itertools
import os
from collections.abc import Callable
from typing import Any

from pydantic import Field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from bench.bare_asgi import SessionByHand
from keystead.integrations.asgi import RequestSessionMiddleware, SessionMiddleware, session_of
from keystead.parts.sessions import Policy, SessionRecord

NAME = "Ann Example"
_users = itertools.count()


def _new_user() -> str:
    """Applications share a Redis, and a user has a limited number of sessions."""
    return f"{os.environ['BENCH_APP']}-{next(_users)}"


class Visit(SessionRecord):
    name: str
    theme: str = "light"
    cart: list[str] = Field(default_factory=list)


def _starlette() -> Any:
    async def login(request: Request) -> Response:
        return Response(status_code=204)

    async def me(request: Request) -> Response:
        return JSONResponse({"name": NAME})

    return Starlette(routes=[Route("/login", login, methods=["POST"]), Route("/me", me)])


def _starlette_by_hand() -> Any:
    app = _starlette()
    app.add_middleware(SessionByHand)
    return app


def _starlette_keystead(store: str = "BENCH_REDIS", near: str | None = None) -> Any:
    async def login(request: Request) -> Response:
        await session_of(request, Visit).start(Visit(uid=_new_user(), name=NAME))
        return Response(status_code=204)

    async def me(request: Request) -> Response:
        visit = session_of(request, Visit).require()
        return JSONResponse({"name": visit.name})

    app = Starlette(routes=[Route("/login", login, methods=["POST"]), Route("/me", me)])
    _add_sessions(app, store, near)
    return app


def _add_sessions(app: Starlette, store: str = "BENCH_REDIS", near: str | None = None) -> None:
    app.add_middleware(SessionMiddleware, **_session_options(store, near))


def _session_options(store: str = "BENCH_REDIS", near: str | None = None) -> dict[str, Any]:
    return {
        "store": os.environ[store],
        "model": Visit,
        "policy": Policy(near=near),
        "development": True,
        "csrf_exempt": ["/login"],
    }


def _starlette_request_session() -> Any:
    async def login(request: Request) -> Response:
        request.session.update(name=NAME, theme="light", cart=[])
        await session_of(request).sign_in(_new_user())
        return Response(status_code=204)

    async def me(request: Request) -> Response:
        return JSONResponse({"name": request.session["name"]})

    app = Starlette(routes=[Route("/login", login, methods=["POST"]), Route("/me", me)])
    app.add_middleware(RequestSessionMiddleware, store=os.environ["BENCH_REDIS"], prefix="dict", development=True)
    return app


def _starlette_starsessions() -> Any:
    from redis.asyncio import Redis
    from starsessions import SessionAutoloadMiddleware
    from starsessions import SessionMiddleware as StarSessions
    from starsessions.stores.redis import RedisStore

    async def login(request: Request) -> Response:
        request.session.update(uid=_new_user(), name=NAME, theme="light", cart=[])
        return Response(status_code=204)

    async def me(request: Request) -> Response:
        return JSONResponse({"name": request.session["name"]})

    app = Starlette(routes=[Route("/login", login, methods=["POST"]), Route("/me", me)])
    app.add_middleware(SessionAutoloadMiddleware)
    store = RedisStore(connection=Redis.from_url(os.environ["BENCH_REDIS"]))
    app.add_middleware(StarSessions, store=store, lifetime=3600, cookie_https_only=False)
    return app


def _fastapi() -> Any:
    from fastapi import FastAPI

    app = FastAPI()

    @app.post("/login", status_code=204)
    async def login() -> None: ...

    @app.get("/me")
    async def me() -> dict[str, str]:
        return {"name": NAME}

    return app


def _fastapi_keystead(near: str | None = None) -> Any:
    from fastapi import FastAPI
    from fastapi import Request as FastAPIRequest

    app = FastAPI()
    _add_sessions(app, near=near)

    @app.post("/login", status_code=204)
    async def login(request: FastAPIRequest) -> None:
        await session_of(request, Visit).start(Visit(uid=_new_user(), name=NAME))

    @app.get("/me")
    async def me(request: FastAPIRequest) -> dict[str, str]:
        return {"name": session_of(request, Visit).require().name}

    return app


def _litestar_keystead(near: str | None = None) -> Any:
    from litestar import Litestar, get, post
    from litestar import Request as LitestarRequest

    @post("/login", status_code=204)
    async def login(request: LitestarRequest[Any, Any, Any]) -> None:
        await session_of(request, Visit).start(Visit(uid=_new_user(), name=NAME))

    @get("/me")
    async def me(request: LitestarRequest[Any, Any, Any]) -> dict[str, str]:
        return {"name": session_of(request, Visit).require().name}

    return SessionMiddleware(Litestar(route_handlers=[login, me]), **_session_options(near=near))


def _litestar() -> Any:
    from litestar import Litestar, get, post

    @post("/login", status_code=204)
    async def login() -> None: ...

    @get("/me")
    async def me() -> dict[str, str]:
        return {"name": NAME}

    return Litestar(route_handlers=[login, me])


def _litestar_sessions() -> Any:
    from litestar import Litestar, get, post
    from litestar import Request as LitestarRequest
    from litestar.middleware.session.server_side import ServerSideSessionConfig
    from litestar.stores.redis import RedisStore

    @post("/login", status_code=204)
    async def login(request: LitestarRequest[Any, Any, Any]) -> None:
        request.set_session({"uid": f"user-{next(_users)}", "name": NAME, "theme": "light", "cart": []})

    @get("/me")
    async def me(request: LitestarRequest[Any, Any, Any]) -> dict[str, str]:
        return {"name": request.session["name"]}

    return Litestar(
        route_handlers=[login, me],
        middleware=[ServerSideSessionConfig().middleware],
        stores={"sessions": RedisStore.with_client(os.environ["BENCH_REDIS"])},
    )


APPS: dict[str, Callable[[], Any]] = {
    "starlette": _starlette,
    "starlette-by-hand": _starlette_by_hand,
    "starlette-keystead": _starlette_keystead,
    "starlette-keystead-near": lambda: _starlette_keystead(near="1s"),
    "starlette-keystead-sqlite": lambda: _starlette_keystead("BENCH_SQLITE"),
    "starlette-keystead-sqlite-near": lambda: _starlette_keystead("BENCH_SQLITE", near="1s"),
    "starlette-request-session": _starlette_request_session,
    "starlette-starsessions": _starlette_starsessions,
    "fastapi": _fastapi,
    "fastapi-keystead": _fastapi_keystead,
    "fastapi-keystead-near": lambda: _fastapi_keystead("1s"),
    "litestar": _litestar,
    "litestar-keystead": _litestar_keystead,
    "litestar-keystead-near": lambda: _litestar_keystead("1s"),
    "litestar-sessions": _litestar_sessions,
}


def make() -> Any:
    return APPS[os.environ["BENCH_APP"]]()
