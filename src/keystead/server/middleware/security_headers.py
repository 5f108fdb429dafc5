"""Security headers for every response."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from keystead.http.pages import content_policy

SECURITY_HEADERS = {
    "content-security-policy": content_policy(),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}


# For a year, browsers use https for this host even if the user types http.
HSTS = {"strict-transport-security": "max-age=31536000"}


class SecurityHeaders:
    """Adds `SECURITY_HEADERS` to every response; headers set by a route win. `https_only` adds HSTS."""

    def __init__(self, app: ASGIApp, https_only: bool = False) -> None:
        self._app = app
        self._headers = SECURITY_HEADERS | (HSTS if https_only else {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, send_with_headers)
