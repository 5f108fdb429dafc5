"""The access log and the metrics, written when a request ends."""

from __future__ import annotations

import logging
import re
import secrets
import time
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from keystead.server.logs import ACCESS, log_request
from keystead.server.route_table import method_of, template_of

if TYPE_CHECKING:
    from keystead.server.metrics import Metrics

_SANE_ID: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_QUIET: Final = frozenset({"/healthz", "/readyz", "/metrics"})  # polled every few seconds


class RequestLog:
    """Gives each request an id (`x-request-id`, the client's own if it is well-formed), and logs the outcome.

    The line has the template of the route, not the path, so no id or query gets into the log.
    """

    def __init__(self, app: ASGIApp, metrics: Metrics | None) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _SANE_ID.fullmatch(given) else secrets.token_hex(12)
        scope.setdefault("state", {})["request_id"] = request_id
        method = method_of(scope)
        status = 499  # no response: the client disconnected first

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        if self._metrics is not None:
            self._metrics.began()
        try:
            await self._app(scope, receive, send_and_note)
        finally:
            seconds = time.perf_counter() - began
            route = template_of(scope)
            if self._metrics is not None:
                self._metrics.answered(route, method, status, seconds)
            level = _level(status, route)
            if ACCESS.isEnabledFor(level):
                problem = scope.get("keystead.problem")
                log_request(
                    level,
                    request_id=request_id,
                    method=method,
                    route=route,
                    status=status,
                    ms=round(seconds * 1000, 1),
                    **({"problem": problem} if problem else {}),
                )


def _level(status: int, route: str) -> int:
    if status >= 500:
        return logging.WARNING
    return logging.DEBUG if route in _QUIET else logging.INFO
