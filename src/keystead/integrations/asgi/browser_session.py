"""The session of the browser that a request came from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
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
    """A route needs a session, and there is none. Unless the application catches it, the answer is a 401."""


@dataclass(frozen=True)
class Cookies:
    """The two cookies of an application: the token of its session, and the one against forged requests."""

    session: Cookie
    csrf: Cookie


class BrowserSession(Generic[R]):
    """What `request.state.session` is: the session of this browser. True: somebody is signed in.

    `data`, `id`, `user` and `gone` were read when the request came, in one round trip. A verb writes at once, and its
    cookie goes out with the answer: so `start` and `rotate` come before the answer begins, and cannot be done on a
    WebSocket. Once any of it was looked at, the answer says `Cache-Control: no-store`, unless the application says
    something else there; and so does an answer that is streamed to a browser with cookies, for it may still come to
    look. (Streamed: it has no Content-Length.)

    Only a verb that signs out takes the cookie away. A token that turns out to be dead stays with the browser, where it
    does no harm: an answer that took it away could come after that of a login in another tab, and take the new one.

    What has ended stays so: a verb of a request that is under way does not revive it, and says that it is gone. A verb
    raises StoreUnavailable where the store does not answer, which is a 503 where the application does not catch it.
    """

    __slots__ = (
        "_begun",
        "_cookie_header",
        "_cookies",
        "_csrf",
        "_excuse",
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
        self._excuse: tuple[BaseException, Refusal] | None = None
        self._live: Live[R] | None = None
        self._reason: Reason | None = None
        if found:
            self._live = found
        elif found is not None:
            self._lose(found.reason)

    # --- what was read -------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        """Whether somebody is signed in."""
        self._used = True
        return self._live is not None

    @property
    def data(self) -> R | None:
        """The data of the session; None if nobody is signed in.

        It is a copy: change the session by `update` or `change`.
        """
        self._used = True
        return None if self._live is None else self._live.session

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
        """Why the session is no more whose token the browser still had: `expired`, `evicted`, `revoked`, `unknown` or
        `unreadable`. None: it is alive, or there was no token."""
        self._used = True
        return self._reason

    def require(self) -> R:
        """The data of the session. Raises SignedOut if nobody is signed in."""
        data = self.data
        if data is None:
            signed_out = SignedOut("nobody is signed in")
            self._excuse = signed_out, Refusal(401, "SIGNED_OUT", "You are not signed in, or no longer.")
            raise signed_out
        return data

    @property
    def csrf_token(self) -> str:
        """What a request that changes something must send back, in the header `x-csrf-token` or in the field `csrf`.

        A browser that has none gets one, in a cookie that lasts until it is closed.
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
        """Sign in the user whom `session` names: always a new session with a new token, whatever the browser sent.

        The session that it came with, if any, ends first. Raises CapReached where the policy refuses one more.
        """
        self._refuse_without_cookies("start")
        await self.end()
        new = await self._try(self._sessions.create(session))
        found = await self._try(self._sessions.read(new.token))
        if isinstance(found, Gone):  # ended from elsewhere in this very moment
            self._lose(found.reason)
        else:
            self._hold(new.token, found)
        return new.session

    async def rotate(self) -> bool:
        """Give the browser a new token for the same session, as after a change of rights. False: there is none.

        Requests that are under way may come with the old token for `policy.grace`. Of several that rotate at one
        moment one does so, and the others leave it at that.
        """
        self._refuse_without_cookies("rotate")
        if self._token is None or self._live is None:
            return False
        new = await self._try(self._sessions.rotate(self._token))
        if isinstance(new, Gone):
            return await self.reread()
        self._hold(new.token, replace(self._live, id=new.id, session=new.session, aged=False))
        return True

    async def end(self) -> bool:
        """Sign out: end the session for good and take the cookie away. False: there was none, or it had ended."""
        token = self._token
        if token is None:
            return False
        ended = await self._try(self._sessions.revoke(token))
        self._sign_out()
        return ended

    async def end_one(self, id: str) -> bool:
        """End one session of this user by the id that `all` shows. False if the user has none of this id."""
        live = self._live
        if live is None:
            return False
        if id == live.id:
            return await self.end()
        return await self._try(self._sessions.revoke_id(live.user, id))

    async def end_others(self) -> int:
        """End all other sessions of this user; how many there were."""
        if self._token is None or self._live is None:
            return 0
        return await self._try(self._sessions.revoke_others(self._token))

    async def end_all(self) -> int:
        """End all sessions of this user, this one too; how many there were. One atomic write."""
        live = self._live
        if live is None:
            return 0
        ended = await self._try(self._sessions.revoke_all(live.user))
        self._sign_out()
        return ended

    async def all(self) -> list[Live[R]]:
        """The sessions of this user that are alive, the latest login first; empty if nobody is signed in."""
        self._used = True
        live = self._live
        return [] if live is None else await self._try(self._sessions.list_for(live.user))

    # --- what it holds -------------------------------------------------------------------------------------

    async def update(self, **fields: Any) -> R | None:
        """Change some fields and leave the others, whoever changes those at the same moment. What it holds then.

        None: nobody is signed in, or no longer; then nothing was written. Raises BadValue for an unknown field.
        """
        return None if self._token is None else await self._keep_result(self._sessions.update(self._token, **fields))

    async def change(self, function: Callable[[R], R]) -> R | None:
        """Change what the session holds by a function of its newest state, which may be called several times.

        None: nobody is signed in, or no longer; then nothing was written.
        """
        return None if self._token is None else await self._keep_result(self._sessions.change(self._token, function))

    async def reread(self) -> bool:
        """Read the session again, as on a WebSocket that stays open for long. False: it has ended meanwhile."""
        return self._token is not None and await self._keep_result(self._sessions.read(self._token)) is not None

    async def _keep_result(self, doing: Awaitable[Live[R] | Gone]) -> R | None:
        found = await self._try(doing)
        self._used = True
        if isinstance(found, Gone):
            self._lose(found.reason)
            return None
        self._live, self._reason = found, None
        return found.session

    # --- cookies -------------------------------------------------------------------------------------------

    def _hold(self, token: str, live: Live[R]) -> None:
        """From now on this is the session, and the browser gets its token, for as long as the session can last."""
        self._token, self._live, self._reason = token, live, None
        dated: Any = live.session
        left_ms = deadline_ms(dated.created_at) + self._sessions.policy.absolute_ms - deadline_ms(dated.last_seen_at)
        cookie = self._cookies.session
        self._set_cookies[cookie.name] = cookie.set(token, left_ms // 1000)

    def _lose(self, reason: Reason) -> None:
        """Forget the session. The browser keeps its token."""
        self._live, self._reason = None, reason

    def _sign_out(self) -> None:
        """Forget the session, and delete the cookie."""
        self._token = self._live = self._reason = None
        self._set_cookies[self._cookies.session.name] = self._cookies.session.clear()

    def _refuse_without_cookies(self, what: str) -> None:
        if not self._is_http:
            raise RuntimeError(f"{what} gives the browser a cookie, which a WebSocket cannot; do it in a request")
        if self._begun:
            raise RuntimeError(f"{what} gives the browser a cookie; do it before the answer begins")

    async def _try(self, doing: Awaitable[T]) -> T:
        try:
            return await doing
        except KeysteadError as error:
            code = code_of(error)
            if isinstance(error, Unreadable):
                log_unreadable(None, error)
            if code not in ("INTERNAL", "BAD_REQUEST"):  # else it is a fault of the program
                self._excuse = error, refusal_with(code)
            raise

    # --- for the middleware --------------------------------------------------------------------------------

    @property
    def held(self) -> R | None:
        """The data, without counting as use of the session."""
        return None if self._live is None else self._live.session

    def sending(self, message: Message) -> Awaitable[None]:
        """Send a message of the application, with the headers that are due."""
        send = self._send
        if self._begun:
            return _nothing() if self._replaced else send(message)
        if message["type"] == "http.response.start":
            # A framework that makes a 500 of every error has done so with one that we can say more exactly.
            if message["status"] == 500 and self._excuse is not None:
                return self._respond(self._excuse[1])
            self._begun = True
            if self._used or self._set_cookies or (self._cookie_header and _is_streamed(message)):
                message = {**message, "headers": self._headers(message.get("headers", ()))}
        return send(message)

    async def respond_to(self, error: BaseException) -> bool:
        """Respond instead of the application, which raised this; False: that is its own matter, or it is too late."""
        if self._replaced:
            return True
        if self._begun or not self._is_http or self._excuse is None or self._excuse[0] is not error:
            return False
        await self._respond(self._excuse[1])
        return True

    async def _respond(self, refusal: Refusal) -> None:
        self._begun = self._replaced = True
        await send_refusal({"type": "http"}, self._send, refusal, self._cookie_headers())

    def _headers(self, given: Any) -> list[Header]:
        if self._set_cookies:  # never to be kept by anybody, whatever the application says
            return [*(one for one in given if one[0] != _CACHE_CONTROL), _NO_STORE, *self._cookie_headers()]
        headers = list(given)
        for name, _ in headers:
            if name == _CACHE_CONTROL:
                return headers
        headers.append(_NO_STORE)
        return headers

    def _cookie_headers(self) -> list[Header]:
        return [(b"set-cookie", value.encode("latin-1")) for value in self._set_cookies.values()]

    def __deepcopy__(self, memo: object) -> Self:
        """Itself: frameworks may copy the state of a request, and there is one session."""
        return self

    def __repr__(self) -> str:
        return f"<BrowserSession of {'nobody' if self._live is None else repr(self._live.user)}>"


def _is_streamed(start: Message) -> bool:
    """Whether a body may come whose end the application does not know yet."""
    return start["status"] not in _WITHOUT_BODY and all(name != _CONTENT_LENGTH for name, _ in start.get("headers", ()))


async def _nothing() -> None:
    """Drops the rest of a response that was replaced."""
