"""Fast routing: endpoints are found in a dictionary and called directly.

It only handles requests that it can answer exactly as FastAPI would; for all others `find` returns None, and the
application's router takes over.
"""

from __future__ import annotations

from collections.abc import Iterator
from re import Pattern
from typing import Any, Final, NamedTuple

from fastapi import FastAPI
from fastapi.routing import RouteContext, iter_route_contexts
from starlette.routing import Mount
from starlette.types import Scope

from keystead.http.direct_calls import DirectCall, direct_call

_ANY_METHOD: Final = frozenset({"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_HEAD_PARTS: Final = 3  # of a path: the empty text before its first slash, and two names


class DirectRoute:
    """A route and how to call it. `call` is None if FastAPI must call it."""

    def __init__(self, route: RouteContext) -> None:
        self._route = route
        self.template: str = route.path or ""
        self.regex: Pattern[str] = route.path_regex
        self.methods = _ANY_METHOD if isinstance(route.original_route, Mount) else frozenset(route.methods or ())
        self._call: DirectCall | None = None
        self._is_compiled = False

    @property
    def call(self) -> DirectCall | None:
        if not self._is_compiled:
            self._call, self._is_compiled = direct_call(self._route), True
        return self._call

    def scope_of(self, path_params: dict[str, Any]) -> Scope:
        route = self._route
        convertors = route.param_convertors
        return {
            "route": route.original_route,
            "endpoint": route.endpoint,
            "path_params": {name: convertors[name].convert(value) for name, value in path_params.items()},
            "keystead.template": self.template,
        }


class FoundRoute(NamedTuple):
    call: DirectCall
    scope: Scope  # what it adds to the scope of the request


class DirectRoutes:
    """The routes of an application, in order: the first match wins."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._routes: list[DirectRoute] | None = None
        self._paths: set[str] = set()
        self._exact: dict[tuple[str, str], FoundRoute | None] = {}
        self._heads: dict[str, list[DirectRoute] | None] = {}

    def find(self, scope: Scope) -> FoundRoute | None:
        """How to call the route of a request; None if the router must find it."""
        if self._app.dependency_overrides:  # FastAPI's means for tests
            return None
        if self._routes is None:
            self._routes = list(self._read())
        method, path = scope["method"], scope["path"]
        try:
            return self._exact[method, path]
        except KeyError:
            pass
        if scope.get("root_path"):
            return None
        if path in self._paths and method in _ANY_METHOD:
            found = self._exact[method, path] = self._search(self._routes, method, path)
            return found
        head = _head_of(path)
        if head not in self._heads:
            return None
        candidates = self._heads[head]
        if candidates is None:
            candidates = [one for one in self._routes if _can_match(one.template, head)]
            self._heads[head] = candidates
        return self._search(candidates, method, path)

    def _search(self, routes: list[DirectRoute], method: str, path: str) -> FoundRoute | None:
        for route in routes:
            if method in route.methods and (match := route.regex.match(path)):
                call = route.call
                return None if call is None else FoundRoute(call, route.scope_of(match.groupdict()))
        return None

    def _read(self) -> Iterator[DirectRoute]:
        for context in iter_route_contexts(self._app.routes):
            if getattr(context, "path_regex", None) is None:
                continue  # `KitHealth`, which the request layer leaves to the router
            route = DirectRoute(context)
            if "{" not in route.template:
                self._paths.add(route.template)
            elif "{" not in (head := _head_of(route.template)):
                self._heads[head] = None
            yield route


def _head_of(path: str) -> str:
    return "/".join(path.split("/", _HEAD_PARTS)[:_HEAD_PARTS])


def _can_match(template: str, head: str) -> bool:
    """Whether a route with this template may match a path with this beginning; True if unsure."""
    literal = template.partition("{")[0]
    return literal.startswith(head) or head.startswith(literal) or not literal.strip("/")
