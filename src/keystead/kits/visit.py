"""A request to a kit: what came with it, whether a page of this site made it, and how it is answered."""

from __future__ import annotations

import json
import re
import secrets
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from fastapi import Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from pydantic import BaseModel
from starlette.requests import HTTPConnection

from keystead.kits.identity import page_header
from keystead.kits.kit import Site
from keystead.kits.refusal import Refusal
from keystead.parts.cookies import Cookie
from keystead.parts.digest import same
from keystead.parts.limit import LimitReached

NO_STORE: Final = {"cache-control": "no-store"}

_FORM_MAX_BYTES: Final = 10_000
_THIS_MACHINE: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_PAGE_POLICY: Final = (
    "default-src 'none'; style-src 'self'; img-src 'self'{scripts}; base-uri 'none'; form-action 'self'; "
    "frame-ancestors 'none'"
)
_SCRIPTS: Final = "; script-src 'self'; connect-src 'self'"


class Visit:
    """One request, in the site that it came to."""

    def __init__(self, request: Request, site: Site) -> None:
        self.request = request
        self.site = site
        self.csrf = Cookie("csrf", site.secure)
        self.wants_json = _wants_json(request)

    def read(self, cookie: Cookie) -> str | None:
        return read_cookie(self.request, cookie)

    @property
    def address(self) -> str:
        return self.request.client.host if self.request.client else ""

    @property
    def is_form(self) -> bool:
        """Whether a form of a page was sent, so that a page answers it."""
        return _kind(self.request) == "application/x-www-form-urlencoded" and not self.wants_json

    @property
    def home(self) -> str | None:
        """The same page under the name that this site goes by; None: it is there already.

        In development `localhost` and `127.0.0.1` are one machine to a person, and two sites to a browser: a login that
        begins on one would come back to the other without its cookie.
        """
        url = self.request.url
        elsewhere = url.netloc != urlsplit(self.site.public_url).netloc and url.hostname in _THIS_MACHINE
        if not self.site.development or not elsewhere:
            return None
        return f"{self.site.public_url}{url.path}{'?' + url.query if url.query else ''}"

    def refuse_foreign(self, csrf: str | None) -> None:
        """Let only requests through that pages of this site make: by where they come from, or by the double submit."""
        refuse_foreign(self.request, self.site, csrf)

    def refuse_other_origins(self) -> bool:
        """Let no request through that pages of other sites make; whether it says that it comes from one of this site.

        A request that does not say where it comes from is not made by a page.
        """
        return refuse_other_origins(self.request, self.site)

    def csrf_token(self) -> str:
        """The token that this browser has, or a new one where it has none that we made."""
        kept = self.read(self.csrf)
        return kept if kept is not None and _is_csrf(kept) else secrets.token_urlsafe(32)

    async def fields(self) -> dict[str, Any]:
        """The fields of a small body, JSON or form. A body that is neither, or too large, holds none.

        Raises Refusal where it cannot be read.
        """
        body = await self.request.body()
        if not body or len(body) > _FORM_MAX_BYTES:
            return {}
        try:
            if _kind(self.request) == "application/x-www-form-urlencoded":
                read = parse_qs(body.decode("utf-8", "replace"), max_num_fields=50)
                return {name: values[0] for name, values in read.items()}
            told = json.loads(body)
        except (ValueError, RecursionError):  # no JSON, too many fields, or nested too deep
            raise Refusal(400, "BAD_REQUEST", "the body cannot be read") from None
        return told if isinstance(told, dict) else {}

    async def field(self, name: str) -> str | None:
        """A text in a small body, JSON or form; None: it is not there."""
        found = (await self.fields()).get(name)
        if found is not None and not isinstance(found, str):
            raise Refusal(400, "BAD_REQUEST", f"{name} is a text")
        return found

    def answer(self, body: BaseModel, *cookies: str, status: int = 200) -> Response:
        return _with_cookies(JSONResponse(body.model_dump(), status, headers=NO_STORE), cookies)

    def page(
        self, template: str, *cookies: str, status: int = 200, scripts: bool = False, **values: object
    ) -> Response:
        header = page_header(self.request.scope)
        response = HTMLResponse(self.site.render(template, header=header, **values), status, headers=NO_STORE)
        response.headers["content-security-policy"] = _PAGE_POLICY.format(scripts=_SCRIPTS if scripts else "")
        # With `no-referrer`, which other pages have, a browser says `Origin: null` when a form is sent. Here it says
        # where the form comes from, and still no more than that: a path may hold a code or a token.
        response.headers["referrer-policy"] = "strict-origin"
        return _with_cookies(response, cookies)

    def goes_on(self, to: str, *cookies: str) -> Response:
        """After a form: the page that comes next."""
        return _with_cookies(RedirectResponse(to, 303, headers=NO_STORE), cookies)


def read_cookie(connection: HTTPConnection, cookie: Cookie) -> str | None:
    """The value of a cookie; None: it is not there, or there are two that differ."""
    return cookie.read("; ".join(connection.headers.getlist("cookie"))) or None


def refuse_foreign(connection: HTTPConnection, site: Site, csrf: str | None = None) -> None:
    """Let only requests through that pages of this site make: by where they come from, or by the double submit."""
    is_own = refuse_other_origins(connection, site)
    given = csrf or connection.headers.get("x-csrf-token")
    kept = read_cookie(connection, Cookie("csrf", site.secure))
    matches = given is not None and _is_csrf(given) and kept is not None and same(given, kept)
    if not (is_own if given is None else matches):
        raise _foreign()


def refuse_other_origins(connection: HTTPConnection, site: Site) -> bool:
    """Let no request through that pages of other sites make; whether it says that it comes from one of this site."""
    origin = came_from(connection)
    if origin is not None and origin != site.public_url:
        raise _foreign()
    return origin is not None


def came_from(request: HTTPConnection) -> str | None:
    """The origin of the page that makes a request, as in https://example.com, by what the browser says of it; `null`
    where it says that it may not tell, and None where it says nothing.
    """
    return request.headers.get("origin") or _origin_of(request.headers.get("referer"))


def too_often(reached: LimitReached) -> Refusal:
    """What a client is told that has reached its limit."""
    wait = reached.retry_after_s
    headers = NO_STORE | {"retry-after": str(wait)}
    return Refusal(429, "RATE_LIMITED", str(reached), headers=headers, more={"retryAfter": wait})


def _with_cookies(response: Response, cookies: tuple[str, ...]) -> Response:
    for cookie in cookies:
        response.headers.append("set-cookie", cookie)
    return response


def _kind(request: Request) -> str:
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


def _wants_json(request: Request) -> bool:
    accept = request.headers.get("accept", "")
    return request.query_params.get("format") == "json" or "application/json" in accept or "+json" in accept


def _origin_of(url: str | None) -> str | None:
    if not url:
        return None
    try:
        parts = urlsplit(url)
    except ValueError:  # such as http://[, which is no page of ours
        return "null"
    return f"{parts.scheme}://{parts.netloc}"


def _is_csrf(token: str) -> bool:
    return re.fullmatch(r"[A-Za-z0-9_-]{43}", token) is not None


def _foreign() -> Refusal:
    return Refusal(403, "CSRF", "this request does not come from a page of this site; load the page again")
