"""Shared by the demo's routes: parsing of forms and tokens, pages, and OAuth errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl

from fastapi import Request
from fastapi.responses import HTMLResponse, JSONResponse

from keystead.catalogue import Catalogue
from keystead.demo.demo_keys import DemoKeys
from keystead.errors import KeysteadError
from keystead.http.bearer import parse_bearer, www_authenticate
from keystead.http.pages import PAGE_HEADERS, content_policy
from keystead.http.refusals import NO_STORE, Refusal
from keystead.kits.kit import Site
from keystead.kits.language import Speaker, choose_language
from keystead.stores import Store

_CATALOGUE: Final = Catalogue(Path(__file__).parent)
MAX_FORM_BYTES: Final = 16 * 1024
TOKEN: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")


class DemoInProduction(KeysteadError):
    """The demo provider lets anyone sign in as anyone, so it runs only in development."""

    code = "demo-in-production"


def refuse_in_production(site: Site) -> None:
    """Raises DemoInProduction unless the site is in development."""
    if not site.development:
        raise DemoInProduction(
            "The demo provider lets anyone sign in as anyone, so it runs only in development. Configure a real "
            "provider, such as Discord, with its client id and secret."
        )


@dataclass(frozen=True)
class DemoContext:
    """The site and store of the demo's routes. Raises DemoInProduction unless the site is in development."""

    site: Site
    store_of: Callable[[Request], Store]

    def __post_init__(self) -> None:
        refuse_in_production(self.site)

    def keys(self, request: Request) -> DemoKeys:
        return DemoKeys(self.store_of(request), now_ms=self.site.now_ms)

    def speaker(self, request: Request) -> Speaker:
        return Speaker(choose_language(request, self.site.secure, self.site.language), _CATALOGUE)

    def page(
        self, request: Request, name: str, status: int = 200, *, posts_to: str = "", **values: object
    ) -> HTMLResponse:
        """A page that posts its own form.

        Browsers apply the form policy to redirects too. `posts_to` is the other origin that a redirect may lead to.
        """
        headers = PAGE_HEADERS | {"content-security-policy": content_policy(forms=f"'self' {posts_to}".rstrip())}
        html = self.site.render(f"keystead.demo/{name}", request.scope, say=self.speaker(request), **values)
        return HTMLResponse(html, status, headers=headers)


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a posted form. Raises Refusal if it is too large, not a form, or repeats a field."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_FORM_BYTES:
            raise Refusal(413, "TOO_LARGE", "The body of the request is too large.")
    try:
        return refuse_repeated(parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=50))
    except ValueError:
        raise Refusal(400, "BAD_REQUEST", "The body of the request is not a form.") from None


def refuse_repeated(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """The parameters as a dict. Raises Refusal if one is repeated, because it would be ambiguous (RFC 6749, 3.1)."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise Refusal(400, "BAD_REQUEST", "A parameter of the request is repeated.")
    return fields


def access_token_of(request: Request) -> str | None:
    """The bearer token of a request; None if it has none or it is malformed."""
    token = parse_bearer(request.headers.get("authorization"))
    return token if token is not None and TOKEN.fullmatch(token) else None


def error(status: int, word: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """An error in the form of OAuth 2 (RFC 6749, 5.2)."""
    return JSONResponse({"error": word}, status, headers={**NO_STORE, **(headers or {})})


def invalid_token() -> JSONResponse:
    return error(401, "invalid_token", www_authenticate(error="invalid_token"))
