"""The application: it opens the store, answers `/healthz` and shows the start page."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Final, Literal

from fastapi import Depends, FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import BaseModel
from starlette.staticfiles import StaticFiles

import keystead
from keystead import KeysteadError
from keystead.server.middleware import SecurityHeaders
from keystead.server.not_found import answer_not_found
from keystead.server.settings import Settings
from keystead.server.start_page import render_start_page
from keystead.stores.base import Store

HEALTH_TIMEOUT_SECONDS: Final = 3.0
_STATIC = Path(__file__).parent / "pages" / "static"


class Health(BaseModel):
    """What `/healthz` answers. `store` is "ok", or one sentence on why it does not answer."""

    status: Literal["ok", "unavailable"]
    store: str


def create_app(settings: Settings) -> FastAPI:
    """The application for these settings.

    The store is opened when the application starts and closed when it ends; an error in opening it is raised
    from the application's lifespan as the store raised it.
    """

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with keystead.connect(settings.store) as store:
            app.state.store = store
            yield

    # FastAPI's own API pages load scripts from another host, so they are off.
    app = FastAPI(
        title="Keystead",
        version=keystead.__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.add_middleware(SecurityHeaders)
    app.mount("/static", StaticFiles(directory=_STATIC), name="static")
    app.add_exception_handler(404, answer_not_found)
    app.add_api_route("/", _start_page, methods=["GET", "HEAD"], include_in_schema=False)
    app.add_api_route(
        "/healthz",
        _healthz,
        methods=["GET"],
        operation_id="healthz",
        summary="Is the store answering?",
        response_model=Health,
        response_description="The store answers.",
        responses={503: {"model": Health, "description": "The store does not answer; `store` says why."}},
    )
    # Apart, for an operation of the OpenAPI document has one method and an id of its own.
    app.add_api_route("/healthz", _healthz, methods=["HEAD"], include_in_schema=False)
    return app


def _store(request: Request) -> Store:
    store: Store = request.app.state.store
    return store


OpenStore = Annotated[Store, Depends(_store)]


async def _start_page(request: Request, store: OpenStore) -> HTMLResponse:
    problem = await _problem_of(store)
    return HTMLResponse(render_start_page(store, problem, str(request.base_url)), headers={"cache-control": "no-store"})


async def _healthz(store: OpenStore) -> JSONResponse:
    """200 when the store answers a cheap command in time, 503 with one sentence otherwise."""
    problem = await _problem_of(store)
    status, health = (200, Health(status="ok", store="ok"))
    if problem:
        status, health = (503, Health(status="unavailable", store=problem))
    return JSONResponse(health.model_dump(), status_code=status, headers={"cache-control": "no-store"})


async def _problem_of(store: Store) -> str | None:
    """Why the store does not answer, in one sentence without secrets; None when it does."""
    try:
        async with asyncio.timeout(HEALTH_TIMEOUT_SECONDS):
            await store.run([("TIME",)])
    except KeysteadError as error:
        return str(error)
    except TimeoutError:
        return f"The store did not answer within {HEALTH_TIMEOUT_SECONDS:g} seconds."
    return None
