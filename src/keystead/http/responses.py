"""Uncached JSON responses, with cookies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias, TypeVar

from pydantic import BaseModel
from starlette.responses import Response

from keystead.http.refusals import NO_STORE

R = TypeVar("R", bound=Response)

RawHeaders: TypeAlias = tuple[tuple[bytes, bytes], ...]


def raw_headers(content_type: str, headers: Mapping[str, str]) -> RawHeaders:
    """Headers in the form that is sent."""
    pairs = {**headers, "content-type": content_type}
    return tuple((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in pairs.items())


_JSON: Final = raw_headers("application/json", NO_STORE)


class RawResponse(Response):
    """A response with a complete body and with headers that were encoded before: Starlette encodes them each time."""

    def __init__(self, body: bytes, headers: RawHeaders = _JSON, status: int = 200) -> None:
        self.status_code = status
        self.background = None
        self.body = body
        self.raw_headers = [(b"content-length", b"%d" % len(body)), *headers]


def json_response(
    body: BaseModel, *cookies: str, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    encoded = _JSON if headers is None else raw_headers("application/json", {**NO_STORE, **headers})
    return with_cookies(RawResponse(body.model_dump_json().encode(), encoded, status), cookies)


def with_cookies(response: R, cookies: Iterable[str]) -> R:
    """The same response, with these `Set-Cookie` headers."""
    for cookie in cookies:
        response.headers.append("set-cookie", cookie)
    return response
