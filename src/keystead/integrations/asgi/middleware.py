"""Session middleware: it loads the session of each request, and sets cookies on the response."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2s
from typing import Any

from starlette.types import Scope, Send

from keystead.errors import BadDeclaration
from keystead.integrations.asgi.browser_session import BrowserSession
from keystead.integrations.asgi.csrf_guard import CSRF_BODY_MAX_BYTES
from keystead.integrations.asgi.keys import R, session_keys, sessions_of
from keystead.integrations.asgi.lifespan import SessionsLifespan
from keystead.integrations.asgi.session_layer import SessionLayer
from keystead.integrations.asgi.types import App
from keystead.parts.sessions import Gone, Policy, SessionRecord, Sessions
from keystead.parts.sessions.session_lookup import MAX_CACHED, SessionQuery
from keystead.schema import KeyRing
from keystead.stores import Store, connect


class SessionMiddleware(SessionLayer[Sessions[Any]]):
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
        super().__init__(
            app,
            _lifespan(store, model, policy, prefix, seal)
            if sessions is None
            else SessionsLifespan(None, lambda: sessions),
            cookie=cookie,
            development=development,
            skip=skip,
            csrf=csrf,
            csrf_exempt=csrf_exempt,
            trusted_origins=trusted_origins,
            csrf_body_max_bytes=csrf_body_max_bytes,
        )
        # What Cookie headers lead to: a browser sends the same one many times in a row. The key is a digest, so that no
        # secret stays in memory.
        self._known: dict[bytes, SessionQuery] = {}
        self._known_by: Sessions[Any] | None = None

    def _start_read(self, sessions: Sessions[Any], cookies: bytes, scope: Scope) -> Any:
        digest = blake2s(cookies).digest()
        query = self._known.get(digest)
        if query is None or self._known_by is not sessions:
            token = self._find_token(cookies, scope)
            if token is None:
                return None
            query = sessions.find_query(token)
            if query is None:
                return Gone("unknown")
            self._keep(sessions, digest, query)
        return sessions.start_read(query)

    def _keep(self, sessions: Sessions[Any], digest: bytes, query: SessionQuery) -> None:
        if self._known_by is not sessions:
            self._known, self._known_by = {}, sessions
        elif len(self._known) >= MAX_CACHED:
            del self._known[next(iter(self._known))]
        self._known[digest] = query

    def _respond(
        self, scope: Scope, sessions: Sessions[Any], cookies: bytes, send: Send, found: Any
    ) -> BrowserSession[Any]:
        return BrowserSession(scope, sessions, self._cookies, cookies, send, found)


def _lifespan(
    store: str | Store | None, model: type[R], policy: Policy | None, prefix: str, seal: KeyRing | None
) -> SessionsLifespan[Sessions[R]]:
    if store is None:
        raise BadDeclaration('SessionMiddleware needs store="redis://…" or sessions=Sessions(…)')
    keyspace = session_keys(model, policy, prefix=prefix)
    # An invalid URL is an error here, not in the first request.
    opened = connect(store) if isinstance(store, str) else store
    ours = opened if isinstance(store, str) else None
    return SessionsLifespan(ours, lambda: sessions_of(keyspace(opened, seal=seal), policy))
