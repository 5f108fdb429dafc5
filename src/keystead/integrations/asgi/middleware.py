"""The middleware: who is signed in, for every request; and which cookies go out with its answer."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any, Final

from keystead.errors import BadDeclaration, StoreError
from keystead.integrations.asgi.answers import CROSS_SITE, STORE_UNAVAILABLE, Answer, refuse
from keystead.integrations.asgi.browser_session import BrowserSession, Cookies
from keystead.integrations.asgi.csrf import SAFE_METHODS, Csrf
from keystead.integrations.asgi.keys import R, session_keys, sessions_of
from keystead.integrations.asgi.opening import Opening
from keystead.integrations.asgi.types import App, Receive, Scope, Send
from keystead.parts.cookies import Cookie
from keystead.parts.sessions import Gone, Live, Policy, SessionRecord, Sessions
from keystead.schema import KeyRing
from keystead.stores import Store, connect

_log = logging.getLogger("keystead.sessions")
_security = logging.getLogger("keystead.security")

CSRF_BODY_MAX_BYTES: Final = 1 << 20


class SessionMiddleware:
    """Sessions for an ASGI application, in `request.state.session`, a `BrowserSession`.

        app.add_middleware(SessionMiddleware, store="redis://localhost", model=Visit, policy=AAL2)

    store            a URL, which is opened when the application starts (or with the first request, where its server
                     tells no start) and closed when it ends; or a Store that you open and close yourself
    model            what a session holds: a class that inherits from SessionRecord
    policy           how long sessions live, and how many a user may have
    prefix           begins the keys, `app:sess:…`; two applications in one store have different ones
    seal             the keys of sealed fields of the model
    sessions         instead of all these: Sessions of a keyspace of your own, whose store you open
    cookie           the name of the cookie, after `__Host-`
    development      browsers come by plain http: cookies are neither Secure nor have they the prefix `__Host-`
    skip             beginnings of paths that have no session, such as `/static/`
    csrf             whether requests that change something must send the CSRF token back
    csrf_exempt      beginnings of paths that need not, such as webhooks
    trusted_origins  other origins whose pages may send requests, such as `https://www.example.com`

    A request with a cookie costs one round trip. A token that names no session is treated as none: nothing is stored,
    and `keystead.security` logs it; its cookie stays until a login replaces it or a logout takes it away. A store that
    does not answer is a 503 with Retry-After, and never taken for signed out.
    """

    def __init__(
        self,
        app: App,
        *,
        store: str | Store | None = None,
        model: type[SessionRecord] = SessionRecord,
        policy: Policy | None = None,
        prefix: str = "app",
        seal: KeyRing | None = None,
        sessions: Sessions[Any] | None = None,
        cookie: str = "sid",
        development: bool = False,
        skip: Sequence[str] = (),
        csrf: bool = True,
        csrf_exempt: Sequence[str] = (),
        trusted_origins: Sequence[str] = (),
        csrf_body_max_bytes: int = CSRF_BODY_MAX_BYTES,
    ) -> None:
        self.app = app
        self._opening = (
            _opening(store, model, policy, prefix, seal) if sessions is None else Opening(None, lambda: sessions)
        )
        self._cookies = Cookies(Cookie(cookie, not development), Cookie("csrf", not development))
        self._tokens_in = re.compile(
            rb'(?:^|;)[ \t]*%s="?([^;" \t]*)' % re.escape(self._cookies.session.name.encode())
        ).findall
        self._skip = _paths("skip", skip)
        self._csrf_exempt = _paths("csrf_exempt", csrf_exempt)
        self._csrf = Csrf("http" if development else "https", trusted_origins, csrf_body_max_bytes) if csrf else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "lifespan":
            return await self._opening.lifespan(self.app, scope, receive, send)
        if kind not in ("http", "websocket") or (self._skip and scope["path"].startswith(self._skip)):
            return await self.app(scope, receive, send)
        cookies = b""
        for name, value in scope["headers"]:
            if name == b"cookie":
                cookies = b"%s; %s" % (cookies, value) if cookies else value
        if self._csrf is not None and (kind == "websocket" or scope["method"] not in SAFE_METHODS):
            problem, receive = await self._forged(self._csrf, scope, cookies, receive)
            if problem is not None:
                return await refuse(scope, send, problem)
        found: Live[Any] | Gone | None = None
        token = self._token(cookies, scope) if cookies else None
        try:
            sessions = self._opening.sessions or await self._opening.open()
            if token is not None:
                found = await sessions.read(token)
        except StoreError as error:
            return await _unavailable(scope, send, error)
        if found is not None and not found:
            _log_gone(found, scope)
        is_http = kind == "http"
        session = BrowserSession(sessions, self._cookies, cookies, send, is_http, token, found)
        scope.setdefault("state", {})["session"] = session
        try:
            await self.app(scope, receive, session.sending if is_http else send)
        except Exception as error:
            if not await session.answered(error):
                raise

    def _token(self, cookies: bytes, scope: Scope) -> str | None:
        """The token of the session in these cookies. Two that differ, where a browser has one at most, come from
        somebody who got past that, and count as none, as in the login kit."""
        found: list[bytes] = self._tokens_in(cookies)
        if not found:
            return None
        if len(found) > 1 and self._cookies.session.secure and len(set(found)) > 1:
            _security.warning("a request had two different session cookies", extra=_event("two-cookies", scope))
            return None
        return found[0].decode("latin-1")

    async def close(self) -> None:
        """Close the store, where the server tells the application no end. The next request opens it again."""
        await self._opening.close()

    async def _forged(
        self, csrf: Csrf, scope: Scope, cookies: bytes, receive: Receive
    ) -> tuple[Answer | None, Receive]:
        """What shows that another site may have made the request; and what is to be received from now on."""
        if self._csrf_exempt and scope["path"].startswith(self._csrf_exempt):
            return None, receive
        problem: Answer | None
        if scope["type"] == "websocket":  # a browser sends cookies with it, and asks nobody
            problem = CROSS_SITE if csrf.is_foreign(scope["headers"]) else None
        else:
            token = self._cookies.csrf.read(cookies.decode("latin-1"))
            problem, receive = await csrf.problem(token, scope["headers"], receive)
        if problem is not None:
            _security.warning("a request was refused: %s", problem.sentence, extra=_event("forged-request", scope))
        return problem, receive


def _opening(
    store: str | Store | None, model: type[R], policy: Policy | None, prefix: str, seal: KeyRing | None
) -> Opening[R]:
    if store is None:
        raise BadDeclaration('SessionMiddleware needs store="redis://…", or sessions=Sessions(…) of your own')
    keyspace = session_keys(model, policy, prefix=prefix)
    # A URL that cannot be understood is said here, and not by the first request.
    opened = connect(store) if isinstance(store, str) else store
    ours = opened if isinstance(store, str) else None
    return Opening(ours, lambda: sessions_of(keyspace(opened, seal=seal), policy))


async def _unavailable(scope: Scope, send: Send, error: StoreError) -> None:
    if not error.code.startswith("store"):  # a command was wrong, which is a fault of the program
        raise error
    _log.error("sessions: %s", error)
    await refuse(scope, send, STORE_UNAVAILABLE)


def _log_gone(gone: Gone, scope: Scope) -> None:
    """Neither the token nor its digest is in it."""
    if gone.reason == "unknown":
        _security.warning("a token that names no session was refused", extra=_event("unknown-token", scope))
    elif gone.reason == "unreadable":
        _log.error("a session cannot be read; `keystead doctor` says which, and why")


def _event(name: str, scope: Scope) -> dict[str, object]:
    client = scope.get("client")
    return {"event": name, "client": client[0] if client else None}


def _paths(option: str, paths: Sequence[str]) -> tuple[str, ...]:
    if isinstance(paths, str) or not all(path.startswith("/") for path in paths):
        raise BadDeclaration(f'{option} takes beginnings of paths, as in {option}=["/static/"], not {paths!r}')
    return tuple(paths)
