"""Lookups in the routes of the application: by template, never by raw path."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from fastapi import APIRouter, FastAPI
from starlette.datastructures import URLPath
from starlette.responses import JSONResponse
from starlette.routing import BaseRoute, Match, Mount, NoMatchFound, Route
from starlette.types import Receive, Scope, Send

UNKNOWN: Final = "(unknown)"  # the template of all paths without a route
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")


def template_of(scope: Scope) -> str:
    """The template of the route of a request, such as `/api/auth/{provider}/start`; or `(unknown)`."""
    found = scope.get("keystead.template") or getattr(scope.get("route"), "path", None)
    if not isinstance(found, str) or isinstance(scope.get("route"), Mount):
        # A plain route puts only its endpoint into the scope.
        templates: Mapping[Any, str] = getattr(scope["app"].state, "templates", {})
        found = templates.get(scope.get("endpoint"), UNKNOWN)
    return found


def templates_by_endpoint(app: FastAPI) -> dict[Any, str]:
    """For `app.state.templates`, which `template_of` reads."""
    found: dict[Any, str] = {route.endpoint: route.path for route in plain_routes(app.routes)}
    return found | {mount.app: f"{mount.path}/{{path}}" for mount in app.routes if isinstance(mount, Mount)}


def method_of(scope: Scope) -> str:
    """The method; unknown ones share one label, because clients can invent any number of them."""
    method = scope.get("method", "")
    return method if method in METHODS else "OTHER"


def plain_routes(routes: Iterable[BaseRoute]) -> Iterator[Route]:
    """All routes with a path and methods, including those of included routers."""
    for route in routes:
        inner = getattr(route, "original_router", None)
        if isinstance(inner, APIRouter):
            yield from plain_routes(inner.routes)
        elif isinstance(route, Route):
            yield route


def hide_unreached(routers: Iterable[APIRouter]) -> None:
    """Omit routes from the OpenAPI document that an earlier router shadows."""
    reached: set[tuple[str, str]] = set()
    for router in routers:
        for route in plain_routes(router.routes):
            own = {(route.path, method) for method in route.methods or ()}
            if own and own <= reached:
                route.include_in_schema = False
            reached |= own


def allowed_methods(app: FastAPI, scope: Scope) -> list[str]:
    """The methods that this path allows, over all routes that match it."""
    found = {"OPTIONS"}
    for route in plain_routes(app.routes):
        if route.path_regex.match(scope["path"]):
            found |= route.methods or set()
    if "GET" in found:
        found.add("HEAD")
    return [method for method in METHODS if method in found]


class KitHealth(BaseRoute):
    """`GET …?health` on the path of any kit route: 200 with the template, without authentication.

    It comes before the kit routes, so it works for all of them, even without a GET method.
    """

    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes = tuple(routes)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] == "http" and scope["method"] in ("GET", "HEAD") and asks_for_health(scope["query_string"]):
            for route in self._routes:
                if route.path_regex.match(scope["path"]):
                    return Match.FULL, {"endpoint": self, "keystead.template": route.path}
        return Match.NONE, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = {"ok": True, "route": scope["keystead.template"]}
        await JSONResponse(body, headers={"cache-control": "no-store"})(scope, receive, send)

    def url_path_for(self, name: str, /, **path_params: Any) -> URLPath:
        raise NoMatchFound(name, path_params)


def asks_for_health(query: bytes) -> bool:
    return b"health" in query and any(part.partition(b"=")[0] == b"health" for part in query.split(b"&"))
