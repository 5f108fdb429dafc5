"""The CSRF token in a request body: found before the application reads the body, which then gets every byte."""

from __future__ import annotations

import json
import re
from typing import Final
from urllib.parse import unquote_to_bytes

from starlette.types import Message, Receive

from keystead.http.csrf import FIELD

# Limits on untrusted bodies, which are parsed before the token is known.
MESSAGES_MAX: Final = 10_000  # of a body; honest clients send a kilobyte or more in each
PARTS_MAX: Final = 1_000  # of a multipart form
_PART_HEAD_MAX_BYTES: Final = 4_096
_ENCODED_MAX_BYTES: Final = 3 * 43  # a token with every character written as %XX

_PART_NAME = re.compile(rb'(?:^|[\s;])name=(?:"([^"\r\n]*)"|([^\s;"]+))', re.IGNORECASE)


class BodyAhead:
    """Receives a body ahead of the application. `receive` passes it on, the part read so far as one message.

    is_cut   whether `find` did not read the whole body, and may have missed the field
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._read: bytes | None = None
        self._disconnect: Message | None = None
        self.is_cut = False

    async def find(self, content_type: str, max_bytes: int) -> str | None:
        """The field in the first `max_bytes`; None if it is missing or incomplete."""
        find = _FINDERS.get(content_type.partition(";")[0].strip().lower())
        if find is None:
            return None
        body = await self._read_ahead(max_bytes)
        return find(body, content_type, not self.is_cut).decode("latin-1")

    async def _read_ahead(self, max_bytes: int) -> bytes:
        body = bytearray()
        self.is_cut = True
        for _ in range(MESSAGES_MAX):
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._disconnect = message
                break
            body += message.get("body", b"")
            self.is_cut = message.get("more_body", False)
            if not self.is_cut or len(body) > max_bytes:
                break
        self._read = bytes(body)
        return self._read

    async def receive(self) -> Message:
        if self._read is not None:
            body, self._read = self._read, None
            return {"type": "http.request", "body": body, "more_body": self.is_cut}
        return self._disconnect or await self._receive()


def _in_json(body: bytes, content_type: str, ended: bool) -> bytes:
    if not ended or b'"csrf"' not in body:
        return b""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return b""
    field = value.get(FIELD) if isinstance(value, dict) else None
    return field.encode("utf-8", "replace") if isinstance(field, str) else b""


def _in_form(body: bytes, content_type: str, ended: bool) -> bytes:
    """The first field of this name. Browsers do not encode the name, so nothing else is decoded."""
    fields = b"&" + body
    at = fields.find(b"&csrf=")
    end = fields.find(b"&", at + 1)
    if at < 0 or (end < 0 and not ended):  # the last field may be incomplete
        return b""
    value = fields[at + len(b"&csrf=") : end if end > 0 else None]
    return unquote_to_bytes(value) if len(value) <= _ENCODED_MAX_BYTES else b""


def _in_multipart(body: bytes, content_type: str, ended: bool) -> bytes:
    """The field, if it is complete and among the first parts: forms should put it before their files."""
    found = re.search(r'boundary="?([^";\s]{1,70})', content_type, re.IGNORECASE)
    if found is None:
        return b""
    edge = b"\r\n--" + found[1].encode("latin-1")
    for part in (b"\r\n" + body).split(edge, PARTS_MAX + 1)[1:-1]:
        head, blank, value = part.partition(b"\r\n\r\n")
        name = _PART_NAME.search(head) if blank and len(head) <= _PART_HEAD_MAX_BYTES else None
        if name and (name[1] or name[2]) == FIELD.encode():
            return value
    return b""


_FINDERS: Final = {
    "application/json": _in_json,
    "application/x-www-form-urlencoded": _in_form,
    "multipart/form-data": _in_multipart,
}
