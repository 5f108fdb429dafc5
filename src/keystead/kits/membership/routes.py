"""The routes of the membership kit. They translate HTTP, and decide nothing."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from ipaddress import ip_address
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Body, Depends, Header, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from keystead.http.bearer import bearer_token, parse_bearer
from keystead.http.dependencies import limited
from keystead.http.rate_limits import client_address, rate_limit_headers
from keystead.http.refusals import NO_STORE, Refusal
from keystead.http.responses import json_response
from keystead.http.routing import KitRouter, translated
from keystead.kits.camel_model import CamelBody, CamelModel
from keystead.kits.kit import Example, Kit
from keystead.kits.membership.account_routes import MonthlyUsage, add_account_routes, quota_headers
from keystead.kits.membership.keys import MembershipKeys
from keystead.kits.membership.messages import MESSAGES, SCRIPT
from keystead.kits.membership.models import Plan
from keystead.kits.membership.program_routes import add_program_routes
from keystead.kits.membership.request import Authorization, MembershipRoute, Serving, bearer, refusal_of
from keystead.kits.membership.service import (
    TRY_PATH,
    Member,
    Members,
    MembershipRefused,
    MembershipSettings,
    SignedIn,
    TokenPair,
    missing,
    open_members,
)
from keystead.kits.membership.service.tables import MEMBERSHIP_TABLES
from keystead.kits.visit import Visit
from keystead.parts.limit import Limits, Verdict
from keystead.schema.times import moment

_BODY_MOST: Final = 1024 * 1024  # of a crash report with its logs

# --- what is sent and answered ---------------------------------------------------------------------------------


class CodeBody(BaseModel):
    code: str = Field(min_length=1, max_length=4096)
    redirect_uri: str = Field(min_length=1, max_length=2048)
    code_verifier: str | None = Field(None, max_length=128, description="Of an application that began with PKCE.")


class SignInBody(CodeBody):
    state: str | None = Field(None, max_length=2048, description="Checked by the application; not used here.")


class ProviderRefreshBody(BaseModel):
    refresh_token: str = Field(min_length=1, max_length=4096)


class SessionBody(BaseModel):
    session_token: str = Field(max_length=1024)


class RefreshBody(CamelBody):
    model_config = ConfigDict(json_schema_extra={"required": ["refreshToken"]})  # one that lacks it has its own answer

    refresh_token: str = Field("", max_length=1024)


class SignedInAnswer(BaseModel):
    session_token: str
    patreon_user_id: str
    email: str
    full_name: str
    expires_in: int
    plan: Plan
    tier_id: str | None
    patron_status: str | None
    next_charge_date: str | None
    entitled_amount_cents: int | None
    plan_is_stale: bool
    plan_as_of: int


class ProviderTokensAnswer(BaseModel):
    """What the provider answered itself."""

    access_token: str
    refresh_token: str | None = None
    token_type: str | None = None
    expires_in: int | None = None
    scope: str | None = None


class Tier(BaseModel):
    id: str


class MembershipAnswer(BaseModel):
    user_id: str
    email: str
    full_name: str
    is_active_patron: bool
    patron_status: str | None
    entitled_amount_cents: int | None
    tier: Tier | None


class HealthAnswer(BaseModel):
    status: Literal["ok"] = "ok"
    timestamp: str
    environment: Literal["development", "production"]


class ValidAnswer(BaseModel):
    session_valid: Literal[True] = True
    patreon_user_id: str
    email: str
    full_name: str
    plan: Plan
    tier_id: str | None
    patron_status: str | None
    next_charge_date: str | None
    session_expires_at: int
    plan_is_stale: bool
    plan_as_of: int


class LicenseAnswer(BaseModel):
    success: Literal[True] = True
    session_valid: Literal[True] = True
    session_expired: Literal[False] = False
    plan: Plan
    tier_id: str | None
    patron_status: str | None
    next_charge_date: str | None
    plan_is_stale: bool
    plan_as_of: int
    error: None = None
    error_code: None = None


class DoneAnswer(BaseModel):
    success: Literal[True] = True
    message: str


class RevokedAllAnswer(DoneAnswer):
    revoked_count: int


class TokensAnswer(CamelModel):
    access_token: str
    refresh_token: str
    expires_in: int
    token_type: Literal["Bearer"] = "Bearer"  # noqa: S105


class QuotaAnswer(BaseModel):
    success: Literal[True] = True
    monthly_usage: MonthlyUsage
    plan: Plan
    has_bonus_tokens: bool
    plan_is_stale: bool
    plan_as_of: int


class HeardAnswer(CamelModel):
    success: Literal[True] = True
    event: str
    processed: bool
    plan_change_recorded: bool


# --- the request -----------------------------------------------------------------------------------------------

AppSession = Annotated[str | None, Header(alias="x-app-session-id", max_length=128)]


def _limit(name: Literal["webhooks", "sign_ins", "crash_reports"]) -> Callable[[Request], Limits | None]:
    def found(request: Request) -> Limits | None:
        limit: Limits | None = getattr(request.app.state.kits["membership"], name)
        return limit

    return found


def _of(name: str) -> Callable[[Request], str]:
    """Whose requests a limit counts, where several limits share a family."""
    return lambda request: f"{name}:{client_address(request)}"


def _ip(request: Request) -> str:
    """The address itself, where the key holds one; all who have none are one."""
    try:
        return str(ip_address(client_address(request)))
    except ValueError:
        return "0.0.0.0"  # noqa: S104 - nobody's address


_SignIns = Depends(limited(_limit("sign_ins"), client=_of("sign-in")))
_Webhooks = Depends(limited(_limit("webhooks"), client=_of("webhook")))
_CrashReports = Annotated[Verdict | None, Depends(limited(_limit("crash_reports"), client=_ip))]


# --- the routes ------------------------------------------------------------------------------------------------


def router() -> APIRouter:
    """All routes of the kit."""
    routes = KitRouter("membership", refusal_of, MembershipRoute)
    add = routes.add
    for path in ("/api/auth/callback", "/api/patreon/exchange"):
        add(
            f"POST {path}",
            _sign_in,
            "Exchange a code of the provider for a session",
            SignedInAnswer,
            dependencies=[_SignIns],
            operation_id=f"sign_in_{path.split('/')[2]}",
        )
    add(
        "POST /api/session/validate",
        _validate,
        "Is it signed in?",
        ValidAnswer,
        translate=partial(refusal_of, session_valid=False),
    )
    paid = "What is paid for, asked of the provider now"
    add("GET /api/patreon/license-status", _license, paid, LicenseAnswer, translate=_license_refusal)
    add("POST /api/patreon/revoke", _revoke, "End this session", DoneAnswer)
    add("POST /api/patreon/revoke-all", _revoke_all, "End every session of the user", RevokedAllAnswer)
    add("POST /api/auth/logout", _logout, "Sign out", operation_id="membership_logout")
    add("POST /api/auth/token", _token, "Tokens for a session", TokensAnswer)
    add("POST /api/auth/refresh", _refresh, "The next tokens", TokensAnswer)
    failed = partial(refusal_of, success=False)
    add("GET /api/quota/status", _quota, "What is left this month", QuotaAnswer, translate=failed)
    add("GET /.well-known/jwks.json", _jwks, "The keys that sign access tokens")
    add("POST /webhook", _webhook, "What the provider tells", HeardAnswer, dependencies=[_Webhooks])
    add("POST /api/crash-report", _crash_report, "Tell of a crash", DoneAnswer)
    for path, endpoint, summary in (
        ("/oauth/token", _oauth_token, "Exchange a code for the provider's own tokens"),
        ("/oauth/refresh", _oauth_refresh, "The provider's own next tokens"),
    ):
        add(
            f"POST {path}",
            endpoint,
            summary,
            ProviderTokensAnswer,
            dependencies=[_SignIns],
            operation_id=f"oauth_{path.rpartition('/')[2]}",
        )
    add(
        "GET /api/membership",
        _membership,
        "What the provider says of its own access token",
        MembershipAnswer,
        dependencies=[_SignIns],
    )
    add("GET /health", _health, "Is it there?", HealthAnswer, operation_id="health")
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        add(f"{method} /health", _health)
    add_account_routes(routes)
    add_program_routes(routes)
    add(f"GET {TRY_PATH}", _try)
    return routes


async def _sign_in(members: Serving, body: SignInBody) -> Response:
    return json_response(_signed_in(await members.sign_in(body.code, body.redirect_uri, body.code_verifier), members))


async def _oauth_token(members: Serving, body: CodeBody) -> Response:
    told = await members.exchange_code(body.code, body.redirect_uri, body.code_verifier)
    return JSONResponse(told, headers=NO_STORE)


async def _oauth_refresh(members: Serving, body: ProviderRefreshBody) -> Response:
    return JSONResponse(await members.exchange_refresh_token(body.refresh_token), headers=NO_STORE)


async def _membership(members: Serving, authorization: Authorization = None) -> Response:
    told = await members.membership_by(bearer(authorization))
    return json_response(
        MembershipAnswer(
            user_id=told.user_id,
            email=told.email,
            full_name=told.full_name,
            is_active_patron=told.is_active,
            patron_status=told.patron_status,
            entitled_amount_cents=told.entitled_amount_cents,
            tier=None if told.tier_id is None else Tier(id=told.tier_id),
        )
    )


async def _health(members: Serving) -> Response:
    now = moment(members.keys.now_ms()).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    environment = "development" if members.site.development else "production"
    return json_response(HealthAnswer(timestamp=now, environment=environment))


async def _validate(members: Serving, body: SessionBody) -> Response:
    member = await members.validate(body.session_token)
    return json_response(
        ValidAnswer(
            patreon_user_id=member.named.user,
            email=member.membership.email,
            full_name=member.membership.full_name,
            session_expires_at=member.expires_at_ms,
            **_paid(member),
        )
    )


async def _license(members: Serving, authorization: Authorization = None) -> Response:
    return json_response(LicenseAnswer(**_paid(await members.sync(bearer(authorization)))))


def _license_refusal(error: Exception) -> Refusal | None:
    """Nobody is signed out because the provider is in trouble, and an application should not think so."""
    stays = isinstance(error, MembershipRefused) and error.reason in ("PROVIDER_UNAVAILABLE", "RATE_LIMITED")
    return refusal_of(error, success=False, session_valid=stays, session_expired=not stays)


async def _revoke(members: Serving, authorization: Authorization = None) -> Response:
    """Answers the same whether there was a session or not."""
    await members.logout(bearer(authorization))
    return json_response(DoneAnswer(message="the session has ended"))


async def _revoke_all(members: Serving, authorization: Authorization = None) -> Response:
    ended = await members.logout_all(bearer(authorization))
    return json_response(RevokedAllAnswer(message="all sessions have ended", revoked_count=ended))


async def _logout(request: Request, members: Serving, authorization: Authorization = None) -> Response:
    """Ends whichever credential it is given: the bearer token here, or the cookie of the login kit.

    Where both are given, it is the bearer token: a page of another site can make a browser send the cookie, and not it.
    What a proxy puts into the header (`Basic …`) is no token.
    """
    login = request.app.state.kits.get("login")
    token = bearer_token(request)
    if login is not None and (token is None or login.tokens.is_own(token)):
        # Imported where it is needed: this kit runs without that one, too.
        from keystead.kits.login import routes as login_routes

        with translated(login_routes.refusal_of):
            return await login_routes.logout(login_routes.LoginVisit(request, login))
    await members.logout(bearer(authorization))
    return json_response(DoneAnswer(message="the session has ended"))


async def _token(
    request: Request, members: Serving, authorization: Authorization = None, app_session: AppSession = None
) -> Response:
    """For a session of a member, by bearer token; or of the login kit, by its cookie."""
    login = request.app.state.kits.get("login")
    if login is not None and parse_bearer(authorization) is None:
        from keystead.kits.login import routes as login_routes

        visit = login_routes.LoginVisit(request, login)
        if visit.token is not None:
            with translated(login_routes.refusal_of):
                return await login_routes.exchange(visit)
    return _pair(await members.tokens(bearer(authorization), app_session))


async def _refresh(request: Request, members: Serving, body: RefreshBody, app_session: AppSession = None) -> Response:
    """Of a session of a member, or of the login kit, as the token says."""
    login = request.app.state.kits.get("login")
    if login is not None and await login.tokens.find(body.refresh_token) is not None:
        from keystead.kits.login import routes as login_routes

        with translated(login_routes.refusal_of):
            return await login_routes.refresh(login_routes.LoginVisit(request, login), body.refresh_token)
    if not body.refresh_token:
        raise MembershipRefused("MISSING_REFRESH_TOKEN", "send the refreshToken")
    return _pair(await members.refreshed(body.refresh_token, app_session))


async def _quota(members: Serving, authorization: Authorization = None) -> Response:
    who, status = await members.quota(bearer(authorization))
    told = QuotaAnswer(
        monthly_usage=MonthlyUsage.of(status),
        plan=who.plan,
        has_bonus_tokens=status.has_bonus_tokens,
        plan_is_stale=who.plan_is_stale,
        plan_as_of=who.plan_as_of_ms,
    )
    return json_response(told, headers=quota_headers(status, members))


async def _jwks(members: Serving) -> Response:
    return JSONResponse(members.signing.jwks(), headers={"cache-control": "public, max-age=300"})


async def _webhook(
    request: Request,
    members: Serving,
    x_patreon_signature: Annotated[str | None, Header()] = None,
    x_patreon_event: Annotated[str, Header(max_length=64)] = "",
) -> Response:
    body = await request.body()  # as it was signed: not a byte of it may be read and written again
    heard = await members.webhook(body, x_patreon_signature, x_patreon_event)
    processed = heard.user is not None
    return json_response(
        HeardAnswer(event=heard.event, processed=processed, plan_change_recorded=heard.plan_change_recorded)
    )


async def _crash_report(members: Serving, verdict: _CrashReports, body: Annotated[dict[str, Any], Body()]) -> Response:
    is_new = await members.crash_report(body)
    done = DoneAnswer(message="the report was kept" if is_new else "this report was submitted already")
    return json_response(done, headers=None if verdict is None else rate_limit_headers(verdict))


class _TryVisit(Visit):
    messages = MESSAGES
    script = SCRIPT


async def _try(request: Request, members: Serving) -> Response:
    """Where a newcomer sees all this work. It is there with a stand-in for the provider only."""
    stand_in = members.stand_in
    if stand_in is None:
        raise Refusal(404, "NOT_FOUND", "There is nothing at this address.")
    visit = _TryVisit(request, members.site)
    if visit.home is not None:
        return visit.goes_on(visit.home)
    return visit.page(
        "membership/try.html",
        scripts=True,
        public_url=members.site.public_url,
        provider=stand_in.provider,
        pledges=stand_in.page,
        path=TRY_PATH,
    )


def _paid(member: Member) -> dict[str, Any]:
    told = member.membership
    return {
        "plan": told.plan,
        "tier_id": told.tier_id,
        "patron_status": told.patron_status,
        "next_charge_date": told.next_charge_date,
        "plan_is_stale": member.is_stale,
        "plan_as_of": member.as_of_ms,
    }


def _signed_in(signed: SignedIn, members: Members) -> SignedInAnswer:
    member = signed.member
    return SignedInAnswer(
        session_token=signed.token,
        patreon_user_id=member.named.user,
        email=member.membership.email,
        full_name=member.membership.full_name,
        expires_in=max(0, member.expires_at_ms - members.keys.now_ms()) // 1000,
        entitled_amount_cents=member.membership.entitled_amount_cents,
        **_paid(member),
    )


def _pair(pair: TokenPair) -> Response:
    return json_response(
        TokensAnswer(access_token=pair.access_token, refresh_token=pair.refresh_token, expires_in=pair.expires_in_s)
    )


KIT: Final = Kit(
    name="membership",
    doc="Patrons of a desktop app: one device each, tokens that live an hour, what they pay for, and fair limits.",
    keyspace=MembershipKeys,
    settings=MembershipSettings,
    turned_on_by="PATREON_CLIENT_ID, PATREON_CLIENT_SECRET, PATREON_WEBHOOK_SECRET and membership.redirect_uris",
    router=router,
    service=open_members,
    environment={
        "PATREON_CLIENT_ID": "client_id",
        "PATREON_CLIENT_SECRET": "client_secret",
        "PATREON_WEBHOOK_SECRET": "webhook_secret",
        "GEMINI_API_KEY": "translate_key",
        "JWT_SECRET": "jwt_secret",
        "SUPABASE_URL": "supabase_url",
        "SUPABASE_SERVICE_KEY": "supabase_service_key",
    },
    missing=missing,
    examples=(
        Example(
            "Try it",
            TRY_PATH,
            "Sign in at the demo provider, see what you pay for, and press what an app would.",
            is_there=lambda members: members.stand_in is not None,
        ),
    ),
    bodies=lambda settings: {"/api/crash-report": _BODY_MOST},
    jobs=lambda members: members.jobs,
    tables=MEMBERSHIP_TABLES,
    commands="keystead.kits.membership.commands:COMMANDS",
    leads=True,  # POST /api/auth/logout, which hands over to the login kit what has no bearer token
)
