"""What the routes of the demo provider share: forms that come in, and pages and errors that go out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl

from fastapi import Request
from fastapi.responses import HTMLResponse, JSONResponse

from keystead.errors import KeysteadError
from keystead.http.bearer import parse_bearer, www_authenticate
from keystead.http.pages import PAGE_HEADERS, content_policy
from keystead.http.refusals import NO_STORE, Refusal
from keystead.server.page_templates import TEMPLATES

MAX_FORM_BYTES: Final = 16 * 1024
TOKEN: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")


class DemoInProduction(KeysteadError):
    """The demo provider lets anybody in as anybody, so it is for development only."""

    code = "demo-in-production"


def refuse_in_production(development: bool) -> None:
    if not development:
        raise DemoInProduction(
            "The demo provider lets anybody sign in as anybody, so it runs in development only: configure a real "
            "provider, such as Discord, with its client id and secret."
        )


async def form_of(request: Request) -> dict[str, str]:
    """The fields of a posted form; Refusal where it is too large, is no form, or names a field twice."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_FORM_BYTES:
            raise Refusal(413, "TOO_LARGE", "The body of the request is too large.")
    try:
        return only_once(parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=50))
    except ValueError:
        raise Refusal(400, "BAD_REQUEST", "The body of the request is not a form.") from None


def only_once(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """RFC 6749, 3.1: a parameter that comes twice could be read in two ways."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise Refusal(400, "BAD_REQUEST", "A parameter of the request comes twice.")
    return fields


def access_token_of(request: Request) -> str | None:
    """The bearer token of a request; None: it has none that could be one."""
    token = parse_bearer(request.headers.get("authorization"))
    return token if token is not None and TOKEN.fullmatch(token) else None


def page(name: str, status: int = 200, *, posts_to: str = "", **values: object) -> HTMLResponse:
    """A page that posts its own form. A browser holds the redirect that answers it to the same rule, so `posts_to` is
    the origin of a page elsewhere that it may lead to."""
    headers = PAGE_HEADERS | {"content-security-policy": content_policy(forms=f"'self' {posts_to}".rstrip())}
    return HTMLResponse(TEMPLATES.get_template(name).render(**values), status, headers=headers)


def error(status: int, word: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """An error as clients of OAuth 2 know it (RFC 6749, 5.2)."""
    return JSONResponse({"error": word}, status, headers={**NO_STORE, **(headers or {})})


def no_such_token() -> JSONResponse:
    return error(401, "invalid_token", www_authenticate(error="invalid_token"))
