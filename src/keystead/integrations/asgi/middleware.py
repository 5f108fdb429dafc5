"""Session middleware: it loads the session of each request, and sets cookies on the response."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from types import CoroutineType
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Receive, Scope, Send

from keystead.errors import BadDeclaration, StoreError
from keystead.http import csrf as rules
from keystead.http.cookies import Cookie
from keystead.http.csrf_field import BodyAhead
from keystead.http.refusals import Refusal, code_of, refusal_with, send_refusal
from keystead.integrations.asgi.browser_session import BrowserSession, Cookies
from keystead.integrations.asgi.keys import R, session_keys, sessions_of
from keystead.integrations.asgi.lifespan import SessionsLifespan
from keystead.integrations.asgi.types import App, Header
from keystead.parts.sessions import Gone, Policy, SessionRecord, Sessions
from keystead.schema import KeyRing
from keystead.stores import Store, connect

_log = logging.getLogger("keystead.sessions")
_security = logging.getLogger("keystead.security")

CSRF_BODY_MAX_BYTES: Final = 1 << 20


class SessionMiddleware:
    """Sessions for an ASGI application, in `request.state.session`, a `BrowserSession`.

        app.add_middleware(SessionMiddleware, store="redis://localhost", model=Visit, policy=AAL2)

    store            a URL, opened at startup (or with the first request, if the server has no lifespan) and closed at
                     shutdown; or a Store that you open and close yourself
    model            the data of a session: a subclass of SessionRecord
    policy           session lifetimes, and the maximum number per user
    prefix           the prefix of the keys, `app:sess:…`; applications that share a store need different ones
    seal             the key ring for sealed fields of the model
    sessions         instead of all these: Sessions of your own keyspace, whose store you open
    cookie           the name of the cookie, after `__Host-`
    development      for plain http: cookies are not Secure and have no `__Host-` prefix
    skip             path prefixes without a session, such as `/static/`
    csrf             whether unsafe requests must send the CSRF token
    csrf_exempt      path prefixes without CSRF protection, such as webhooks
    trusted_origins  other origins whose pages may send requests, such as `https://www.example.com`

    A request with a cookie costs one round trip. An unknown token counts as signed out: nothing is stored, and
    `keystead.security` logs it; its cookie stays until a login replaces it or a logout deletes it. A store outage is a
    503 with Retry-After, and never counts as signed out.
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
        self._lifespan = (
            _lifespan(store, model, policy, prefix, seal)
            if sessions is None
            else SessionsLifespan(None, lambda: sessions)
        )
        self._cookies = Cookies(Cookie(cookie, not development), rules.csrf_cookie(not development))
        self._read_token = self._cookies.session.read
        self._skip = _paths("skip", skip)
        self._csrf_exempt = _paths("csrf_exempt", csrf_exempt)
        self._csrf = csrf
        self._development = development
        self._trusted_origins = tuple(map(_check_origin, trusted_origins))
        self._csrf_body_max_bytes = csrf_body_max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        kind = scope["type"]
        if kind == "lifespan":
            return await self._lifespan.run(self.app, scope, receive, send)
        if kind not in ("http", "websocket") or (self._skip and scope["path"].startswith(self._skip)):
            return await self.app(scope, receive, send)
        cookies = _cookies_in(scope["headers"])
        if self._csrf and (kind == "websocket" or scope["method"] not in rules.SAFE_METHODS):
            body = BodyAhead(receive)
            if await self._is_refused(scope, send, cookies, body):
                return None
            receive = body.receive
        token = None
        if cookies:
            token = self._read_token(cookies)
            if token is None:
                self._log_ambiguous(cookies, scope)
        try:
            sessions = self._lifespan.sessions or await self._lifespan.open()
            found = None if token is None else sessions.start_read(token)
            if isinstance(found, CoroutineType):
                found = await found
        except StoreError as error:
            return await _refuse_unavailable(scope, send, error)
        if type(found) is Gone:
            _log_gone(found, scope)
        is_http = kind == "http"
        session = BrowserSession(sessions, self._cookies, cookies, send, is_http, token, found)
        scope.setdefault("state", {})["session"] = session
        try:
            await self.app(scope, receive, session.send if is_http else send)
        except Exception as error:
            if not await session.respond_to(error):
                raise

    async def close(self) -> None:
        """Close the store, for servers without lifespan. The next request opens it again."""
        await self._lifespan.close()

    def _log_ambiguous(self, cookies: str, scope: Scope) -> None:
        if self._cookies.session.is_ambiguous(cookies):
            _security.warning("a request had two different session cookies", extra=_event("two-cookies", scope))

    async def _is_refused(self, scope: Scope, send: Send, cookies: str, body: BodyAhead) -> bool:
        """Refuse a forged request: log and respond."""
        try:
            await self._refuse_forged(scope, cookies, body)
        except Refusal as refusal:
            _security.warning("a request was refused: %s", refusal, extra=_event("forged-request", scope))
            await send_refusal(scope, send, refusal)
            return True
        return False

    async def _refuse_forged(self, scope: Scope, cookies: str, body: BodyAhead) -> None:
        """Raises Refusal unless a page of this site or a trusted origin made the request and sent the CSRF token."""
        if self._csrf_exempt and scope["path"].startswith(self._csrf_exempt):
            return
        headers, cookie = Headers(scope=scope), self._cookies.csrf
        own = f"{'http' if self._development else 'https'}://{headers.get('host', '')}".lower()
        rules.refuse_cross_site(headers, (own, *self._trusted_origins), development=self._development)
        if scope["type"] == "websocket":  # a page cannot send a header with it
            return
        stored, given = cookie.read(cookies), headers.get(rules.HEADER)
        if given is None and rules.is_csrf_token(stored, stored):  # without a cookie, the body need not be read
            given = await body.find(headers.get("content-type", ""), self._csrf_body_max_bytes)
        if not rules.is_csrf_token(given, stored):
            raise rules.csrf_refusal(cookie if self._development else None) if not body.is_cut else _body_too_large()


def _cookies_in(headers: Iterable[Header]) -> str:
    """The Cookie header; HTTP/2 may split it."""
    cookies = ""
    for name, value in headers:
        if name == b"cookie":
            cookies = f"{cookies}; {value.decode('latin-1')}" if cookies else value.decode("latin-1")
    return cookies


async def _refuse_unavailable(scope: Scope, send: Send, error: StoreError) -> None:
    if code_of(error) != "STORE_UNAVAILABLE":  # a wrong command is a bug in the program
        raise error
    _log.error("sessions: %s", error)
    await send_refusal(scope, send, refusal_with("STORE_UNAVAILABLE"))


def _body_too_large() -> Refusal:
    sentence = "The body is too large to search for the field csrf; send the token in the header x-csrf-token."
    return Refusal(403, "CSRF", sentence)


def _check_origin(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.path.strip("/") or parts.query:
        raise BadDeclaration(f"an origin is written as https://app.example.com, not {text!r}")
    return f"{parts.scheme}://{parts.netloc}".lower()


def _lifespan(
    store: str | Store | None, model: type[R], policy: Policy | None, prefix: str, seal: KeyRing | None
) -> SessionsLifespan[R]:
    if store is None:
        raise BadDeclaration('SessionMiddleware needs store="redis://…" or sessions=Sessions(…)')
    keyspace = session_keys(model, policy, prefix=prefix)
    # An invalid URL is an error here, not in the first request.
    opened = connect(store) if isinstance(store, str) else store
    ours = opened if isinstance(store, str) else None
    return SessionsLifespan(ours, lambda: sessions_of(keyspace(opened, seal=seal), policy))


def _log_gone(gone: Gone, scope: Scope) -> None:
    """Log without the token or its digest."""
    if gone.reason == "unknown":
        _security.warning("an unknown session token was refused", extra=_event("unknown-token", scope))
    elif gone.reason == "unreadable":
        _log.error("a session cannot be read; `keystead doctor` reports which, and why")


def _event(name: str, scope: Scope) -> dict[str, object]:
    client = scope.get("client")
    return {"event": name, "client": client[0] if client else None}


def _paths(option: str, paths: Sequence[str]) -> tuple[str, ...]:
    if isinstance(paths, str) or not all(path.startswith("/") for path in paths):
        raise BadDeclaration(f'{option} takes path prefixes, as in {option}=["/static/"], not {paths!r}')
    return tuple(paths)
