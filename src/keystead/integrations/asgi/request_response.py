"""The response to a request with `request.session`: what has changed is stored when it begins."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, is_dataclass
from enum import Enum
from secrets import token_hex
from typing import Any, Final

from pydantic import BaseModel
from starlette.types import Message, Scope, Send

from keystead.errors import BadValue, CapReached, KeysteadError, StoreError
from keystead.http.rate_limits import too_many_requests
from keystead.http.refusals import Refusal
from keystead.integrations.asgi.request_session import RequestSession
from keystead.integrations.asgi.session_layer import log
from keystead.integrations.asgi.session_response import Cookies, SessionResponse
from keystead.integrations.asgi.types import Header
from keystead.parts.limit import LimitReached

_VARY: Final = b"vary"


class RequestResponse(SessionResponse):
    """The response to a request with a `RequestSession`, which it stores when it begins."""

    session: RequestSession
    _has_failed = False

    def __init__(
        self,
        cookies: Cookies,
        cookie_header: bytes,
        send: Send,
        scope: Scope,
        client: Callable[[Scope], str] | None,
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        self._cookies = cookies
        self._cookie_header = cookie_header
        self._send = send
        self._is_http = scope["type"] == "http"
        self.scope = scope
        self.loop = loop
        self._client = client

    @property
    def client(self) -> str:
        """The address of the client. One that is not known shares the room for its sessions with nobody."""
        peer = self.scope.get("client")
        found = self._client(self.scope) if self._client else peer and peer[0]
        return found or token_hex(16)

    def send(self, message: Message) -> Awaitable[None]:
        if not self._begun and message["type"] == "http.response.start":
            self._has_failed = message["status"] >= 500
            if not self._has_failed and self._is_touched:
                return self._save_and_send(message)
        return super().send(message)

    needs_finish = True

    async def finish(self) -> None:
        if self._has_failed or self._replaced or not self._is_touched:
            return
        try:
            await self._take_over_replaced()
            await self.session.save()
        except (StoreError, LimitReached, CapReached, RuntimeError) as error:
            log.error("what changed in a session after its response began was not stored: %s", error)

    @property
    def _is_touched(self) -> bool:
        return self.session._accessed or self.scope.get("session") is not self.session

    async def _save_and_send(self, message: Message) -> None:
        try:
            await self._take_over_replaced()
            await self.session.save()
        except LimitReached as error:
            return await self._respond(too_many_requests(error))
        except CapReached:
            return await self._respond(Refusal(429, "RATE_LIMITED", "Too many sessions; end one of them first."))
        except KeysteadError as error:
            if self._failure is None or self._failure[0] is not error:
                raise
            return await self._respond(self._failure[1])
        return await super().send(message)

    async def _take_over_replaced(self) -> None:
        """`scope["session"]` may be another object now, as with `set_session` and `clear_session` of Litestar."""
        given, session = self.scope.get("session"), self.session
        if given is session:
            return
        await session.load()
        self._used = True
        if given is None or isinstance(given, Enum):
            session.clear()
        else:
            session._replace(_data_of(given))

    def set_session_cookie(self, token: str | None, max_age_s: int = 0) -> None:
        cookie = self._cookies.session
        self._set_cookie(cookie.name, cookie.clear() if token is None else cookie.set(token, max_age_s))

    def _headers(self, given: Any) -> list[Header]:
        headers = super()._headers(given)
        varies = any(name == _VARY and (b"cookie" in value.lower() or b"*" in value) for name, value in given)
        return headers if varies or not self._used else [*headers, (_VARY, b"Cookie")]


def _data_of(given: Any) -> dict[str, Any]:
    """The data of an object that was put in place of the session."""
    if isinstance(given, Mapping):
        return dict(given)
    if isinstance(given, BaseModel):
        return given.model_dump(mode="json")
    if is_dataclass(given) and not isinstance(given, type):
        return asdict(given)
    if hasattr(given, "__struct_fields__"):  # msgspec
        return {name: getattr(given, name) for name in given.__struct_fields__}
    raise BadValue(f"the session was replaced by a {type(given).__name__}; it must be a dict, a model or a dataclass")
