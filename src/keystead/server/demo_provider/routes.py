"""The routes of the demo provider: a page to sign in, and the endpoints that a client of OAuth 2 asks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse
from starlette.responses import Response

from keystead.errors import KeysteadError
from keystead.kits.refusal import Refusal
from keystead.parts.oauth import IdentityFields, Provider
from keystead.server.demo_provider.keys import DemoKeys
from keystead.server.demo_provider.service import (
    ACCESS_TOKEN_S,
    LONGEST_NAME,
    PEOPLE,
    DemoProvider,
    Issued,
    Person,
    person_called,
)
from keystead.server.middleware import SECURITY_HEADERS
from keystead.server.templates import TEMPLATES
from keystead.stores import Store

CLIENT_ID: Final = "demo"
MAX_FORM_BYTES: Final = 16 * 1024
_LONGEST_TEXT = 2048
_NO_STORE = {"cache-control": "no-store"}
# The page posts its own form, and a browser holds the redirect that answers it to the same rule.
_PAGE_HEADERS = {
    **_NO_STORE,
    "content-security-policy": SECURITY_HEADERS["content-security-policy"].replace(
        "form-action 'none'", "form-action 'self'"
    ),
}
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}")
_TOKEN = re.compile(r"[A-Za-z0-9._-]{1,200}")


class DemoInProduction(KeysteadError):
    """The demo provider lets anybody in as anybody, so it is for development only."""

    code = "demo-in-production"


def demo_provider(internal_url: str, public_url: str, *, development: bool = False) -> Provider:
    """The demo provider of this server, as a client of it is configured. DemoInProduction unless in development.

    Browsers come to the public URL; the server itself asks for tokens at the internal one.
    """
    _refuse_in_production(development)
    return Provider(
        name="demo",
        client_id=CLIENT_ID,
        scope="identify",
        authorize_url=f"{public_url}/demo/authorize",
        token_url=f"{internal_url}/demo/token",
        userinfo_url=f"{internal_url}/demo/userinfo",
        revoke_url=f"{internal_url}/demo/revoke",
        identity=IdentityFields(id="id", name=("name",), avatar="avatar"),
    )


@dataclass(frozen=True)
class Asked:
    """What a client asks for when it sends a browser here. The fields are the parameters of the request."""

    response_type: str
    client_id: str
    redirect_uri: str
    scope: str
    state: str
    code_challenge: str
    code_challenge_method: str

    @property
    def is_sound(self) -> bool:
        return (
            self.response_type == "code"
            and self.code_challenge_method == "S256"
            and _CHALLENGE.fullmatch(self.code_challenge) is not None
            and max(len(self.state), len(self.scope)) <= _LONGEST_TEXT
        )

    def back(self, **answer: str) -> RedirectResponse:
        """Send the browser back, with this answer and the state."""
        between = "&" if urlsplit(self.redirect_uri).query else "?"
        query = urlencode({**answer, "state": self.state} if self.state else answer)
        return RedirectResponse(f"{self.redirect_uri}{between}{query}", 303, headers=_NO_STORE)


def demo_router(
    store_of: Callable[[Request], Store],
    public_url: str,
    now_ms: Callable[[], int],
    *,
    development: bool = False,
) -> APIRouter:
    """The routes under `/demo`, for `app.include_router`. DemoInProduction unless in development.

    `store_of` gives the open store of the application of a request. Browsers are sent back to addresses under
    `public_url` only, which ends without a slash.
    """
    _refuse_in_production(development)
    router = APIRouter(prefix="/demo", include_in_schema=False)

    def provider_of(request: Request) -> DemoProvider:
        return DemoProvider(DemoKeys(store_of(request), now_ms=now_ms))

    async def show(request: Request) -> Response:
        asked = _asked(_only_once(request.query_params.multi_items()), public_url)
        return _page(asked) if asked.is_sound else asked.back(error="invalid_request")

    async def decide(request: Request) -> Response:
        form = await _form(request)
        asked = _asked(form, public_url)
        if not asked.is_sound:
            return asked.back(error="invalid_request")
        if "cancel" in form:
            return asked.back(error="access_denied")
        person = _chosen(form)
        if person is None:
            return _page(asked, f"Please enter a name of at most {LONGEST_NAME} characters.")
        code = await provider_of(request).sign_in(person, asked.redirect_uri, asked.code_challenge, asked.scope)
        return asked.back(code=code)

    async def token(request: Request) -> Response:
        try:
            form = await _form(request)
        except Refusal:
            return _error(400, "invalid_request")
        if form.get("client_id") != CLIENT_ID:
            return _error(401, "invalid_client")
        match form:
            case {"grant_type": "authorization_code", "code": code, "code_verifier": verifier, "redirect_uri": uri}:
                known = _TOKEN.fullmatch(code) and _VERIFIER.fullmatch(verifier)
                issued = await provider_of(request).exchange(code, verifier, uri) if known else None
            case {"grant_type": "refresh_token", "refresh_token": refresh_token}:
                known = _TOKEN.fullmatch(refresh_token)
                issued = await provider_of(request).refresh(refresh_token) if known else None
            case {"grant_type": "authorization_code" | "refresh_token"}:
                return _error(400, "invalid_request")
            case _:
                return _error(400, "unsupported_grant_type")
        return _error(400, "invalid_grant") if issued is None else _tokens(issued)

    async def userinfo(request: Request) -> Response:
        scheme, _, access_token = request.headers.get("authorization", "").partition(" ")
        known = scheme.lower() == "bearer" and _TOKEN.fullmatch(access_token)
        person = await provider_of(request).who(access_token) if known else None
        if person is None:
            return _error(401, "invalid_token", {"www-authenticate": 'Bearer error="invalid_token"'})
        return JSONResponse({"id": person.id, "name": person.name, "avatar": None}, headers=_NO_STORE)

    async def revoke(request: Request) -> Response:
        try:
            form = await _form(request)
        except Refusal:
            return _error(400, "invalid_request")
        if form.get("client_id") != CLIENT_ID:
            return _error(401, "invalid_client")
        if _TOKEN.fullmatch(form.get("token", "")):
            await provider_of(request).revoke(form["token"])
        return Response(headers=_NO_STORE)

    router.add_api_route("/authorize", show, methods=["GET"])
    router.add_api_route("/authorize", decide, methods=["POST"])
    router.add_api_route("/token", token, methods=["POST"])
    router.add_api_route("/userinfo", userinfo, methods=["GET"])
    router.add_api_route("/revoke", revoke, methods=["POST"])
    return router


def _refuse_in_production(development: bool) -> None:
    if not development:
        raise DemoInProduction(
            "The demo provider lets anybody sign in as anybody, so it runs in development only: configure a real "
            "provider, such as Discord, with its client id and secret."
        )


def _asked(sent: Mapping[str, str], public_url: str) -> Asked:
    """What is asked for. Refusal where the browser must not be sent back, for the address may be a stranger's."""
    asked = Asked(**{name: sent.get(name, "") for name in Asked.__dataclass_fields__})
    uri = asked.redirect_uri
    plain = uri.isascii() and uri.isprintable() and not any(c in uri for c in ' \\#"<>')
    if asked.client_id != CLIENT_ID or not plain or len(uri) > _LONGEST_TEXT or not uri.startswith(f"{public_url}/"):
        raise Refusal(
            400,
            "BAD_REDIRECT_URI",
            "This sign-in was not started by this server, so there is no way back. Start again from its own page.",
        )
    return asked


def _chosen(form: Mapping[str, str]) -> Person | None:
    if "person" in form:
        return next((person for person in PEOPLE if person.id == form["person"]), None)
    return person_called(form.get("name", ""))


def _page(asked: Asked, problem: str = "") -> HTMLResponse:
    page = TEMPLATES.get_template("demo_sign_in.html").render(
        asked=asdict(asked), people=PEOPLE, longest_name=LONGEST_NAME, problem=problem
    )
    return HTMLResponse(page, 400 if problem else 200, headers=_PAGE_HEADERS)


async def _form(request: Request) -> dict[str, str]:
    """The fields of a posted form; Refusal where it is too large, is no form, or names a field twice."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_FORM_BYTES:
            raise Refusal(413, "TOO_LARGE", "The body of the request is too large.")
    try:
        return _only_once(parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=50))
    except ValueError:
        raise Refusal(400, "BAD_REQUEST", "The body of the request is not a form.") from None


def _only_once(pairs: list[tuple[str, str]]) -> dict[str, str]:
    """RFC 6749, 3.1: a parameter that comes twice could be read in two ways."""
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise Refusal(400, "BAD_REQUEST", "A parameter of the request comes twice.")
    return fields


def _tokens(issued: Issued) -> JSONResponse:
    answer: dict[str, Any] = {**asdict(issued), "token_type": "Bearer", "expires_in": ACCESS_TOKEN_S}
    return JSONResponse(answer, headers=_NO_STORE)


def _error(status: int, word: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """An error as clients of OAuth 2 know it (RFC 6749, 5.2)."""
    return JSONResponse({"error": word}, status, headers={**_NO_STORE, **(headers or {})})
