"""A request to a kit: its input, CSRF checks and responses."""

from __future__ import annotations

import json
from functools import cached_property
from typing import Any, ClassVar, Final, Literal
from urllib.parse import parse_qs, urlsplit

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.requests import HTTPConnection

from keystead.catalogue import Catalogue
from keystead.http import csrf
from keystead.http.accept import content_type
from keystead.http.cookies import Cookie
from keystead.http.pages import PAGE_HEADERS, SCRIPT_PAGE_HEADERS
from keystead.http.refusals import NO_STORE, Refusal
from keystead.http.responses import json_response, with_cookies
from keystead.kits.camel_model import CamelModel
from keystead.kits.kit import Site
from keystead.kits.language import Speaker, choose_language

_FORM: Final = "application/x-www-form-urlencoded"
_FORM_MAX_BYTES: Final = 10_000
_THIS_MACHINE: Final = frozenset({"localhost", "127.0.0.1", "::1"})


class Ok(CamelModel):
    ok: Literal[True] = True


class CsrfAnswer(Ok):
    token: str


class Visit:
    """One request. `catalogue` has the translations of the kit's pages."""

    catalogue: ClassVar[Catalogue | None] = None

    def __init__(self, request: Request, site: Site) -> None:
        self.request = request
        self.site = site
        self.csrf = csrf.csrf_cookie(site.secure)
        accept = request.headers.get("accept", "")
        wants_json = "application/json" in accept or "+json" in accept
        self.wants_json = wants_json or request.query_params.get("format") == "json"

    @cached_property
    def say(self) -> Speaker:
        """Texts in the language of the request."""
        catalogues = () if self.catalogue is None else (self.catalogue,)
        language = choose_language(self.request, self.site.secure, self.site.language)
        return Speaker(language, *catalogues)

    def read(self, cookie: Cookie) -> str | None:
        return cookie.find(self.request.headers)

    @property
    def address(self) -> str:
        return self.request.client.host if self.request.client else ""

    @property
    def is_form(self) -> bool:
        """Whether the request is a form post, so that the response should be a page."""
        return content_type(self.request.headers) == _FORM and not self.wants_json

    @property
    def home(self) -> str | None:
        """The same page under the site's public host; None if it is there already.

        In development a person may use `localhost` or `127.0.0.1`, which are two sites to a browser: a login that
        begins on one would return to the other without its cookie.
        """
        url = self.request.url
        is_other_host = url.netloc != urlsplit(self.site.public_url).netloc and url.hostname in _THIS_MACHINE
        if not self.site.development or not is_other_host:
            return None
        return f"{self.site.public_url}{url.path}{'?' + url.query if url.query else ''}"

    def refuse_forged(self, field: str | None) -> None:
        """Raises Refusal unless a page of this site made the request. `field` is the CSRF token in the body."""
        refuse_forged(self.request, self.site, field)

    def refuse_cross_site(self) -> None:
        """Raises Refusal for a cross-site request. Programs, which send no `Origin`, pass."""
        csrf.refuse_cross_site(self.request.headers, (self.site.public_url,), development=self.site.development)

    def csrf_token(self) -> str:
        """The CSRF token of this browser, or a new one."""
        return csrf.csrf_token(self.read(self.csrf))

    def csrf_response(self) -> Response:
        """The CSRF token as JSON and as a cookie."""
        token = self.csrf_token()
        return json_response(CsrfAnswer(token=token), self.csrf.set(token))

    async def fields(self) -> dict[str, Any]:
        """The fields of a JSON or form body; none if it is too large or not an object. Raises Refusal if malformed."""
        body = await self.request.body()
        if not body or len(body) > _FORM_MAX_BYTES:
            return {}
        try:
            if content_type(self.request.headers) == _FORM:
                form = parse_qs(body.decode("utf-8", "replace"), max_num_fields=50)
                return {name: values[0] for name, values in form.items()}
            parsed = json.loads(body)
        except (ValueError, RecursionError):  # not JSON, too many fields, or nested too deeply
            raise Refusal(400, "BAD_REQUEST", "the body is malformed") from None
        return parsed if isinstance(parsed, dict) else {}

    async def field(self, name: str) -> str | None:
        """A string field of a JSON or form body; None if it is missing. Raises Refusal for other types."""
        found = (await self.fields()).get(name)
        if found is not None and not isinstance(found, str):
            raise Refusal(400, "BAD_REQUEST", f"{name} must be a string")
        return found

    def page(
        self, template: str, *cookies: str, status: int = 200, scripts: bool = False, **values: object
    ) -> Response:
        """A page of the kit, whose template gets `say`."""
        headers = dict(SCRIPT_PAGE_HEADERS if scripts else PAGE_HEADERS)
        headers["vary"] = "accept-language, cookie"
        html = self.site.render(template, self.request.scope, say=self.say, **values)
        return with_cookies(HTMLResponse(html, status, headers), cookies)

    def redirect_to(self, to: str, *cookies: str) -> Response:
        """Redirect after a form post."""
        return with_cookies(RedirectResponse(to, 303, headers=NO_STORE), cookies)


def refuse_forged(connection: HTTPConnection, site: Site, field: str | None = None) -> None:
    """Raises Refusal unless a page of this site made the request: see `keystead.http.csrf`."""
    cookie = csrf.csrf_cookie(site.secure)
    csrf.refuse_forged(connection.headers, site.public_url, cookie, field, development=site.development)
