"""The routes of the demo provider: a page to sign in, and the endpoints that a client of OAuth 2 asks."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, RedirectResponse
from starlette.responses import Response

from keystead.http.refusals import NO_STORE, Refusal
from keystead.kits.identity import identify
from keystead.parts.oauth import IdentityFields, Provider
from keystead.server.demo_provider.keys import DemoKeys
from keystead.server.demo_provider.responses import (
    TOKEN,
    access_token_of,
    error,
    form_of,
    no_such_token,
    only_once,
    page,
    refuse_in_production,
)
from keystead.server.demo_provider.service import (
    ACCESS_TOKEN_S,
    CLIENT_ID,
    LONGEST_NAME,
    PATREON_CLIENT_ID,
    PEOPLE,
    DemoProvider,
    Issued,
    Person,
    Pledges,
    in_words,
    person_called,
)
from keystead.stores import Store

_CLIENTS = (CLIENT_ID, PATREON_CLIENT_ID)
_LONGEST_TEXT = 2048
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}")
# An application on this machine listens on a port of its own for its users to come back (RFC 8252, 7.3).
_LOOPBACK = re.compile(r"http://(?:127\.0\.0\.1|localhost):[0-9]{1,5}(?=/)")


def demo_provider(internal_url: str, public_url: str, *, development: bool = False) -> Provider:
    """The demo provider of this server, as a client of it is configured. DemoInProduction unless in development.

    Browsers come to the public URL; the server itself asks for tokens at the internal one.
    """
    refuse_in_production(development)
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

    @property
    def loopback(self) -> str:
        """The origin of an application on this machine that the browser goes back to; "": it goes to none."""
        found = _LOOPBACK.match(self.redirect_uri) if self.client_id == PATREON_CLIENT_ID else None
        return "" if found is None else found[0]

    def back(self, **answer: str) -> RedirectResponse:
        """Send the browser back, with this answer and the state."""
        between = "&" if urlsplit(self.redirect_uri).query else "?"
        query = urlencode({**answer, "state": self.state} if self.state else answer)
        return RedirectResponse(f"{self.redirect_uri}{between}{query}", 303, headers=NO_STORE)


def demo_router(
    store_of: Callable[[Request], Store],
    public_url: str,
    now_ms: Callable[[], int],
    *,
    development: bool = False,
) -> APIRouter:
    """The routes under `/demo`, for `app.include_router`. DemoInProduction unless in development.

    `store_of` gives the open store of the application of a request. Browsers are sent back to addresses under
    `public_url` only, which ends without a slash; where it stands in for Patreon, to applications on this machine, too.
    """
    refuse_in_production(development)
    router = APIRouter(prefix="/demo", include_in_schema=False)

    def keys_of(request: Request) -> DemoKeys:
        return DemoKeys(store_of(request), now_ms=now_ms)

    def provider_of(request: Request) -> DemoProvider:
        return DemoProvider(keys_of(request))

    async def sign_in_page(request: Request, asked: Asked, problem: str = "") -> Response:
        pays = await Pledges(keys_of(request)).all() if asked.client_id == PATREON_CLIENT_ID else {}
        return page(
            "demo_sign_in.html",
            400 if problem else 200,
            posts_to=asked.loopback,
            asked=asdict(asked),
            people={person: in_words(pays[person]) if pays else "" for person in PEOPLE},
            longest_name=LONGEST_NAME,
            problem=problem,
        )

    async def show(request: Request) -> Response:
        sent = only_once(request.query_params.multi_items())
        asked = _asked(sent, public_url)
        if not asked.is_sound:
            return asked.back(error="invalid_request")
        if sent.get("prompt") != "none":
            return await sign_in_page(request, asked)
        # As with OpenID Connect: whoever is signed in is not asked again, and where nobody is, the client is told.
        user = await identify(request)
        person = None if user is None else _called(user.name)
        return asked.back(error="login_required") if person is None else await let_in(request, asked, person)

    async def decide(request: Request) -> Response:
        form = await form_of(request)
        asked = _asked(form, public_url)
        if not asked.is_sound:
            return asked.back(error="invalid_request")
        if "cancel" in form:
            return asked.back(error="access_denied")
        person = _chosen(form)
        if person is None:
            problem = f"Please enter a name of at most {LONGEST_NAME} characters."
            return await sign_in_page(request, asked, problem)
        return await let_in(request, asked, person)

    async def let_in(request: Request, asked: Asked, person: Person) -> Response:
        if asked.client_id == PATREON_CLIENT_ID:
            await Pledges(keys_of(request)).meet(person)
        code = await provider_of(request).sign_in(
            person, asked.redirect_uri, asked.code_challenge, asked.scope, asked.client_id
        )
        return asked.back(code=code)

    async def token(request: Request) -> Response:
        try:
            form = await form_of(request)
        except Refusal:
            return error(400, "invalid_request")
        client = form.get("client_id", "")
        if client not in _CLIENTS:
            return error(401, "invalid_client")
        match form:
            case {"grant_type": "authorization_code", "code": code, "code_verifier": verifier, "redirect_uri": uri}:
                known = TOKEN.fullmatch(code) and _VERIFIER.fullmatch(verifier)
                issued = await provider_of(request).exchange(code, verifier, uri, client) if known else None
            case {"grant_type": "refresh_token", "refresh_token": refresh_token}:
                known = TOKEN.fullmatch(refresh_token)
                issued = await provider_of(request).refresh(refresh_token, client) if known else None
            case {"grant_type": "authorization_code" | "refresh_token"}:
                return error(400, "invalid_request")
            case _:
                return error(400, "unsupported_grant_type")
        return error(400, "invalid_grant") if issued is None else _tokens(issued)

    async def userinfo(request: Request) -> Response:
        access_token = access_token_of(request)
        person = await provider_of(request).who(access_token) if access_token is not None else None
        if person is None:
            return no_such_token()
        return JSONResponse({"id": person.id, "name": person.name, "avatar": None}, headers=NO_STORE)

    async def revoke(request: Request) -> Response:
        try:
            form = await form_of(request)
        except Refusal:
            return error(400, "invalid_request")
        if form.get("client_id") not in _CLIENTS:
            return error(401, "invalid_client")
        if TOKEN.fullmatch(form.get("token", "")):
            await provider_of(request).revoke(form["token"])
        return Response(headers=NO_STORE)

    router.add_api_route("/authorize", show, methods=["GET"])
    router.add_api_route("/authorize", decide, methods=["POST"])
    router.add_api_route("/token", token, methods=["POST"])
    router.add_api_route("/userinfo", userinfo, methods=["GET"])
    router.add_api_route("/revoke", revoke, methods=["POST"])
    return router


def _asked(sent: Mapping[str, str], public_url: str) -> Asked:
    """What is asked for. Refusal where the browser must not be sent back, for the address may be a stranger's."""
    asked = Asked(**{name: sent.get(name, "") for name in Asked.__dataclass_fields__})
    uri = asked.redirect_uri
    plain = uri.isascii() and uri.isprintable() and not any(c in uri for c in ' \\#"<>')
    is_own = uri.startswith(f"{public_url}/") or bool(asked.loopback)
    if asked.client_id not in _CLIENTS or not plain or len(uri) > _LONGEST_TEXT or not is_own:
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


def _called(name: str) -> Person | None:
    return next((person for person in PEOPLE if person.name == name), None) or person_called(name)


def _tokens(issued: Issued) -> JSONResponse:
    answer: dict[str, Any] = {**asdict(issued), "token_type": "Bearer", "expires_in": ACCESS_TOKEN_S}
    return JSONResponse(answer, headers=NO_STORE)
