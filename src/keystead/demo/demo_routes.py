"""The routes of the demo provider: a sign-in page, and the endpoints of an OAuth 2 server."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from urllib.parse import urlencode, urlsplit

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse, RedirectResponse
from starlette.responses import Response

from keystead.demo.demo_responses import (
    TOKEN,
    DemoContext,
    access_token_of,
    error,
    invalid_token,
    read_form,
    refuse_in_production,
    refuse_repeated,
)
from keystead.demo.demo_service import (
    ACCESS_TOKEN_S,
    CLIENT_ID,
    LONGEST_NAME,
    PATREON_CLIENT_ID,
    PEOPLE,
    DemoProvider,
    Person,
    Pledges,
    describe_pledge,
    make_person,
)
from keystead.http.refusals import NO_STORE, Refusal
from keystead.kits.identity import identify
from keystead.kits.kit import Site
from keystead.parts.oauth import IdentityFields, Provider
from keystead.stores import Store

_CLIENTS = (CLIENT_ID, PATREON_CLIENT_ID)
_LONGEST_TEXT = 2048
_CHALLENGE = re.compile(r"[A-Za-z0-9_-]{43}")
_VERIFIER = re.compile(r"[A-Za-z0-9._~-]{43,128}")
# An application on this machine receives the redirect on a port of its own (RFC 8252, 7.3).
_LOOPBACK = re.compile(r"http://(?:127\.0\.0\.1|localhost):[0-9]{1,5}(?=/)")


def demo_provider(site: Site) -> Provider:
    """The client configuration of the demo provider. Raises DemoInProduction unless in development.

    Browsers use the public URL; the server itself fetches tokens at the internal one.
    """
    refuse_in_production(site)
    return Provider(
        name="demo",
        client_id=CLIENT_ID,
        scope="identify",
        authorize_url=f"{site.public_url}/demo/authorize",
        token_url=f"{site.internal_url}/demo/token",
        userinfo_url=f"{site.internal_url}/demo/userinfo",
        revoke_url=f"{site.internal_url}/demo/revoke",
        identity=IdentityFields(id="id", name=("name",), avatar="avatar"),
    )


@dataclass(frozen=True)
class AuthorizationRequest:
    """An OAuth 2 authorization request. The fields are the parameters of the request."""

    response_type: str
    client_id: str
    redirect_uri: str
    scope: str
    state: str
    code_challenge: str
    code_challenge_method: str

    @property
    def is_valid(self) -> bool:
        return (
            self.response_type == "code"
            and self.code_challenge_method == "S256"
            and _CHALLENGE.fullmatch(self.code_challenge) is not None
            and max(len(self.state), len(self.scope)) <= _LONGEST_TEXT
        )

    @property
    def loopback(self) -> str:
        """The origin of an application on this machine that the redirect leads to; "" if there is none."""
        found = _LOOPBACK.match(self.redirect_uri) if self.client_id == PATREON_CLIENT_ID else None
        return "" if found is None else found[0]

    def redirect(self, **result: str) -> RedirectResponse:
        """Redirect to the client, with this result and the state."""
        separator = "&" if urlsplit(self.redirect_uri).query else "?"
        query = urlencode({**result, "state": self.state} if self.state else result)
        return RedirectResponse(f"{self.redirect_uri}{separator}{query}", 303, headers=NO_STORE)


def demo_router(site: Site, store_of: Callable[[Request], Store]) -> APIRouter:
    """The routes under `/demo`, for `app.include_router`. Raises DemoInProduction unless in development.

    Browsers are sent back only to addresses under `site.public_url`; the stand-in for Patreon also sends them back to
    applications on this machine.
    """
    router = APIRouter(prefix="/demo", include_in_schema=False)
    authorization, tokens = _Authorization(site, store_of), _Tokens(site, store_of)
    router.add_api_route("/authorize", authorization.show, methods=["GET"])
    router.add_api_route("/authorize", authorization.decide, methods=["POST"])
    router.add_api_route("/token", tokens.issue, methods=["POST"])
    router.add_api_route("/userinfo", tokens.userinfo, methods=["GET"])
    router.add_api_route("/revoke", tokens.revoke, methods=["POST"])
    return router


class _Authorization(DemoContext):
    """The sign-in page."""

    async def show(self, request: Request) -> Response:
        query = refuse_repeated(request.query_params.multi_items())
        oauth = _parse_request(query, self.site.public_url)
        if not oauth.is_valid:
            return oauth.redirect(error="invalid_request")
        if query.get("prompt") != "none":
            return await self._sign_in_page(request, oauth)
        # `prompt=none` as in OpenID Connect: sign the current user in without a page, or return an error.
        user = await identify(request)
        person = None if user is None else _person_by_name(user.name)
        if person is None:
            return oauth.redirect(error="login_required")
        return await self._sign_in(request, oauth, person)

    async def decide(self, request: Request) -> Response:
        form = await read_form(request)
        oauth = _parse_request(form, self.site.public_url)
        if not oauth.is_valid:
            return oauth.redirect(error="invalid_request")
        if "cancel" in form:
            return oauth.redirect(error="access_denied")
        person = _person_of_form(form)
        if person is None:
            say = self.speaker(request)
            problem = say("Enter a name of at most {count} characters.", count=LONGEST_NAME)
            return await self._sign_in_page(request, oauth, problem)
        return await self._sign_in(request, oauth, person)

    async def _sign_in_page(self, request: Request, oauth: AuthorizationRequest, problem: str = "") -> Response:
        pays = await Pledges(self.keys(request)).all() if oauth.client_id == PATREON_CLIENT_ID else {}
        say = self.speaker(request)
        return self.page(
            request,
            "sign_in.html",
            400 if problem else 200,
            posts_to=oauth.loopback,
            oauth=asdict(oauth),
            people={person: describe_pledge(pays[person], say) if pays else "" for person in PEOPLE},
            longest_name=LONGEST_NAME,
            problem=problem,
        )

    async def _sign_in(self, request: Request, oauth: AuthorizationRequest, person: Person) -> Response:
        keys = self.keys(request)
        if oauth.client_id == PATREON_CLIENT_ID:
            await Pledges(keys).add(person)
        code = await DemoProvider(keys).sign_in(
            person, oauth.redirect_uri, oauth.code_challenge, oauth.scope, oauth.client_id
        )
        return oauth.redirect(code=code)


class _Tokens(DemoContext):
    """The endpoints that OAuth 2 clients call."""

    async def issue(self, request: Request) -> Response:
        try:
            form = await read_form(request)
        except Refusal:
            return error(400, "invalid_request")
        client = form.get("client_id", "")
        if client not in _CLIENTS:
            return error(401, "invalid_client")
        provider = DemoProvider(self.keys(request))
        match form:
            case {"grant_type": "authorization_code", "code": code, "code_verifier": verifier, "redirect_uri": uri}:
                known = TOKEN.fullmatch(code) and _VERIFIER.fullmatch(verifier)
                issued = await provider.exchange(code, verifier, uri, client) if known else None
            case {"grant_type": "refresh_token", "refresh_token": refresh_token}:
                known = TOKEN.fullmatch(refresh_token)
                issued = await provider.refresh(refresh_token, client) if known else None
            case {"grant_type": "authorization_code" | "refresh_token"}:
                return error(400, "invalid_request")
            case _:
                return error(400, "unsupported_grant_type")
        if issued is None:
            return error(400, "invalid_grant")
        answer = {**asdict(issued), "token_type": "Bearer", "expires_in": ACCESS_TOKEN_S}
        return JSONResponse(answer, headers=NO_STORE)

    async def userinfo(self, request: Request) -> Response:
        access_token = access_token_of(request)
        person = await DemoProvider(self.keys(request)).who(access_token) if access_token is not None else None
        if person is None:
            return invalid_token()
        return JSONResponse({"id": person.id, "name": person.name, "avatar": None}, headers=NO_STORE)

    async def revoke(self, request: Request) -> Response:
        try:
            form = await read_form(request)
        except Refusal:
            return error(400, "invalid_request")
        if form.get("client_id") not in _CLIENTS:
            return error(401, "invalid_client")
        if TOKEN.fullmatch(form.get("token", "")):
            await DemoProvider(self.keys(request)).revoke(form["token"])
        return Response(headers=NO_STORE)


def _parse_request(fields: Mapping[str, str], public_url: str) -> AuthorizationRequest:
    """Parse the authorization request. Raises Refusal, and does not redirect, unless the redirect URI is our own."""
    parsed = AuthorizationRequest(**{name: fields.get(name, "") for name in AuthorizationRequest.__dataclass_fields__})
    uri = parsed.redirect_uri
    is_plain = uri.isascii() and uri.isprintable() and not any(c in uri for c in ' \\#"<>')
    is_own = uri.startswith(f"{public_url}/") or bool(parsed.loopback)
    if parsed.client_id not in _CLIENTS or not is_plain or len(uri) > _LONGEST_TEXT or not is_own:
        raise Refusal(
            400,
            "BAD_REDIRECT_URI",
            "This sign-in was not started by this server, so it cannot redirect back. Start again from its own page.",
        )
    return parsed


def _person_of_form(form: Mapping[str, str]) -> Person | None:
    if "person" in form:
        return next((person for person in PEOPLE if person.id == form["person"]), None)
    return make_person(form.get("name", ""))


def _person_by_name(name: str) -> Person | None:
    return next((person for person in PEOPLE if person.name == name), None) or make_person(name)
