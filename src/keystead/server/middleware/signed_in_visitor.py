"""The signed-in user, for the header of a page."""

from __future__ import annotations

from contextlib import suppress

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection
from starlette.types import ASGIApp, Receive, Scope, Send

from keystead.errors import KeysteadError
from keystead.http.accept import prefers_html
from keystead.http.refusals import Refusal
from keystead.kits.identity import identify


class Visitor:
    """Identifies the user before a request that may be answered by a page, even an error page.

    JSON requests are identified by their route, if at all. If identification fails, the page shows no user.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and prefers_html(Headers(scope=scope).get("accept", "")):
            with suppress(Refusal, KeysteadError):
                await identify(HTTPConnection(scope))
        await self._app(scope, receive, send)
