"""The session of the browser that a request came from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, Self, TypeVar

from pydantic import BaseModel
from starlette.types import Message, Send

from keystead.errors import KeysteadError, Unreadable
from keystead.http.cookies import Cookie
from keystead.http.csrf import csrf_token
from keystead.http.refusals import Refusal, code_of, refusal_with, send_refusal
from keystead.integrations.asgi.types import Header
from keystead.parts.sessions import Gone, Live, Sessions
from keystead.parts.sessions.session_record import Reason
from keystead.schema.times import deadline_ms
from keystead.schema.unreadable import log_unreadable

R = TypeVar("R", bound=BaseModel)
T = TypeVar("T")

_CACHE_CONTROL: Final = b"cache-control"
_NO_STORE: Final[Header] = (_CACHE_CONTROL, b"no-store")
_CONTENT_LENGTH: Final = b"content-length"
_WITHOUT_BODY: Final = frozenset({204, 304})


class SignedOut(Exception):
    """A route needs a session, and there is none. Unless the application catches it, the response is a 401."""


@dataclass(frozen=True)
class Cookies:
    """The session cookie and the CSRF cookie of an application."""

    session: Cookie
    csrf: Cookie


class BrowserSession(Generic[R]):
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

    __slots__ = (
        "_begun",
        "_cookie_header",
        "_cookies",
        "_csrf",
        "_data",
        "_failure",
        "_is_http",
        "_live",
        "_reason",
        "_replaced",
        "_send",
        "_sessions",
        "_set_cookies",
        "_token",
        "_used",
    )

    def __init__(
        self,
        sessions: Sessions[R],
        cookies: Cookies,
        cookie_header: str,
        send: Send,
        is_http: bool,
        token: str | None,
        found: Live[R] | Gone | None,
    ) -> None:
        """For the middleware. `is_http` is false on a WebSocket; `found` is None if there was no token."""
        self._sessions = sessions
        self._cookies = cookies
        self._cookie_header = cookie_header
        self._send = send
        self._is_http = is_http
        self._token = token
        self._csrf: str | None = None
        self._begun = self._replaced = self._used = False
        self._set_cookies: dict[str, str] = {}
        self._failure: tuple[BaseException, Refusal] | None = None
        self._data: R | None = None  # once it was asked for
        self._live: Live[R] | None
        self._reason: Reason | None
        if isinstance(found, Gone):
            self._live, self._reason = None, found.reason
        else:
            self._live, self._reason = found, None

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

    @property
    def csrf_token(self) -> str:
        """The CSRF token, which unsafe requests must send in the header `x-csrf-token` or in the field `csrf`.

        A browser without one gets a new one, in a cookie that lasts until the browser is closed.
        """
        self._used = True
        if self._csrf is None:
            given = self._cookies.csrf.read(self._cookie_header)
            self._csrf = csrf_token(given)
            if self._csrf != given:
                self._refuse_without_cookies("csrf_token")
                self._set_cookies[self._cookies.csrf.name] = self._cookies.csrf.set(self._csrf)
        return self._csrf

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

    def _adopt(self, token: str, live: Live[R]) -> None:
        """Make this the current session, and set its cookie for as long as the session can last."""
        self._token = token
        self._set_live(live)
        dated: Any = self.held
        left_ms = deadline_ms(dated.created_at) + self._sessions.policy.absolute_ms - deadline_ms(dated.last_seen_at)
        cookie = self._cookies.session
        self._set_cookies[cookie.name] = cookie.set(token, left_ms // 1000)

    def _set_live(self, live: Live[R] | None, reason: Reason | None = None) -> None:
        self._live, self._reason, self._data = live, reason, None

    def _lose(self, reason: Reason) -> None:
        """Forget the session. The browser keeps its token."""
        self._set_live(None, reason)

    def _sign_out(self) -> None:
        """Forget the session, and delete the cookie."""
        self._token = None
        self._set_live(None)
        self._set_cookies[self._cookies.session.name] = self._cookies.session.clear()

    def _refuse_without_cookies(self, what: str) -> None:
        if not self._is_http:
            raise RuntimeError(f"{what} sets a cookie, which a WebSocket cannot do; call it in an HTTP request")
        if self._begun:
            raise RuntimeError(f"{what} sets a cookie; call it before the response begins")

    async def _try(self, operation: Awaitable[T]) -> T:
        """Run an operation. Remember its error, so that an uncaught one gets the right response."""
        try:
            return await operation
        except KeysteadError as error:
            code = code_of(error)
            if isinstance(error, Unreadable):
                log_unreadable(None, error)
            if code not in ("INTERNAL", "BAD_REQUEST"):  # those are bugs of the program
                self._failure = error, refusal_with(code)
            raise

    # --- for the middleware --------------------------------------------------------------------------------

    @property
    def held(self) -> R | None:
        """The data. Unlike `data`, this does not make the response uncacheable."""
        if self._data is None and self._live is not None:
            self._data = self._live.session  # a copy for this request, if others share what was read
        return self._data

    def send(self, message: Message) -> Awaitable[None]:
        """Send a message of the application, with cookies and cache headers added."""
        send = self._send
        if self._begun:
            return _drop() if self._replaced else send(message)
        if message["type"] == "http.response.start":
            # Some frameworks turn every error into a 500; replace it with the more specific response.
            if message["status"] == 500 and self._failure is not None:
                return self._respond(self._failure[1])
            self._begun = True
            if self._used or self._set_cookies or (self._cookie_header and _is_streamed(message)):
                message = {**message, "headers": self._headers(message.get("headers", ()))}
        return send(message)

    async def respond_to(self, error: BaseException) -> bool:
        """Respond to an error that the application raised. False if it is not ours, or the response has begun."""
        if self._replaced:
            return True
        if self._begun or not self._is_http or self._failure is None or self._failure[0] is not error:
            return False
        await self._respond(self._failure[1])
        return True

    async def _respond(self, refusal: Refusal) -> None:
        self._begun = self._replaced = True
        await send_refusal({"type": "http"}, self._send, refusal, self._cookie_headers())

    def _headers(self, given: Any) -> list[Header]:
        if self._set_cookies:  # must never be cached, even if the application allows it
            return [*(one for one in given if one[0] != _CACHE_CONTROL), _NO_STORE, *self._cookie_headers()]
        for name, _ in given:
            if name == _CACHE_CONTROL:
                return list(given)
        return [*given, _NO_STORE]

    def _cookie_headers(self) -> list[Header]:
        return [(b"set-cookie", value.encode("latin-1")) for value in self._set_cookies.values()]

    def __deepcopy__(self, memo: object) -> Self:
        """Return itself: frameworks may copy the request state, but there is only one session."""
        return self

    def __repr__(self) -> str:
        return f"<BrowserSession of {'nobody' if self._live is None else repr(self._live.user)}>"


def _is_streamed(start: Message) -> bool:
    """Whether a body of unknown length may follow."""
    return start["status"] not in _WITHOUT_BODY and all(name != _CONTENT_LENGTH for name, _ in start.get("headers", ()))


async def _drop() -> None:
    """Drop the rest of a response that was replaced."""
