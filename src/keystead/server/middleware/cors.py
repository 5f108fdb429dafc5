"""Cross-origin resource sharing (CORS) for the paths that kits share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from starlette.datastructures import MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# Secrets are sent in headers and bodies, never in cookies, which a browser would add to forged requests.
ALLOWED_HEADERS: Final = ("authorization", "content-type", "x-owner-token", "x-edit-token")
TOLD_HEADERS: Final = ("retry-after", "x-request-id")
_METHODS: Final = ("GET", "HEAD", "POST")
_MAX_AGE_S: Final = 7200  # browsers remember a preflight for two hours at most


class Cors:
    """Lets pages of the given origins use the given paths, without cookies. All other paths stay same-origin.

    A path that ends in a slash includes everything below it. `*` is any origin; a path without origins stays
    same-origin. Errors carry the same headers as successes, so that pages can read them.

    With `*`, the response does not depend on the request's origin, so shared caches may store it. Otherwise it has
    `Vary: Origin`.
    """

    def __init__(self, app: ASGIApp, shared: Mapping[str, Sequence[str]]) -> None:
        self._app = app
        by_path = {path: _Shared(app, origins) for path, origins in shared.items() if origins}
        self._exact = {path: inner for path, inner in by_path.items() if not path.endswith("/")}
        self._below = {path: inner for path, inner in by_path.items() if path.endswith("/")}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._find_app(scope["path"]) if scope["type"] == "http" else None
        if found is None:
            await self._app(scope, receive, send)
            return
        path, inner = found
        if scope["method"] == "OPTIONS":  # no route answers it, so none leaves its name for the log
            scope["keystead.template"] = path
        await inner(scope, receive, send)

    def _find_app(self, path: str) -> tuple[str, ASGIApp] | None:
        exact = self._exact.get(path)
        if exact is not None:
            return path, exact
        return next((found for found in self._below.items() if path.startswith(found[0])), None)


class _Shared:
    """One path, or all below it, with the origins that may use it."""

    def __init__(self, app: ASGIApp, origins: Sequence[str]) -> None:
        self._app = app
        # Images and scripts are fetched without CORS: this lets other sites embed them.
        self._always = {"cross-origin-resource-policy": "cross-origin"}
        self._is_for_all = "*" in origins
        if self._is_for_all:
            self._always |= {
                "access-control-allow-origin": "*",
                "access-control-expose-headers": ", ".join(TOLD_HEADERS),
            }
        self._by_origin = CORSMiddleware(
            app,
            allow_origins=origins,
            allow_methods=_METHODS,
            allow_headers=ALLOWED_HEADERS,
            expose_headers=TOLD_HEADERS,
            max_age=_MAX_AGE_S,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_policy(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(self._always)
            await send(message)

        # Starlette sends `*` only to requests with an origin, and adds `Vary: Origin`.
        is_alike = self._is_for_all and scope["method"] != "OPTIONS"
        await (self._app if is_alike else self._by_origin)(scope, receive, send_with_policy)
