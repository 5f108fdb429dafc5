"""Default response headers: security headers, and CORS for shared paths."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final, TypeAlias

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp

from keystead.http.pages import content_policy

Header: TypeAlias = tuple[bytes, bytes]

SECURITY_HEADERS: Final = {
    "content-security-policy": content_policy(),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
# For a year, browsers use https for this host even if the user types http.
HSTS: Final = {"strict-transport-security": "max-age=31536000"}

# Other sites send secrets in headers and bodies, never in cookies, which browsers would add to forged requests.
ALLOWED_HEADERS: Final = ("authorization", "content-type", "x-owner-token", "x-edit-token")
EXPOSED_HEADERS: Final = ("retry-after", "x-request-id")
_METHODS: Final = ("GET", "HEAD", "POST")
_MAX_AGE_S: Final = 7200  # browsers cache a preflight for two hours at most


class DefaultHeaders:
    """Headers for every response, encoded once. Headers set by a route win."""

    def __init__(self, headers: Mapping[str, str]) -> None:
        self._pairs = tuple((name.encode(), value.encode("latin-1")) for name, value in headers.items())
        self._names = frozenset(name for name, _ in self._pairs)

    def add(self, name: str, value: str) -> None:
        """Add a header to all responses from now on."""
        self._pairs = (*self._pairs, (name.encode(), value.encode("latin-1")))
        self._names |= {name.encode()}

    def missing_from(self, names: Collection[bytes]) -> Sequence[Header]:
        if self._names.isdisjoint(names):
            return self._pairs
        return [pair for pair in self._pairs if pair[0] not in names]


class CorsPath:
    """CORS for one path, or for everything below it.

    defaults    the headers of its responses
    is_public   whether any origin is allowed. The response does not depend on the origin, so shared caches may store it
    by_origin   the application inside Starlette's CORS middleware, for other paths and for preflights
    """

    def __init__(self, path: str, origins: Sequence[str], headers: Mapping[str, str], app: ASGIApp) -> None:
        self.path = path
        self.is_public = "*" in origins
        public = {
            "access-control-allow-origin": "*",
            "access-control-expose-headers": ", ".join(EXPOSED_HEADERS),
        }
        # Images and scripts are fetched without CORS: this lets other sites embed them.
        shown = {"cross-origin-resource-policy": "cross-origin"}
        self.defaults = DefaultHeaders({**headers, **shown, **(public if self.is_public else {})})
        self.by_origin: ASGIApp = CORSMiddleware(
            app,
            allow_origins=origins,
            allow_methods=_METHODS,
            allow_headers=ALLOWED_HEADERS,
            expose_headers=EXPOSED_HEADERS,
            max_age=_MAX_AGE_S,
        )


class Cors:
    """The paths that other origins may use, without cookies. All other paths stay same-origin.

    A path that ends in a slash includes everything below it. `*` is any origin; a path without origins stays
    same-origin. Errors carry the same headers as successes, so that pages can read them.
    """

    def __init__(self, shared: Mapping[str, Sequence[str]], headers: Mapping[str, str], app: ASGIApp) -> None:
        by_path = {path: CorsPath(path, origins, headers, app) for path, origins in shared.items() if origins}
        self._exact = {path: one for path, one in by_path.items() if not path.endswith("/")}
        self._below = [(path, one) for path, one in by_path.items() if path.endswith("/")]

    def add_header(self, name: str, value: str) -> None:
        """Add a header to all responses of these paths from now on."""
        for one in (*self._exact.values(), *(one for _, one in self._below)):
            one.defaults.add(name, value)

    def find(self, path: str) -> CorsPath | None:
        found = self._exact.get(path)
        if found is None:
            for prefix, one in self._below:
                if path.startswith(prefix):
                    return one
        return found
