"""The maximum size of a request body."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from keystead.server.error_responses import TooLarge, error_response

_DIGITS_MAX = 18  # more than any body that was ever sent


class BodyLimit:
    """Responds with 413 immediately if Content-Length is too large; otherwise as soon as the body exceeds the limit,
    which raises `TooLarge` in the route that reads it."""

    def __init__(self, app: ASGIApp, max_bytes: int, by_path: Mapping[str, int] | None = None) -> None:
        self._app = app
        self._max_bytes = max_bytes
        # Some routes take their path in capitals or small letters, so a limit holds for it however it is written.
        self._by_path = {path.lower(): limit for path, limit in (by_path or {}).items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        max_bytes = self._by_path.get(scope["path"].lower(), self._max_bytes)
        stated = Headers(scope=scope).get("content-length", "")
        if stated.isascii() and stated.isdigit() and (len(stated) > _DIGITS_MAX or int(stated) > max_bytes):
            await error_response(scope, TooLarge(max_bytes).refusal)(scope, receive, send)
            return
        come = 0

        async def receive_and_count() -> Message:
            nonlocal come
            message = await receive()
            if message["type"] == "http.request":
                come += len(message.get("body", b""))
                if come > max_bytes:
                    raise TooLarge(max_bytes)
            return message

        await self._app(scope, receive_and_count, send)
