"""Cross-site request forgery: a request that changes something shows that a page of this site made it.

Double submit: the token in the cookie, which no other site can read or set, comes a second time in the header
`x-csrf-token` or in the field `csrf` of a form or of JSON. And where the browser itself says that another site made the
request (`Sec-Fetch-Site`, `Origin`, or else `Referer`), the token is not even looked at.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Iterable
from hmac import compare_digest
from typing import Final
from urllib.parse import unquote_to_bytes, urlsplit

from keystead.errors import BadDeclaration
from keystead.integrations.asgi.answers import BODY_TOO_LARGE, CROSS_SITE, CSRF, Answer
from keystead.integrations.asgi.types import Header, Message, Receive

TOKEN_BYTES: Final = 32
FIELD: Final = "csrf"
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})

# Strangers send bodies, too: how much is looked at before it is known that one has the token is bounded.
MESSAGES_MAX: Final = 10_000  # in which a body arrives; honest ones bring a kilobyte and more each
PARTS_MAX: Final = 1_000  # of a multipart form
_PART_HEAD_MAX_BYTES: Final = 4_096
_ENCODED_MAX_BYTES: Final = 3 * 43  # a token of which every character is written as %XX

_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")
_NAMES = (b"host", b"origin", b"referer", b"sec-fetch-site", b"x-csrf-token", b"content-type")
_PART_NAME = re.compile(rb'(?:^|[\s;])name=(?:"([^"\r\n]*)"|([^\s;"]+))', re.IGNORECASE)


def new_csrf_token() -> str:
    return secrets.token_urlsafe(TOKEN_BYTES)


def is_csrf_token(text: str | None) -> bool:
    return text is not None and _TOKEN.fullmatch(text) is not None


class Csrf:
    """`own_scheme` is that of the site: https, or http in development. Only `trusted_origins` and the site's own host
    may make requests; `max_bytes` of a body are read to find the field."""

    def __init__(self, own_scheme: str, trusted_origins: Iterable[str], max_bytes: int) -> None:
        self._own = own_scheme
        self._trusted = frozenset(map(_origin_of, trusted_origins))
        self._max_bytes = max_bytes

    def is_foreign(self, headers: Iterable[Header]) -> bool:
        """Whether the browser says that another site made the request. A program that says nothing is not."""
        return self._is_foreign(_picked(headers))

    async def problem(
        self, token: str | None, headers: Iterable[Header], receive: Receive
    ) -> tuple[Answer | None, Receive]:
        """What is wrong with the request, None: nothing; and what is to be received from now on.

        Of a body that had to be read, the application receives every byte again.
        """
        named = _picked(headers)
        if self._is_foreign(named):
            return CROSS_SITE, receive
        if token is None or not is_csrf_token(token):
            return CSRF, receive
        given = named.get(b"x-csrf-token")
        if given is not None:
            return (None if _same(given, token) else CSRF), receive
        content_type = named.get(b"content-type", b"")
        kind = content_type.partition(b";")[0].strip().lower()
        if kind not in _FIELDS:
            return CSRF, receive
        read = _Read(receive)
        await read.until(self._max_bytes)
        if _same(_FIELDS[kind](bytes(read.body), content_type, read.ended), token):
            return None, read.again
        return (CSRF if read.ended else BODY_TOO_LARGE), read.again

    def _is_foreign(self, named: dict[bytes, bytes]) -> bool:
        origin = named.get(b"origin")
        if origin is None and (referer := named.get(b"referer")):
            try:
                parts = urlsplit(referer.decode("latin-1"))
            except ValueError:  # such as http://[, which is no page of ours
                return True
            origin = f"{parts.scheme}://{parts.netloc}".encode("latin-1")
        if origin is not None:
            text = origin.decode("latin-1").lower()
            return (
                text != f"{self._own}://{named.get(b'host', b'').decode('latin-1').lower()}"
                and text not in self._trusted
            )
        return named.get(b"sec-fetch-site", b"none") not in (b"same-origin", b"none")


class _Read:
    """A body that was received ahead of the application, and is handed on to it as one message."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._handed_on = False
        self._disconnect: Message | None = None
        self.body = bytearray()
        self.ended = False

    async def until(self, max_bytes: int) -> None:
        """Receive the body as far as it is looked at. `ended`: that is all of it."""
        for _ in range(MESSAGES_MAX):
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._disconnect = message
                return
            self.body += message.get("body", b"")
            self.ended = not message.get("more_body", False)
            if self.ended or len(self.body) > max_bytes:
                return

    async def again(self) -> Message:
        if not self._handed_on:
            self._handed_on = True
            body, self.body = bytes(self.body), bytearray()
            return {"type": "http.request", "body": body, "more_body": not self.ended}
        return self._disconnect or await self._receive()


# --- the field, in what a body may be ----------------------------------------------------------------------


def _in_json(body: bytes, content_type: bytes, ended: bool) -> bytes:
    if not ended or b'"csrf"' not in body:
        return b""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return b""
    field = value.get(FIELD) if isinstance(value, dict) else None
    return field.encode("utf-8", "replace") if isinstance(field, str) else b""


def _in_form(body: bytes, content_type: bytes, ended: bool) -> bytes:
    """The first field of this name, which no browser has a reason to encode. Nothing else is decoded."""
    fields = b"&" + body
    at = fields.find(b"&csrf=")
    end = fields.find(b"&", at + 1)
    if at < 0 or (end < 0 and not ended):  # the last field may not be there in full
        return b""
    value = fields[at + len(b"&csrf=") : end if end > 0 else None]
    return unquote_to_bytes(value) if len(value) <= _ENCODED_MAX_BYTES else b""


def _in_multipart(body: bytes, content_type: bytes, ended: bool) -> bytes:
    """The field, where it is there in full and among the first parts: put it before the files of a form."""
    found = re.search(rb'boundary="?([^";\s]{1,70})', content_type, re.IGNORECASE)
    if found is None:
        return b""
    for part in (b"\r\n" + body).split(b"\r\n--" + found[1], PARTS_MAX + 1)[1:-1]:
        head, blank, value = part.partition(b"\r\n\r\n")
        name = _PART_NAME.search(head) if blank and len(head) <= _PART_HEAD_MAX_BYTES else None
        if name and (name[1] or name[2]) == FIELD.encode():
            return value
    return b""


_FIELDS: Final = {
    b"application/json": _in_json,
    b"application/x-www-form-urlencoded": _in_form,
    b"multipart/form-data": _in_multipart,
}


def _picked(headers: Iterable[Header]) -> dict[bytes, bytes]:
    """The headers that matter here; of one that comes twice, the first."""
    named: dict[bytes, bytes] = {}
    for name, value in headers:
        if name in _NAMES:
            named.setdefault(name, value)
    return named


def _same(given: bytes, token: str) -> bool:
    return compare_digest(given, token.encode())


def _origin_of(text: str) -> str:
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.netloc or parts.path.strip("/") or parts.query:
        raise BadDeclaration(f"an origin is written as https://app.example.com, not {text!r}")
    return f"{parts.scheme}://{parts.netloc}".lower()
