"""What the session middlewares share: CSRF, the cookie, the read of the session, and errors of the store."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from types import CoroutineType
from typing import Any, Final, Generic, TypeVar

from starlette.types import Receive, Scope, Send

from keystead.errors import StoreError
from keystead.http import csrf as rules
from keystead.http.cookies import Cookie
from keystead.http.csrf_field import BodyAhead
from keystead.http.refusals import code_of, refusal_with, send_refusal
from keystead.integrations.asgi.csrf_guard import CsrfGuard
from keystead.integrations.asgi.lifespan import SessionsLifespan
from keystead.integrations.asgi.session_response import Cookies, SessionResponse
from keystead.integrations.asgi.types import App, cookies_in, event_of, path_prefixes
from keystead.parts.sessions import Gone

P = TypeVar("P")

log: Final = logging.getLogger("keystead.sessions")
_security = logging.getLogger("keystead.security")


class SessionLayer(ABC, Generic[P]):
    """Reads the session of each request with the part `P`, and passes its response on with cookies."""

    def __init__(
        self,
        app: App,
        lifespan: SessionsLifespan[P],
        *,
        cookie: str,
        development: bool,
        skip: Sequence[str],
        csrf: bool,
        csrf_exempt: Sequence[str],
        trusted_origins: Sequence[str],
        csrf_body_max_bytes: int,
    ) -> None:
        self.app = app
        self._lifespan = lifespan
        self._cookies = Cookies(Cookie(cookie, not development), rules.csrf_cookie(not development))
        self._skip = path_prefixes("skip", skip)
        guard = CsrfGuard(
            self._cookies.csrf,
            development=development,
            exempt=csrf_exempt,
            trusted_origins=trusted_origins,
            body_max_bytes=csrf_body_max_bytes,
        )
        self._csrf = guard if csrf else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "lifespan":
            return await self._lifespan.run(self.app, scope, receive, send)
        if kind not in ("http", "websocket") or (self._skip and scope["path"].startswith(self._skip)):
            return await self.app(scope, receive, send)
        cookies = cookies_in(scope["headers"])
        if self._csrf and (kind == "websocket" or scope["method"] not in rules.SAFE_METHODS):
            body = BodyAhead(receive)
            if await self._csrf.is_refused(scope, send, cookies.decode("latin-1"), body):
                return None
            receive = body.receive
        found = None
        try:
            sessions = self._lifespan.sessions or await self._lifespan.open()
            if cookies:
                found = self._start_read(sessions, cookies, scope)
                if isinstance(found, CoroutineType):
                    found = await found
        except StoreError as error:
            return await _refuse_unavailable(scope, send, error)
        if type(found) is Gone:
            log_gone(found, scope)
        response = self._respond(scope, sessions, cookies, send, found)
        try:
            await self.app(scope, receive, response.send if kind == "http" else send)
        except Exception as error:
            if not await response.respond_to(error):
                raise
        else:
            if response.needs_finish:
                await response.finish()

    @abstractmethod
    def _start_read(self, sessions: P, cookies: bytes, scope: Scope) -> Any:
        """What these cookies lead to, or a coroutine that reads it. None: there is no token."""

    @abstractmethod
    def _respond(self, scope: Scope, sessions: P, cookies: bytes, send: Send, found: Any) -> SessionResponse:
        """Put the session into the scope, and make its response. `found` is what was read."""

    async def close(self) -> None:
        """Close the store, for servers without lifespan. The next request opens it again."""
        await self._lifespan.close()

    def _find_token(self, cookies: bytes, scope: Scope) -> str | None:
        header = cookies.decode("latin-1")
        token = self._cookies.session.read(header)
        if token is None and self._cookies.session.is_ambiguous(header):
            _security.warning("a request had two different session cookies", extra=event_of("two-cookies", scope))
        return token


def log_gone(gone: Gone, scope: Scope) -> None:
    """Log without the token or its digest."""
    if gone.reason == "unknown":
        _security.warning("an unknown session token was refused", extra=event_of("unknown-token", scope))
    elif gone.reason == "unreadable":
        log.error("a session cannot be read; `keystead doctor` reports which, and why")


async def _refuse_unavailable(scope: Scope, send: Send, error: StoreError) -> None:
    if code_of(error) != "STORE_UNAVAILABLE":  # a wrong command is a bug in the program
        raise error
    log.error("sessions: %s", error)
    await send_refusal(scope, send, refusal_with("STORE_UNAVAILABLE"))
