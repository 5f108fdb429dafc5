"""One layer around every HTTP request, in place of a stack of middleware.

It assigns the request id, applies trusted proxies, limits concurrency, time and body size, adds default headers, turns
HEAD into GET without the body, responds to unexpected errors, and writes the metrics and the access log.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import time
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from fastapi import Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from keystead.errors import KeysteadError
from keystead.http.accept import prefers_html
from keystead.http.direct_calls import BODY_READ
from keystead.http.refusals import Refusal, code_of, refusal_with
from keystead.http.responses import RawResponse
from keystead.kits.identity import identify
from keystead.server.error_responses import TooLarge, error_response, respond_to_error
from keystead.server.logs import ACCESS, log_failure, log_overload, log_request
from keystead.server.response_headers import HSTS, SECURITY_HEADERS, Cors, DefaultHeaders, Header
from keystead.server.route_table import asks_for_health, method_of, template_of
from keystead.server.time_limits import TimeLimit, TimeLimits
from keystead.server.trusted_proxies import TrustedProxies

if TYPE_CHECKING:
    from keystead.server.direct_routes import DirectRoutes
    from keystead.server.metrics import Metrics

_SANE_ID: Final = re.compile(rb"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PROBES: Final = frozenset({"/healthz", "/readyz", "/metrics"})  # polled every few seconds
_DIGITS_MAX: Final = 18  # of a Content-Length; longer than any body
_LOG_REFUSED_EVERY_S: Final = 1.0
_CLIENT_LEFT: Final = 499  # the logged status if the client disconnected before a response
_COMPLETE: Final = frozenset({Response, RawResponse, JSONResponse, HTMLResponse, PlainTextResponse, RedirectResponse})
_IDS_AT_ONCE: Final = 64
_ID_BYTES: Final = 12


@dataclass(frozen=True)
class RequestLimits:
    """The limits of a request.

    timeout_s   the time limit. It does not apply to an event stream that has begun; other long routes lift it with
                `request.state.time_limit.reschedule(None)`
    body        the maximum body size in bytes; `bodies` has other limits by path, ignoring case
    at_once     the maximum number of concurrent requests in this process; more are refused with 503. Those without a
                time limit do not count, so neither does an event stream that has begun. 0: no limit
    streams     the paths of event streams. `at_once` limits those that begin on their own, since many clients reconnect
                at once after a restart. A path that ends in a slash includes all below it
    """

    timeout_s: float
    body: int
    bodies: Mapping[str, int] = field(default_factory=dict)
    at_once: int = 0
    streams: Sequence[str] = ()


class _InFlight:
    """How many requests of one sort are under way."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0


class RequestLayer:
    """The ASGI application around `app`. `routes` are called directly if possible."""

    def __init__(
        self,
        app: ASGIApp,
        limits: RequestLimits,
        *,
        routes: DirectRoutes | None = None,
        metrics: Metrics | None = None,
        proxies: Sequence[str] = (),
        shared: Mapping[str, Sequence[str]] | None = None,
        https_only: bool = False,
    ) -> None:
        self.app = app
        self.limits = limits
        self.bodies = {path.lower(): limit for path, limit in limits.bodies.items()}
        self.routes = routes
        self.metrics = metrics
        self.proxies = TrustedProxies(proxies)
        security = SECURITY_HEADERS | (HSTS if https_only else {})
        self.headers = DefaultHeaders(security)
        self.cors = Cors(shared or {}, security, _continue)
        self.requests = _InFlight()
        self.streams = _InFlight()
        self._stream_paths = frozenset(limits.streams)
        self._stream_folders = tuple(path for path in limits.streams if path.endswith("/"))
        self.time_limits = TimeLimits(limits.timeout_s)
        self.request_ids = _random_ids()
        refusal = refusal_with("OVERLOADED")
        self._refused_body = json.dumps(refusal.body(), separators=(",", ":")).encode()
        length = str(len(self._refused_body))
        given = {"content-type": "application/json", "content-length": length, **refusal.headers}
        self._refused_headers = [(name.encode(), value.encode()) for name, value in given.items()]
        self._refused_status = refusal.status
        self._refused = 0  # since it was logged
        self._refused_logged_at = -_LOG_REFUSED_EVERY_S

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http":
            return self.app(scope, receive, send)
        path = scope["path"]
        is_stream = path in self._stream_paths or (self._stream_folders and path.startswith(self._stream_folders))
        in_flight = self.streams if is_stream else self.requests
        if 0 < self.limits.at_once <= in_flight.count and path not in _PROBES:
            return self._refuse(scope, send)
        return _Exchange(self, in_flight, scope, receive, send).run()

    def close_connections(self) -> None:
        """Close each connection with its next response, because this process is about to stop."""
        self.headers.add("connection", "close")
        self.cors.add_header("connection", "close")

    async def _refuse(self, scope: Scope, send: Send) -> None:
        """Refuse a request with as little work as possible.

        The metrics count it, and the log has the number of refused requests once a second.
        """
        if self.metrics is not None:
            self.metrics.count_refused(method_of(scope), self._refused_status)
        self._refused += 1
        now = time.monotonic()
        if now - self._refused_logged_at >= _LOG_REFUSED_EVERY_S:
            log_overload(self._refused, self.limits.at_once)
            self._refused, self._refused_logged_at = 0, now
        cors = self.cors.find(scope["path"])
        defaults = (self.headers if cors is None else cors.defaults).missing_from(())
        headers = [*self._refused_headers, *defaults]
        await send({"type": "http.response.start", "status": self._refused_status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else self._refused_body})


class _Exchange:
    """One request and its response."""

    __slots__ = (
        "_began", "_body_bytes", "_defaults", "_given", "_in_flight", "_is_counted", "_is_head", "_layer", "_limit",
        "_max_body", "_receive", "_request_id", "_scope", "_send", "_status",
    )  # fmt: skip

    def __init__(self, layer: RequestLayer, in_flight: _InFlight, scope: Scope, receive: Receive, send: Send) -> None:
        self._began = time.perf_counter()
        self._layer = layer
        self._in_flight = in_flight
        self._scope = scope
        self._receive = receive
        self._send = send
        self._status = 0
        self._body_bytes = 0
        self._max_body = layer.limits.body
        self._is_head = False
        self._is_counted = False
        self._defaults = layer.headers
        self._limit: TimeLimit | None = None
        # The first header of each name.
        self._given: dict[bytes, bytes] = dict(reversed(scope["headers"]))
        given = self._given.get(b"x-request-id")
        is_sane = given is not None and _SANE_ID.fullmatch(given)
        self._request_id = given if given is not None and is_sane else next(layer.request_ids)

    async def run(self) -> None:
        layer, scope = self._layer, self._scope
        method = method_of(scope)
        scope.setdefault("state", {})["request_id"] = self._request_id.decode()
        if layer.metrics is not None:
            layer.metrics.count_begun()
        self._in_flight.count += 1
        self._is_counted = True
        try:
            if layer.proxies:
                layer.proxies.apply(scope)
            cors = layer.cors.find(scope["path"])
            if cors is None:
                await self.respond(self._receive, self.send)
            else:
                self._defaults = cors.defaults
                is_preflight = scope["method"] == "OPTIONS"
                if is_preflight:  # it has no route to set the template for the log
                    scope["keystead.template"] = cors.path
                if cors.is_public and not is_preflight:
                    await self.respond(self._receive, self.send)
                else:
                    scope["keystead.exchange"] = self
                    await cors.by_origin(scope, self._receive, self.send)
        finally:
            self._stop_counting()
            self._log(method)
            # Scope and exchange refer to each other. Without this, only the garbage collector would free them.
            scope["state"].pop("time_limit", None)
            scope.pop("keystead.exchange", None)

    async def respond(self, receive: Receive, send: Send) -> None:
        """Respond, even to an unexpected error: INTERNAL with the request id, under which the log has the traceback. A
        response that has begun is broken off, so that the client does not take it for complete.
        """
        scope = self._scope
        self._receive = receive
        scope["state"]["time_limit"] = self
        try:
            limit = self._limit = self._layer.time_limits.begin()
            try:
                await self._call(send)
            except asyncio.CancelledError:
                if not limit.end():
                    raise
                if self._status:
                    raise TimeoutError from None
                await self._refuse(refusal_with("TIMEOUT"), send)
            finally:
                limit.end()
        except Exception as error:
            request_id = self._request_id.decode()
            code = code_of(error)
            if code == "INTERNAL":
                log_failure(error, request_id=request_id, route=template_of(scope))
            if self._status:
                raise BrokenOff from None
            sentence = f"Something went wrong; the log has details under the id {request_id}."
            await self._refuse(refusal_with(code, sentence if code == "INTERNAL" else ""), send)

    async def _call(self, send: Send) -> None:
        layer, scope = self._layer, self._scope
        if scope["method"] == "HEAD":
            # Routes handle it as GET. Those with side effects can recognize it by `keystead.head`.
            scope["method"] = "GET"
            scope["extensions"] = {}
            scope["keystead.head"] = True
            self._is_head = True
        if layer.bodies:
            self._max_body = layer.bodies.get(scope["path"].lower(), self._max_body)
        if self._states_too_much():
            await self._refuse(TooLarge(self._max_body).refusal, send)
            return
        if b"html" in self._given.get(b"accept", b"") and prefers_html(self._given[b"accept"].decode("latin-1")):
            # The response may be a page, even an error page, whose header shows the user. If identification fails, it
            # shows none. JSON routes identify the user themselves.
            with suppress(Refusal, KeysteadError):
                await identify(Request(scope))
        found = None if layer.routes is None or asks_for_health(scope["query_string"]) else layer.routes.find(scope)
        if found is None:
            await layer.app(scope, self.receive, send)
            return
        scope.update(found.scope)
        request = Request(scope, self.receive, send)
        try:
            response = await found.call(request)
        except Exception as error:
            response = await respond_to_error(request, error)
        if response is None:  # malformed: FastAPI reports how, and reads the body again if it was read
            body = scope.get(BODY_READ)
            await layer.app(scope, self.receive if body is None else _replay(body, self.receive), send)
            return
        if send == self.send and response.background is None and type(response) in _COMPLETE:
            await self._send_complete(response)
        else:
            await response(scope, self.receive, send)

    async def _send_complete(self, response: Response) -> None:
        """As `send` with the two messages of a response whose body is complete."""
        self._status = response.status_code
        present = {name for name, _ in response.raw_headers}
        headers = [*response.raw_headers, *self._defaults.missing_from(present)]
        if b"x-request-id" not in present:
            headers.append((b"x-request-id", self._request_id))
        await self._send({"type": "http.response.start", "status": self._status, "headers": headers})
        await self._send({"type": "http.response.body", "body": b"" if self._is_head else response.body})

    def _states_too_much(self) -> bool:
        stated = self._given.get(b"content-length", b"")
        return stated.isdigit() and (len(stated) > _DIGITS_MAX or int(stated) > self._max_body)

    async def _refuse(self, refusal: Refusal, send: Send) -> None:
        await error_response(self._scope, refusal)(self._scope, self.receive, send)

    async def receive(self) -> Message:
        """Raises TooLarge in the route that reads a body beyond the limit."""
        message = await self._receive()
        if message["type"] == "http.request":
            self._body_bytes += len(message.get("body", b""))
            if self._body_bytes > self._max_body:
                raise TooLarge(self._max_body)
        return message

    async def send(self, message: Message) -> None:
        kind = message["type"]
        if kind == "http.response.start":
            self._status = message["status"]
            headers: list[Header] = list(message.get("headers", ()))
            present = dict(headers)
            if present.get(b"content-type", b"").startswith(b"text/event-stream"):
                self.reschedule(None)
            headers += self._defaults.missing_from(present)
            if b"x-request-id" not in present:
                headers.append((b"x-request-id", self._request_id))
            message = {**message, "headers": headers}
        elif self._is_head:
            if message.get("more_body", False):
                return
            message = {"type": "http.response.body", "body": b""}
        await self._send(message)

    def reschedule(self, when: float | None) -> None:
        """Change the time limit, by the clock of the event loop; None removes it."""
        if self._limit is not None:
            self._limit.reschedule(when)
        self._stop_counting()

    def _stop_counting(self) -> None:
        if self._is_counted:
            self._in_flight.count -= 1
            self._is_counted = False

    def _log(self, method: str) -> None:
        seconds = time.perf_counter() - self._began
        route, status = template_of(self._scope), self._status or _CLIENT_LEFT
        if self._layer.metrics is not None:
            self._layer.metrics.count_finished(route, method, status, seconds)
        level = logging.WARNING if status >= 500 else logging.DEBUG if route in _PROBES else logging.INFO
        if ACCESS.isEnabledFor(level):
            # The template, not the path: no id or query gets into the log.
            fields = {
                "request_id": self._request_id.decode(),
                "method": method,
                "route": route,
                "status": status,
                "ms": round(seconds * 1000, 1),
            }
            problem = self._scope.get("keystead.problem")
            log_request(level, **fields, **({"problem": problem} if problem else {}))


def _random_ids() -> Iterator[bytes]:
    """Request ids. Random bytes are read for many at once: a system call each would cost more than the rest."""
    while True:
        digits = os.urandom(_ID_BYTES * _IDS_AT_ONCE).hex().encode()
        for begin in range(0, len(digits), 2 * _ID_BYTES):
            yield digits[begin : begin + 2 * _ID_BYTES]


async def _continue(scope: Scope, receive: Receive, send: Send) -> None:
    """The rest of the layer, inside the CORS middleware."""
    exchange: _Exchange = scope["keystead.exchange"]
    await exchange.respond(receive, send)


def _replay(body: bytes, receive: Receive) -> Receive:
    """`receive`, from the start of a body that was read."""
    is_sent = False

    async def receive_again() -> Message:
        nonlocal is_sent
        if is_sent:
            return await receive()
        is_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


class BrokenOff(Exception):
    """A response failed after it had begun. The server closes the connection."""
