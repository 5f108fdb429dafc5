"""The response to a request with a session: cookies and cache headers are added, and errors of the session answered."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypeVar

from starlette.types import Message, Send

from keystead.errors import KeysteadError, Unreadable
from keystead.http.cookies import Cookie
from keystead.http.csrf import csrf_token
from keystead.http.refusals import Refusal, code_of, refusal_with, send_refusal
from keystead.integrations.asgi.types import Header
from keystead.schema.unreadable import log_unreadable

T = TypeVar("T")

_CACHE_CONTROL: Final = b"cache-control"
_NO_STORE: Final[Header] = (_CACHE_CONTROL, b"no-store")
_CONTENT_LENGTH: Final = b"content-length"
_WITHOUT_BODY: Final = frozenset({204, 304})


@dataclass(frozen=True)
class Cookies:
    """The session cookie and the CSRF cookie of an application."""

    session: Cookie
    csrf: Cookie


class SessionResponse:
    """Passes on the messages of the application, with the cookies of its session."""

    # Defaults of the class cost a request nothing.
    _csrf: str | None = None
    _begun = _replaced = _used = False
    _set_cookies: Mapping[str, str] = MappingProxyType({})
    _failure: tuple[BaseException, Refusal] | None = None

    _cookies: Cookies
    _cookie_header: bytes
    _send: Send
    _is_http: bool  # false on a WebSocket

    @property
    def csrf_token(self) -> str:
        """The CSRF token, which unsafe requests must send in the header `x-csrf-token` or in the field `csrf`.

        A browser without one gets a new one, in a cookie that lasts until the browser is closed.
        """
        self._used = True
        if self._csrf is None:
            given = self._cookies.csrf.read(self._cookie_header.decode("latin-1"))
            self._csrf = csrf_token(given)
            if self._csrf != given:
                self._refuse_without_cookies("csrf_token")
                self._set_cookie(self._cookies.csrf.name, self._cookies.csrf.set(self._csrf))
        return self._csrf

    # --- for the middleware --------------------------------------------------------------------------------

    needs_finish: ClassVar[bool] = False

    async def finish(self) -> None:
        """Called when the application is done with the request."""

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

    def _set_cookie(self, name: str, value: str) -> None:
        self._set_cookies = {**self._set_cookies, name: value}

    def _refuse_without_cookies(self, what: str) -> None:
        if not self._is_http:
            raise RuntimeError(f"{what} sets a cookie, which a WebSocket cannot do; call it in an HTTP request")
        if self._begun:
            raise RuntimeError(f"{what} sets a cookie; call it before the response begins")

    def _headers(self, given: Any) -> list[Header]:
        if self._set_cookies:  # must never be cached, even if the application allows it
            return [*(one for one in given if one[0] != _CACHE_CONTROL), _NO_STORE, *self._cookie_headers()]
        for name, _ in given:
            if name == _CACHE_CONTROL:
                return list(given)
        return [*given, _NO_STORE]

    def _cookie_headers(self) -> list[Header]:
        return [(b"set-cookie", value.encode("latin-1")) for value in self._set_cookies.values()]


def _is_streamed(start: Message) -> bool:
    """Whether a body of unknown length may follow."""
    for name, _ in start.get("headers", ()):
        if name == _CONTENT_LENGTH:
            return False
    return start["status"] not in _WITHOUT_BODY


async def _drop() -> None:
    """Drop the rest of a response that was replaced."""
