"""Uncached JSON responses, with cookies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from keystead.http.refusals import NO_STORE

R = TypeVar("R", bound=Response)


def json_response(
    body: BaseModel, *cookies: str, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return with_cookies(JSONResponse(body.model_dump(mode="json"), status, {**NO_STORE, **(headers or {})}), cookies)


def with_cookies(response: R, cookies: Iterable[str]) -> R:
    """The same response, with these `Set-Cookie` headers."""
    for cookie in cookies:
        response.headers.append("set-cookie", cookie)
    return response
