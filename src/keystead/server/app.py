"""The application: it opens stores and kits, and mounts routes, health checks and pages."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from fastapi.responses import FileResponse, HTMLResponse
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.responses import Response
from starlette.routing import BaseRoute
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

import keystead
from keystead.errors import StoreUnavailable
from keystead.http.pages import PAGE_HEADERS
from keystead.kits.kit import Kit, Site
from keystead.schema.times import now_ms
from keystead.server.api_page import add_api_page
from keystead.server.direct_routes import DirectRoutes
from keystead.server.error_responses import ERROR_RESPONSES, add_error_responses
from keystead.server.guide_pages import add_guide
from keystead.server.health import NOT_OPEN, health_router, problem_of_tables, problems
from keystead.server.key_documents import FOLDER, add_key_documents
from keystead.server.kit_loading import keyspaces_of, load_kits, open_kit_tables, open_kits, open_stores, split_kits
from keystead.server.page_templates import add_pages, render
from keystead.server.preferences import add_preferences
from keystead.server.reference_page import add_reference_page
from keystead.server.request_layer import RequestLayer, RequestLimits
from keystead.server.route_table import KitHealth, hide_unreached, plain_routes, templates_by_endpoint
from keystead.server.scheduled_jobs import jobs_of, run_schedule
from keystead.server.settings import Settings
from keystead.server.start_page import TABLES, render_start_page
from keystead.stores import Store

if TYPE_CHECKING:
    from keystead.demo.demo_site import Demo
    from keystead.server.metrics import Metrics

_STATIC: Final = Path(__file__).parent / "pages" / "static"


class _Application(FastAPI):
    """FastAPI with one layer around its router, in place of a stack of middlewares."""

    layer: Callable[[ASGIApp], ASGIApp]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # FastAPI's own reads environment variables for its telemetry, anew for each request.
        if self.middleware_stack is None:
            self.middleware_stack = self.build_middleware_stack()
        scope["app"] = self
        await self.middleware_stack(scope, receive, send)

    def build_middleware_stack(self) -> ASGIApp:
        return self.layer(ExceptionMiddleware(AsyncExitStackMiddleware(self.router), handlers=self.exception_handlers))


@lru_cache(maxsize=8)
def _routes_of(kits: tuple[tuple[str, Callable[[], APIRouter]], ...]) -> Sequence[BaseRoute]:
    """The routes of each kit, in order, shared by all applications with these kits.

    Routes do not depend on settings, and building them is most of the cost of `create_app`.
    """
    routers = [router() for _, router in kits]
    hide_unreached(routers)
    included = APIRouter()
    for (name, _), router in zip(kits, routers, strict=True):
        included.include_router(
            router, tags=[name], responses=ERROR_RESPONSES, dependencies=[Depends(_refuse_unopened)]
        )
    return included.routes


def create_app(settings: Settings, kits: Sequence[Kit] | None = None, *, now_ms: Callable[[], int] = now_ms) -> FastAPI:
    """Create the application with these kits, or with those that the settings name and configure.

    Stores and kits are opened at startup and closed at shutdown; errors of a store pass through the lifespan unchanged.
    Raises `WrongSettings` if a kit cannot be found or its settings are invalid. `now_ms` is a clock for tests.
    """
    running, off = split_kits(settings, load_kits(settings)) if kits is None else (list(kits), {})
    bodies: dict[str, int] = {}
    shared: dict[str, Sequence[str]] = {}
    streams = [path for kit in running for path in kit.streams]
    for kit in running:
        own = settings.of(kit)
        bodies |= kit.bodies(own)
        shared |= kit.shared(own)
    # Imported here, in workers only: see the module.
    from keystead.server.metrics import Metrics

    metrics = Metrics(settings.mode) if settings.metrics else None
    site = site_of(settings, now_ms, metrics)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with open_stores(settings, metrics) as stores, open_kit_tables(running, settings) as tables:
            app.state.stores = stores
            app.state.tables = tables
            opened = dataclasses.replace(site, tables=tables, keyspaces=keyspaces_of(running))
            async with open_kits(running, stores, settings, opened) as services:
                app.state.kits = services
                app.state.opened = True
                try:
                    async with run_schedule(
                        jobs_of(running, services), stores, settings, now_ms, metrics
                    ) as app.state.schedule:
                        yield
                finally:
                    app.state.schedule = None
                    app.state.opened = False
                    if metrics is not None:
                        metrics.write()

    app = _Application(
        title="Keystead",
        version=keystead.__version__,
        description="Key documents that run. Every error response has the shape of `ErrorAnswer`.",
        lifespan=lifespan,
        # FastAPI's own pages load scripts from another host; ours is in `api_page`.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.layer = lambda inner: RequestLayer(
        inner,
        RequestLimits(settings.request_timeout / 1000, settings.max_body, bodies, settings.requests_at_once, streams),
        routes=DirectRoutes(app),
        metrics=metrics,
        proxies=settings.forwarded_allow,
        shared=shared,
        https_only=site.secure and not settings.development,
    )
    app.state.settings = settings
    app.state.site = site
    app.state.running = running
    for kit in running:
        add_pages(kit.name, kit.folder / "pages")
    app.state.off = off
    app.state.stores = {}
    app.state.tables = None
    app.state.kits = {}
    app.state.opened = False
    app.state.schedule = None
    app.state.metrics = metrics

    add_error_responses(app)
    app.include_router(health_router())
    if metrics is not None:
        _add_metrics(app, metrics.page)
    ordered = sorted(running, key=lambda kit: not kit.leads)
    of_kits = _routes_of(tuple((kit.name, kit.router) for kit in ordered))
    app.router.routes.append(KitHealth(plain_routes(of_kits)))
    app.state.route_counts = {
        kit.name: len({route.path for route in plain_routes([one])}) for kit, one in zip(ordered, of_kits, strict=True)
    }
    app.router.routes.extend(of_kits)
    demo = _demo(settings, site)
    if demo is not None:
        add_pages("keystead.demo", demo.pages)
        demo.add_routes(app, _default_store)
    add_api_page(app)
    if settings.development:
        add_key_documents(app)
        add_reference_page(app)
        add_guide(app)
    add_preferences(app)
    app.add_api_route("/", _start_page, methods=["GET"], include_in_schema=False)
    _add_assets(app)
    app.state.templates = templates_by_endpoint(app)
    return app


def site_of(settings: Settings, now_ms: Callable[[], int] = now_ms, metrics: Metrics | None = None) -> Site:
    """The site that kits see with these settings."""
    site = Site(
        settings.origin, settings.internal_url, settings.development, now_ms, render, language=settings.language
    )
    if metrics is not None:
        site = dataclasses.replace(site, count=metrics.count_event)
    demo = _demo(settings, site)
    return site if demo is None else demo.site


def _demo(settings: Settings, site: Site) -> Demo | None:
    """The demo, only in development and if no other machine can reach it: anyone can sign in as anyone.
    Production never imports the package.
    """
    if not settings.development or not settings.is_local:
        return None
    from keystead.demo.demo_site import Demo

    return Demo(site, settings.ring)


def _default_store(request: Request) -> Store:
    store: Store = request.app.state.stores["default"]
    return store


async def _refuse_unopened(request: Request) -> None:
    """Kit routes need an open service."""
    if not request.app.state.opened:
        raise StoreUnavailable(NOT_OPEN)


async def _start_page(request: Request) -> HTMLResponse:
    state = request.app.state
    found = await problems(state, list(state.settings.store_urls))
    if state.tables is not None:
        found[TABLES] = await problem_of_tables(state)
    return HTMLResponse(render_start_page(request.scope, found), headers=PAGE_HEADERS)


def _add_assets(app: FastAPI) -> None:
    """Styles and scripts: of the kits, of Swagger UI, of key documents, and of all pages."""
    for kit in app.state.running:
        if (kit.folder / "assets").is_dir():
            app.mount(f"/assets/{kit.name}", StaticFiles(directory=kit.folder / "assets"), name=f"assets of {kit.name}")
    # Only the Swagger UI files of this package are used.
    app.mount("/static/swagger-ui", StaticFiles(packages=[("fastapi_swagger", "resources")]), name="swagger-ui")
    for name in ("base.css", "document.css"):  # of key documents, which also exist without a server
        app.add_api_route(f"/static/{name}", _style(name), methods=["GET"], include_in_schema=False)
    app.mount("/static", StaticFiles(directory=_STATIC), name="static")


def _style(name: str) -> Callable[[], Awaitable[FileResponse]]:
    async def style() -> FileResponse:
        return FileResponse(FOLDER / "pages" / name)

    return style


def _add_metrics(app: FastAPI, page: Callable[[], bytes]) -> None:
    from keystead.server.metrics import CONTENT_TYPE

    async def metrics() -> Response:
        """The metrics of all workers, in the Prometheus text format."""
        return Response(page(), media_type=CONTENT_TYPE, headers={"cache-control": "no-store"})

    app.add_api_route(
        "/metrics",
        metrics,
        methods=["GET"],
        operation_id="metrics",
        tags=["server"],
        summary="Metrics for Prometheus",
        response_class=Response,
        responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}, "description": "The metrics."}},
    )
