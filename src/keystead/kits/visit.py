"""A request to a kit: its input, whether a page of this site made it, and its response."""

from __future__ import annotations

import json
from typing import Any, ClassVar, Final, Literal
from urllib.parse import parse_qs, urlsplit

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.requests import HTTPConnection

from keystead.http import csrf
from keystead.http.accept import content_type
from keystead.http.cookies import Cookie
from keystead.http.pages import PAGE_HEADERS, SCRIPT_PAGE_HEADERS
from keystead.http.refusals import NO_STORE, Refusal
from keystead.http.responses import json_response, with_cookies
from keystead.kits.camel_model import CamelModel
from keystead.kits.identity import page_header
from keystead.kits.kit import Site
from keystead.kits.language import Messages, Speaker, language_of

_FORM: Final = "application/x-www-form-urlencoded"
_FORM_MAX_BYTES: Final = 10_000
_THIS_MACHINE: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class Ok(CamelModel):
    ok: Literal[True] = True


class CsrfAnswer(Ok):
    token: str


class Visit:
    """One request, in the site that it came to. `messages` and `script` are those of the kit's pages: see `Speaker`."""

    messages: ClassVar[Messages] = {}
    script: ClassVar[Messages] = {}

    def __init__(self, request: Request, site: Site) -> None:
        self.request = request
        self.site = site
        self.csrf = csrf.csrf_cookie(site.secure)
        accept = request.headers.get("accept", "")
        wants_json = "application/json" in accept or "+json" in accept
        self.wants_json = wants_json or request.query_params.get("format") == "json"
        self.say = Speaker(language_of(request.headers.get("accept-language", "")), self.messages, self.script)

    def read(self, cookie: Cookie) -> str | None:
        return cookie.find(self.request.headers)

    @property
    def address(self) -> str:
        return self.request.client.host if self.request.client else ""

    @property
    def is_form(self) -> bool:
        """Whether a form of a page was sent, so that a page answers it."""
        return content_type(self.request.headers) == _FORM and not self.wants_json

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

    def refuse_forged(self, field: str | None) -> None:
        """Raises Refusal unless a page of this site made the request. `field` is the CSRF token of the body."""
        refuse_forged(self.request, self.site, field)

    def refuse_cross_site(self) -> None:
        """Raises Refusal for a request of a page of another site. Programs, which do not say where, pass."""
        csrf.refuse_cross_site(self.request.headers, (self.site.public_url,), development=self.site.development)

    def csrf_token(self) -> str:
        """The token of this browser, or a new one if it has none of ours."""
        return csrf.csrf_token(self.read(self.csrf))

    def csrf_response(self) -> Response:
        """The token as JSON. The same value comes as a cookie."""
        token = self.csrf_token()
        return json_response(CsrfAnswer(token=token), self.csrf.set(token))

    async def fields(self) -> dict[str, Any]:
        """The fields of a small body, JSON or form. A body that is neither, or too large, holds none.

        Raises Refusal where it cannot be read.
        """
        body = await self.request.body()
        if not body or len(body) > _FORM_MAX_BYTES:
            return {}
        try:
            if content_type(self.request.headers) == _FORM:
                read = parse_qs(body.decode("utf-8", "replace"), max_num_fields=50)
                return {name: values[0] for name, values in read.items()}
            told = json.loads(body)
        except (ValueError, RecursionError):  # no JSON, too many fields, or nested too deep
            raise Refusal(400, "BAD_REQUEST", "the body cannot be read") from None
        return told if isinstance(told, dict) else {}

    async def field(self, name: str) -> str | None:
        """A text field of a small JSON or form body; None if it is missing."""
        found = (await self.fields()).get(name)
        if found is not None and not isinstance(found, str):
            raise Refusal(400, "BAD_REQUEST", f"{name} is a text")
        return found

    def page(
        self, template: str, *cookies: str, status: int = 200, scripts: bool = False, **values: object
    ) -> Response:
        """A page of the kit. With messages it is in the language of the browser, and speaks by `say`."""
        headers = dict(SCRIPT_PAGE_HEADERS if scripts else PAGE_HEADERS)
        if self.messages:
            values["say"], headers["vary"] = self.say, "accept-language"
        html = self.site.render(template, header=page_header(self.request.scope), **values)
        return with_cookies(HTMLResponse(html, status, headers), cookies)

    def goes_on(self, to: str, *cookies: str) -> Response:
        """After a form: the page that comes next."""
        return with_cookies(RedirectResponse(to, 303, headers=NO_STORE), cookies)


def refuse_forged(connection: HTTPConnection, site: Site, field: str | None = None) -> None:
    """Raises Refusal unless a page of this site made the request: see `keystead.http.csrf`."""
    cookie = csrf.csrf_cookie(site.secure)
    csrf.refuse_forged(connection.headers, site.public_url, cookie, field, development=site.development)
