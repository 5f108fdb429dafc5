"""CSRF protection: requests that change data must come from a page of this site.

The rules, for kits, server and middleware:

1. Cross-site requests are refused, even with a token. The browser names the origin in `Origin` or `Referer`; without
   both, `Sec-Fetch-Site` decides. Programs send none of them and count as same-site.
2. A token must equal the cookie `csrf`, which no other site can read or set (double submit). It is sent in the header
   `x-csrf-token`, or in the field `csrf` of a form or of JSON.
3. A request without a token is refused. Kits also accept one whose `Origin` or `Referer` names this site.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers

from keystead.http.cookies import Cookie
from keystead.http.refusals import Refusal
from keystead.parts.digest import same

HEADER: Final = "x-csrf-token"
FIELD: Final = "csrf"
SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})

_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}")


def csrf_cookie(secure: bool) -> Cookie:
    return Cookie(FIELD, secure)


def csrf_token(stored: str | None) -> str:
    """The token of the cookie; a new one if it is missing or malformed."""
    return stored if stored is not None and _TOKEN.fullmatch(stored) else secrets.token_urlsafe(32)


def is_csrf_token(given: str | None, stored: str | None) -> bool:
    """Whether the token of the request equals that of the cookie. Constant-time comparison."""
    return given is not None and stored is not None and _TOKEN.fullmatch(given) is not None and same(given, stored)


def page_origin(headers: Headers) -> str | None:
    """The origin of the page that made a request, as in https://example.com; None if there is no such header.

    `null` and other invalid origins are returned as they are, and count as another site.
    """
    origin = headers.get("origin")
    if origin is not None:
        return origin.lower()
    referer = headers.get("referer")
    if not referer:
        return None
    try:
        parts = urlsplit(referer)
    except ValueError:  # such as http://[
        return "null"
    return f"{parts.scheme}://{parts.netloc}".lower()


def is_cross_site(headers: Headers, origins: Collection[str]) -> bool:
    """Whether a page of another origin made the request, by the headers of the browser."""
    origin = page_origin(headers)
    if origin is not None:
        return origin not in origins
    return headers.get("sec-fetch-site", "none").strip().lower() not in ("same-origin", "none")


def refuse_cross_site(headers: Headers, origins: Collection[str], *, development: bool = False) -> None:
    """Raises Refusal for a request from another site (rule 1). In development it names the expected header."""
    if is_cross_site(headers, origins):
        hint = f" The header Origin (or Referer) must name {' or '.join(origins)}." if development and origins else ""
        raise Refusal(403, "CSRF", f"The request comes from another site.{hint}")


def refuse_forged(
    headers: Headers, origin: str, cookie: Cookie, field: str | None = None, *, development: bool = False
) -> None:
    """Raises Refusal unless a page of `origin` made the request (all three rules, for kits).

    `field` is the token in the body. In development the refusal names the headers and the field to send.
    """
    refuse_cross_site(headers, (origin,), development=development)
    given = field or headers.get(HEADER)
    is_own = page_origin(headers) is not None if given is None else is_csrf_token(given, cookie.find(headers))
    if not is_own:
        raise csrf_refusal(cookie if development else None, f"the header Origin: {origin}, or ")


def csrf_refusal(cookie: Cookie | None = None, alternative: str = "") -> Refusal:
    """The refusal of a request without a valid token. With a cookie, for developers, it states what to send."""
    sentence = "The CSRF token is missing or invalid; reload the page."
    if cookie is not None:
        value = f"the value of the cookie {cookie.name} in the header {HEADER} or the field {FIELD}"
        sentence += f" Send {alternative}{value}."
    return Refusal(403, "CSRF", sentence)
