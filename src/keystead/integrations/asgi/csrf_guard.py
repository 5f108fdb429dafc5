"""CSRF protection of an application with sessions."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import Scope, Send

from keystead.errors import BadDeclaration
from keystead.http import csrf as rules
from keystead.http.cookies import Cookie
from keystead.http.csrf_field import BodyAhead
from keystead.http.refusals import Refusal, send_refusal
from keystead.integrations.asgi.types import event_of, path_prefixes

_security = logging.getLogger("keystead.security")

CSRF_BODY_MAX_BYTES: Final = 1 << 20


class CsrfGuard:
    """Refuses requests that change data, unless a page of this site or a trusted origin made them.

    In development the refusal names the header and the field to send.
    """

    def __init__(
        self,
        cookie: Cookie,
        *,
        development: bool,
        exempt: Sequence[str],
        trusted_origins: Sequence[str],
        body_max_bytes: int,
    ) -> None:
        self._cookie = cookie
        self._development = development
        self._exempt = path_prefixes("csrf_exempt", exempt)
        self._trusted_origins = tuple(map(_check_origin, trusted_origins))
        self._body_max_bytes = body_max_bytes

    async def is_refused(self, scope: Scope, send: Send, cookies: str, body: BodyAhead) -> bool:
        """Refuse a forged request: log and respond."""
        try:
            await self._refuse_forged(scope, cookies, body)
        except Refusal as refusal:
            _security.warning("a request was refused: %s", refusal, extra=event_of("forged-request", scope))
            await send_refusal(scope, send, refusal)
            return True
        return False

    async def _refuse_forged(self, scope: Scope, cookies: str, body: BodyAhead) -> None:
        """Raises Refusal unless a page of this site or a trusted origin made the request and sent the CSRF token."""
        if self._exempt and scope["path"].startswith(self._exempt):
            return
        headers, cookie = Headers(scope=scope), self._cookie
        own = f"{'http' if self._development else 'https'}://{headers.get('host', '')}".lower()
        rules.refuse_cross_site(headers, (own, *self._trusted_origins), development=self._development)
        if scope["type"] == "websocket":  # a page cannot send a header with it
            return
        stored, given = cookie.read(cookies), headers.get(rules.HEADER)
        if given is None and rules.is_csrf_token(stored, stored):  # without a cookie, the body need not be read
            given = await body.find(headers.get("content-type", ""), self._body_max_bytes)
        if not rules.is_csrf_token(given, stored):
            raise rules.csrf_refusal(cookie if self._development else None) if not body.is_cut else _body_too_large()


def _body_too_large() -> Refusal:
    sentence = "The body is too large to search for the field csrf; send the token in the header x-csrf-token."
    return Refusal(403, "CSRF", sentence)


def _check_origin(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.path.strip("/") or parts.query:
        raise BadDeclaration(f"an origin is written as https://app.example.com, not {text!r}")
    return f"{parts.scheme}://{parts.netloc}".lower()
