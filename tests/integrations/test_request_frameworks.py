"""`request.session` in Starlette, FastAPI and Litestar: their own middleware is replaced, and nothing else."""

from dataclasses import replace
from typing import Annotated, Any

import litestar
import pytest
from fastapi import Depends, FastAPI, HTTPException
from fastapi import Request as FastApiRequest
from litestar import Litestar, get
from litestar.exceptions import NotAuthorizedException
from litestar.middleware.session.server_side import ServerSideSessionConfig
from litestar.testing import TestClient as LitestarClient
from starlette.applications import Starlette
from starlette.middleware.sessions import SessionMiddleware as StarletteSessions
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from keystead import connect
from keystead.integrations.asgi import LitestarSessions, RequestSession, RequestSessionMiddleware, session_of
from keystead.parts.datasessions import ANONYMOUS, Policy
from tests.integrations.request_apps import app_with, browser_of

URL = "https://testserver.local"


class Profile:
    """What a handler does with the session of its request, step by step. Each framework calls these."""

    def visit(self, session: Any) -> Any:
        session["visits"] = session.get("visits", 0) + 1
        session.setdefault("pages", []).append("start")
        return session

    def change(self, session: Any) -> Any:
        session.update(theme="dark", gone=1)
        session["pages"].append({"name": "change"})
        return session.pop("gone"), session.pop("gone", None), "gone" in session

    def leave(self, session: Any) -> Any:
        session.clear()


PROFILE = Profile()
FIRST = {"visits": 1, "pages": ["start"]}
CHANGED = {"visits": 1, "pages": ["start", {"name": "change"}], "theme": "dark"}


def starlette_app(own: bool, **options: Any) -> Any:
    async def visit(request: Request) -> Response:
        return JSONResponse(PROFILE.visit(request.session))

    async def change(request: Request) -> Response:
        return JSONResponse(PROFILE.change(request.session))

    async def read(request: Request) -> Response:
        return JSONResponse(request.session)

    def leave(request: Request) -> Response:  # in a thread
        PROFILE.leave(request.session)
        return Response()

    app = Starlette(routes=[Route(f"/{one.__name__}", one) for one in (visit, change, read, leave)])
    if own:
        app.add_middleware(StarletteSessions, secret_key="key", https_only=True)
    else:
        app.add_middleware(RequestSessionMiddleware, **options)
    return TestClient(app, base_url=URL)


def fastapi_app(own: bool, **options: Any) -> Any:
    app = FastAPI()
    if own:
        app.add_middleware(StarletteSessions, secret_key="key", https_only=True)
    else:
        app.add_middleware(RequestSessionMiddleware, **options)

    def pages(request: FastApiRequest) -> Any:
        return request.session

    @app.get("/visit")
    async def visit(session: Annotated[Any, Depends(pages)]) -> Any:
        return PROFILE.visit(session)

    @app.get("/change")
    def change(session: Annotated[Any, Depends(pages)]) -> Any:
        return PROFILE.change(session)

    @app.get("/read")
    async def read(request: FastApiRequest) -> Any:
        return request.session

    @app.get("/leave")
    async def leave(request: FastApiRequest) -> None:
        PROFILE.leave(request.session)

    return TestClient(app, base_url=URL)


LitestarRequest = litestar.Request[Any, Any, Any]


@get("/visit")
async def litestar_visit(request: LitestarRequest) -> Any:
    return dict(PROFILE.visit(request.session))


@get("/change")
async def litestar_change(request: LitestarRequest) -> Any:
    return PROFILE.change(request.session)


@get("/read")
async def litestar_read(request: LitestarRequest) -> Any:
    return request.session


@get("/leave")
async def litestar_leave(request: LitestarRequest) -> None:
    request.clear_session()


@get("/replace")
async def litestar_replace(request: LitestarRequest) -> None:
    request.set_session({"pages": [], "new": request.session.get("visits")})


@get("/forbidden")
async def litestar_forbidden(request: LitestarRequest) -> None:
    request.session["refused"] = True
    raise NotAuthorizedException


HANDLERS = [litestar_visit, litestar_change, litestar_read, litestar_leave, litestar_replace, litestar_forbidden]


def litestar_app(own: bool, **options: Any) -> Any:
    sessions = ServerSideSessionConfig(secure=True) if own else LitestarSessions(**options)
    lifespan = [sessions.lifespan] if isinstance(sessions, LitestarSessions) else []
    app = Litestar(HANDLERS, middleware=[sessions.middleware], lifespan=lifespan, logging_config=None)
    return LitestarClient(app, base_url=URL)


def litestar_around(own: bool, **options: Any) -> Any:
    if own:
        return litestar_app(own)
    return TestClient(RequestSessionMiddleware(Litestar(HANDLERS, logging_config=None), **options), base_url=URL)


@pytest.mark.parametrize("sessions", ["own", "ours", "ours near"])
@pytest.mark.parametrize("make", [starlette_app, fastapi_app, litestar_app, litestar_around])
def test_the_same_application_runs_with_its_own_middleware_and_with_ours(make: Any, sessions: str) -> None:
    near = "1s" if sessions == "ours near" else None
    options = {"policy": Policy(near=near), "anonymous": replace(ANONYMOUS, near=near)}
    with make(sessions == "own", store="memory://", **options) as browser:
        assert browser.get("/read").json() == {}
        assert browser.get("/visit").json() == FIRST
        assert browser.get("/change").json() == [1, None, False]
        assert browser.get("/read").json() == CHANGED
        assert browser.get("/visit").json()["visits"] == 2
        assert browser.get("/leave").status_code == 200
        assert browser.get("/read").json() == {}
        if make in (litestar_app, litestar_around):
            browser.get("/visit")
            assert browser.get("/forbidden").status_code == 401
            assert browser.get("/read").json() == FIRST | {"refused": True}
            browser.get("/replace")
            assert browser.get("/read").json() == {"pages": [], "new": 1}


def test_an_error_that_a_handler_raises_for_the_client_is_a_response_like_others() -> None:
    app = FastAPI()
    app.add_middleware(RequestSessionMiddleware, store="memory://")

    @app.get("/refused")
    async def refused(request: FastApiRequest) -> None:
        request.session["tries"] = request.session.get("tries", 0) + 1
        raise HTTPException(403, f"try {request.session['tries']}")

    with TestClient(app, base_url=URL) as browser:
        assert [browser.get("/refused").json()["detail"] for _ in range(2)] == ["try 1", "try 2"]


async def test_with_csrf_a_request_without_a_token_is_refused_and_in_development_told_what_to_send() -> None:
    async def token(session: RequestSession, request: Request) -> Any:
        return {"csrf": session_of(request).csrf_token}

    async with connect("memory://") as store:
        for development, name in ((False, "__Host-csrf"), (True, "csrf")):
            app = app_with({"token": token}, store=store, csrf=True, development=development)
            async with browser_of(app) as browser:
                refused = await browser.post("/put?n=1")
                assert (refused.status_code, refused.json()["code"]) == (403, "CSRF")
                told = f"the value of the cookie {name} in the header x-csrf-token or the field csrf"
                assert (told in refused.json()["error"]) is development
                sent = {"x-csrf-token": (await browser.get("/token")).json()["csrf"]}
                assert (await browser.post("/put?n=1", headers=sent)).status_code == 200
                foreign = await browser.post("/put?n=2", headers=sent | {"origin": "https://evil.example"})
                assert foreign.status_code == 403
                assert ("The header Origin" in foreign.json()["error"]) is development
                assert (await browser.get("/read")).json()["data"] == {"n": "1"}
