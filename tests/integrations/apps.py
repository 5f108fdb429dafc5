"""One application in three frameworks, with the middleware, served as `tests.integrations.apps:make`."""

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from fastapi import Depends, FastAPI
from litestar import Litestar, get, patch, post
from litestar import Request as LitestarRequest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket

from keystead.errors import CapReached
from keystead.integrations.asgi import BrowserSession, SessionMiddleware, require_session, session_keys, session_of
from keystead.parts.sessions import Policy, SessionRecord


class Visit(SessionRecord):
    name: str
    theme: str = "light"
    language: str = "en"
    visits: int = 0


VisitKeys = session_keys(Visit)

Session = BrowserSession[Visit]
Answer = dict[str, Any]
Signed = Annotated[Session, Depends(require_session(Visit))]
Asked = LitestarRequest[Any, Any, Any]


def describe_session(session: Session) -> Answer:
    """All readable attributes of a session."""
    data = session.data
    return {
        "signed_in": bool(session),
        "user": session.user,
        "id": session.id,
        "gone": session.gone,
        "theme": data.theme if data else None,
        "language": data.language if data else None,
        "visits": data.visits if data else None,
    }


# --- Starlette: everything ---------------------------------------------------------------------------------


class Gate:
    """Pauses a request in its handler until the test resumes it."""

    def __init__(self) -> None:
        self.waiting = 0
        self.opened = asyncio.Event()

    async def passed(self) -> None:
        self.waiting += 1
        await self.opened.wait()


gate = Gate()


async def login(session: Session, body: Answer) -> Answer:
    try:
        await session.start(Visit(uid=body["user"], name=body["user"].title()))
    except CapReached:
        return {"refused": True}
    return describe_session(session)


async def me(session: Session, body: Answer) -> Answer:
    return describe_session(session)


async def update(session: Session, body: Answer) -> Answer:
    fields = {name: value for name, value in body.items() if name not in ("csrf", "gated")}
    if body.get("gated"):
        await gate.passed()
    return {"updated": await session.update(**fields) is not None, **describe_session(session)}


async def count(session: Session, body: Answer) -> Answer:
    changed = await session.change(lambda visit: visit.model_copy(update={"visits": visit.visits + 1}))
    return {"visits": changed and changed.visits}


async def rotate(session: Session, body: Answer) -> Answer:
    if body.get("gated"):
        await gate.passed()
    return {"rotated": await session.rotate(), **describe_session(session)}


async def logout(session: Session, body: Answer) -> Answer:
    return {"ended": await session.end(), **describe_session(session)}


async def end_one(session: Session, body: Answer) -> Answer:
    return {"ended": await session.end_one(body["id"])}


async def end_others(session: Session, body: Answer) -> Answer:
    return {"ended": await session.end_others()}


async def end_all(session: Session, body: Answer) -> Answer:
    return {"ended": await session.end_all()}


async def everywhere(session: Session, body: Answer) -> Answer:
    return {"ids": [live.id for live in await session.all()]}


async def csrf(session: Session, body: Answer) -> Answer:
    return {"token": session.csrf_token}


async def private(session: Session, body: Answer) -> Answer:
    return {"name": session.require().name}


async def caught(session: Session, body: Answer) -> Answer:
    """Uses the store, and handles an outage."""
    try:
        await session.update(theme="dark")
    except Exception as error:
        return {"caught": type(error).__name__}
    return {"caught": None}


async def boom(session: Session, body: Answer) -> Answer:
    raise ValueError("a fault of the application")


def route(path: str, do: Callable[[Session, Answer], Awaitable[Answer]], method: str = "POST") -> Route:
    async def handler(request: Request) -> Response:
        body = await request.body()
        asked = json.loads(body) if body.startswith(b"{") else {}
        return JSONResponse(await do(session_of(request, Visit), asked))

    return Route(path, handler, methods=[method])


async def public(request: Request) -> Response:
    return JSONResponse({"public": True})


async def static(request: Request) -> Response:
    return JSONResponse({"has_session": hasattr(request.state, "session")})


async def cached(request: Request) -> Response:
    """Sets a cacheable Cache-Control, and with `?csrf` a cookie."""
    if "csrf" in request.query_params:
        assert session_of(request, Visit).csrf_token
    return JSONResponse(describe_session(session_of(request, Visit)), headers={"cache-control": "private, max-age=5"})


async def echo(request: Request) -> Response:
    return Response(await request.body(), media_type="application/octet-stream")


async def streamed(request: Request) -> Response:
    """Tries to sign in after the response has begun."""
    session = session_of(request, Visit)

    async def parts() -> Any:
        yield b"begun "
        try:
            await session.start(Visit(uid="late", name="Late"))
        except RuntimeError as error:
            yield str(error).encode()

    return StreamingResponse(parts())


async def late(request: Request) -> Response:
    """Reads the session after the response has begun."""
    session = session_of(request, Visit)

    async def parts() -> Any:
        yield b"hello "
        yield (session.user or "stranger").encode()

    return StreamingResponse(parts())


async def not_modified(request: Request) -> Response:
    return Response(status_code=304)


async def gate_status(request: Request) -> Response:
    return JSONResponse({"waiting": gate.waiting})


async def open_gate(request: Request) -> Response:
    global gate
    gate.opened.set()
    gate = Gate()
    return JSONResponse({})


async def socket(websocket: WebSocket) -> None:
    """Sends the user, and again after each message."""
    session = session_of(websocket, Visit)
    await websocket.accept()
    await websocket.send_json({"user": session.user})
    async for _ in websocket.iter_text():
        await session.reread()
        try:
            await session.rotate()
            problem = ""
        except RuntimeError as error:
            problem = str(error)
        await websocket.send_json({"user": session.user, "problem": problem})


def starlette(**options: Any) -> Any:
    app = Starlette(
        routes=[
            route("/login", login),
            route("/me", me, "GET"),
            route("/update", update, "PATCH"),
            route("/count", count),
            route("/rotate", rotate),
            route("/logout", logout),
            route("/end-one", end_one),
            route("/end-others", end_others),
            route("/end-all", end_all),
            route("/sessions", everywhere, "GET"),
            route("/csrf", csrf, "GET"),
            route("/private", private, "GET"),
            route("/caught", caught),
            route("/boom", boom, "GET"),
            route("/hook/github", me),
            Route("/public", public),
            Route("/cached", cached),
            Route("/static/app.js", static),
            Route("/echo", echo, methods=["POST", "PUT", "DELETE"]),
            Route("/streamed", streamed),
            Route("/late", late),
            Route("/not-modified", not_modified),
            Route("/static/gate", gate_status),
            Route("/static/open-gate", open_gate),
            WebSocketRoute("/socket", socket),
        ]
    )
    app.add_middleware(SessionMiddleware, **options)
    return app


# --- FastAPI, Litestar, and an application of no framework ---------------------------------------------------


def fastapi(**options: Any) -> Any:
    app = FastAPI()
    app.add_middleware(SessionMiddleware, **options)

    @app.post("/login")
    async def sign_in(request: Request, body: Answer) -> Answer:
        return await login(session_of(request, Visit), body)

    @app.get("/me")
    async def read(request: Request) -> Answer:
        return describe_session(session_of(request, Visit))

    @app.get("/private")
    def private_thread(session: Signed) -> Answer:  # in a thread, where nothing can be awaited
        return {"name": session.require().name}

    @app.patch("/update")
    async def change(session: Signed, body: Answer) -> Answer:
        return await update(session, body)

    @app.post("/logout")
    async def sign_out(request: Request) -> Answer:
        return await logout(session_of(request, Visit), {})

    @app.get("/csrf")
    async def token(request: Request) -> Answer:
        return {"token": session_of(request, Visit).csrf_token}

    return app


def litestar(**options: Any) -> Any:
    @post("/login", status_code=200)
    async def sign_in(request: Asked, data: Answer) -> Answer:
        return await login(session_of(request, Visit), data)

    @get("/me")
    async def read(request: Asked) -> Answer:
        return describe_session(request.state.session)

    @get("/private")
    async def private_route(request: Asked) -> Answer:
        return {"name": session_of(request, Visit).require().name}

    @patch("/update")
    async def change(request: Asked, data: Answer) -> Answer:
        return await update(session_of(request, Visit), data)

    @post("/logout", status_code=200)
    async def sign_out(request: Asked) -> Answer:
        return await logout(session_of(request, Visit), {})

    @get("/csrf")
    async def token(request: Asked) -> Answer:
        return {"token": session_of(request, Visit).csrf_token}

    return SessionMiddleware(Litestar([sign_in, read, private_route, change, sign_out, token]), **options)


def bare(**options: Any) -> Any:
    """An application that supports only http; it returns its store and how that was opened."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert scope["type"] == "http"
        body = json.dumps(describe_session(scope["state"]["session"])).encode()
        length = str(len(body)).encode()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", length)]})
        await send({"type": "http.response.body", "body": body})

    return SessionMiddleware(app, **options)


def make() -> Any:
    """The application selected by the environment."""
    logging.basicConfig(level=logging.DEBUG, format="%(name)s %(levelname)s %(message)s %(exc_info)s")
    options = json.loads(os.environ["TEST_OPTIONS"])
    policy = Policy(**options.pop("policy", {}))
    return globals()[os.environ["TEST_APP"]](model=Visit, policy=policy, **options)
