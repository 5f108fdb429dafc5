"""The session of the browser that a request came from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Generic, Self, TypeVar

from pydantic import BaseModel
from starlette.types import Scope, Send

from keystead.http.refusals import Refusal
from keystead.integrations.asgi.session_response import Cookies, SessionResponse
from keystead.parts.sessions import Gone, Live, Sessions
from keystead.parts.sessions.session_record import Reason
from keystead.schema.times import deadline_ms

R = TypeVar("R", bound=BaseModel)


class SignedOut(Exception):
    """A route needs a session, and there is none. Unless the application catches it, the response is a 401."""


class BrowserSession(SessionResponse, Generic[R]):
    """The session of this browser, as `request.state.session`. Truthy if a user is signed in.

    `data`, `id`, `user` and `gone` are read when the request arrives, in one round trip. A verb writes immediately, and
    its cookie is sent with the response: so call `start` and `rotate` before the response begins, and not on a
    WebSocket. A response is sent with `Cache-Control: no-store` once the session was read, unless the application sets
    that header; so is a streamed response (without Content-Length) to a browser with cookies, which may read it later.

    Only verbs that sign out delete the cookie. A dead token stays in the browser: a response that deletes it could
    arrive after a login in another tab, and delete the new one.

    An ended session stays ended: a verb of a concurrent request does not revive it, and reports that it is gone. A verb
    raises StoreUnavailable during an outage, which is a 503 unless the application catches it.
    """

    _data: R | None = None  # once it was asked for
    _reason: Reason | None = None
    _new_token: str | None = None  # instead of that of the request
    _has_new_token = False

    def __init__(
        self,
        scope: Scope,
        sessions: Sessions[R],
        cookies: Cookies,
        cookie_header: bytes,
        send: Send,
        found: Live[R] | Gone | None,
    ) -> None:
        """For the middleware: puts itself into the scope. `found` is None if there was no token."""
        self._cookies = cookies
        self._cookie_header = cookie_header
        self._send = send
        self._is_http = scope["type"] == "http"
        self._sessions = sessions
        self._live: Live[R] | None = None
        if isinstance(found, Gone):
            self._reason = found.reason
        else:
            self._live = found
        scope.setdefault("state", {})["session"] = self

    # --- reading -------------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        """Whether a user is signed in."""
        self._used = True
        return self._live is not None

    @property
    def data(self) -> R | None:
        """The data of the session; None if no user is signed in. It is a copy: change it with `update` or `change`."""
        self._used = True
        return self.held

    @property
    def id(self) -> str | None:
        """The id of the session, for `end_one`. It is not a secret and does not authenticate."""
        self._used = True
        return None if self._live is None else self._live.id

    @property
    def user(self) -> str | None:
        """The id of the user who is signed in."""
        self._used = True
        return None if self._live is None else self._live.user

    @property
    def gone(self) -> Reason | None:
        """Why the session of the browser's token has ended: `expired`, `evicted`, `revoked`, `unknown` or `unreadable`.
        None if it is alive, or there was no token."""
        self._used = True
        return self._reason

    def require(self) -> R:
        """The data of the session. Raises SignedOut if no user is signed in."""
        self._used = True
        data = self.held
        if data is None:
            signed_out = SignedOut("no user is signed in")
            self._failure = signed_out, Refusal(401, "SIGNED_OUT", "You are not signed in.")
            raise signed_out
        return data

    # --- signing in and out --------------------------------------------------------------------------------

    async def start(self, session: R) -> R:
        """Sign in the user of `session`: always a new session with a new token (no session fixation).

        The browser's current session, if any, ends first. Raises CapReached if the policy refuses another one.
        """
        self._refuse_without_cookies("start")
        await self.end()
        new = await self._try(self._sessions.create(session))
        found = await self._try(self._sessions.read(new.token))
        if isinstance(found, Gone):  # a concurrent request has ended it
            self._lose(found.reason)
        else:
            self._adopt(new.token, found)
        return new.session

    async def rotate(self) -> bool:
        """Replace the token of the session, for example after a change of rights. False if there is no session.

        Concurrent requests may use the old token for `policy.grace`. Of several concurrent rotations one takes effect.
        """
        self._refuse_without_cookies("rotate")
        if self._token is None or self._live is None:
            return False
        new = await self._try(self._sessions.rotate(self._token))
        if isinstance(new, Gone):
            return await self.reread()
        self._adopt(new.token, Live(new.id, self._live.user, new.session, self._live.ends_at_ms))
        return True

    async def end(self) -> bool:
        """Sign out: end the session and delete the cookie. False if there was no session, or it had ended."""
        token = self._token
        if token is None:
            return False
        ended = await self._try(self._sessions.revoke(token))
        self._sign_out()
        return ended

    async def end_one(self, id: str) -> bool:
        """End one session of this user by its id, from `all`. False if the user has no such session."""
        live = self._live
        if live is None:
            return False
        if id == live.id:
            return await self.end()
        return await self._try(self._sessions.revoke_id(live.user, id))

    async def end_others(self) -> int:
        """End all other sessions of this user. Returns their number."""
        if self._token is None or self._live is None:
            return 0
        return await self._try(self._sessions.revoke_others(self._token))

    async def end_all(self) -> int:
        """End all sessions of this user, including this one, in one atomic write. Returns their number."""
        live = self._live
        if live is None:
            return 0
        ended = await self._try(self._sessions.revoke_all(live.user))
        self._sign_out()
        return ended

    async def all(self) -> list[Live[R]]:
        """The live sessions of this user, latest login first; empty if no user is signed in."""
        self._used = True
        live = self._live
        return [] if live is None else await self._try(self._sessions.list_for(live.user))

    # --- changing data -------------------------------------------------------------------------------------

    async def update(self, **fields: Any) -> R | None:
        """Change some fields, and return the new data. Concurrent changes of other fields are kept.

        None if no user is signed in any more; then nothing was written. Raises BadValue for an unknown field.
        """
        return None if self._token is None else await self._apply(self._sessions.update(self._token, **fields))

    async def change(self, function: Callable[[R], R]) -> R | None:
        """Change the data by a function of its latest state, which may be called several times.

        None if no user is signed in any more; then nothing was written.
        """
        return None if self._token is None else await self._apply(self._sessions.change(self._token, function))

    async def reread(self) -> bool:
        """Read the session again, for example on a long-lived WebSocket. False if it has ended."""
        return self._token is not None and await self._apply(self._sessions.read(self._token)) is not None

    async def _apply(self, operation: Awaitable[Live[R] | Gone]) -> R | None:
        found = await self._try(operation)
        self._used = True
        if isinstance(found, Gone):
            self._lose(found.reason)
            return None
        self._set_live(found)
        return self.held

    # --- cookies -------------------------------------------------------------------------------------------

    @property
    def _token(self) -> str | None:
        """Most requests do not need it."""
        if self._has_new_token:
            return self._new_token
        return self._cookies.session.read(self._cookie_header.decode("latin-1"))

    def _set_token(self, token: str | None) -> None:
        self._new_token, self._has_new_token = token, True

    def _adopt(self, token: str, live: Live[R]) -> None:
        """Make this the current session, and set its cookie for as long as the session can last."""
        self._set_token(token)
        self._set_live(live)
        dated: Any = self.held
        left_ms = deadline_ms(dated.created_at) + self._sessions.policy.absolute_ms - deadline_ms(dated.last_seen_at)
        cookie = self._cookies.session
        self._set_cookie(cookie.name, cookie.set(token, left_ms // 1000))

    def _set_live(self, live: Live[R] | None, reason: Reason | None = None) -> None:
        self._live, self._reason, self._data = live, reason, None

    def _lose(self, reason: Reason) -> None:
        """Forget the session. The browser keeps its token."""
        self._set_live(None, reason)

    def _sign_out(self) -> None:
        """Forget the session, and delete the cookie."""
        self._set_token(None)
        self._set_live(None)
        self._set_cookie(self._cookies.session.name, self._cookies.session.clear())

    # --- for the middleware --------------------------------------------------------------------------------

    @property
    def model(self) -> type[R] | None:
        """The type of the data; None if no user is signed in."""
        return None if self._live is None else self._live.model

    @property
    def held(self) -> R | None:
        """The data. Unlike `data`, this does not make the response uncacheable."""
        if self._data is None and self._live is not None:
            self._data = self._live.session  # a copy for this request, if others share what was read
        return self._data

    def __deepcopy__(self, memo: object) -> Self:
        """Return itself: frameworks may copy the request state, but there is only one session."""
        return self

    def __repr__(self) -> str:
        return f"<BrowserSession of {'nobody' if self._live is None else repr(self._live.user)}>"
