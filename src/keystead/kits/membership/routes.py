"""The routes of the membership kit. They translate HTTP, and decide nothing."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Body, Depends, Header, Request
from fastapi.responses import JSONResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from keystead.kits.kit import Example, Kit, service_of
from keystead.kits.limited import address_of, limited
from keystead.kits.membership.keys import MembershipKeys
from keystead.kits.membership.models import Plan
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
from keystead.kits.refusal import Refusal
from keystead.kits.visit import NO_STORE, Visit
from keystead.parts.limit import Limits, Verdict

_BODY_MOST: Final = 1024 * 1024  # of a crash report with its logs

# What each refusal of the service is in HTTP.
STATUS: Final[Mapping[str, int]] = {
    "INVALID_REDIRECT_URI": 400,
    "VALIDATION_ERROR": 400,
    "WEBHOOK_ERROR": 400,
    "MISSING_REFRESH_TOKEN": 400,
    "MISSING_AUTH": 401,
    "TOKEN_EXCHANGE_FAILED": 401,
    "IDENTITY_FETCH_FAILED": 401,
    "SESSION_INVALID": 401,
    "SESSION_EXPIRED": 401,
    "PATREON_TOKEN_EXPIRED": 401,
    "INVALID_REFRESH_TOKEN": 401,
    "MISSING_SIGNATURE": 401,
    "INVALID_SIGNATURE": 401,
    "RATE_LIMITED": 429,
    "CONFIG_ERROR": 503,
    "PROVIDER_UNAVAILABLE": 503,
    "WEBHOOK_NOT_CONFIGURED": 503,
}


# --- what is sent and answered ---------------------------------------------------------------------------------


class SignInBody(BaseModel):
    code: str = Field(min_length=1, max_length=4096)
    redirect_uri: str = Field(min_length=1, max_length=2048)
    code_verifier: str | None = Field(None, max_length=128, description="Of an application that began with PKCE.")
    state: str | None = Field(None, max_length=2048, description="Checked by the application; not used here.")


class SessionBody(BaseModel):
    session_token: str = Field(max_length=1024)


class RefreshBody(BaseModel):
    model_config = ConfigDict(json_schema_extra={"required": ["refreshToken"]})  # one that lacks it has its own answer

    refreshToken: str = Field("", max_length=1024)  # noqa: N815 - the document's name


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


class LicenseAnswer(BaseModel):
    success: Literal[True] = True
    session_valid: Literal[True] = True
    session_expired: Literal[False] = False
    plan: Plan
    tier_id: str | None
    patron_status: str | None
    next_charge_date: str | None
    error: None = None
    error_code: None = None


class DoneAnswer(BaseModel):
    success: Literal[True] = True
    message: str


class RevokedAllAnswer(DoneAnswer):
    revoked_count: int


class TokensAnswer(BaseModel):
    accessToken: str  # noqa: N815
    refreshToken: str  # noqa: N815
    expiresIn: int  # noqa: N815
    tokenType: Literal["Bearer"] = "Bearer"  # noqa: N815


class MonthlyUsage(BaseModel):
    year_month: str
    tokens_used: int
    tokens_limit: int
    is_exceeded: bool


class QuotaAnswer(BaseModel):
    success: Literal[True] = True
    monthly_usage: MonthlyUsage
    plan: Plan
    has_bonus_tokens: bool


class HeardAnswer(BaseModel):
    success: Literal[True] = True
    event: str
    processed: bool
    planChangeRecorded: bool  # noqa: N815


# --- the request -----------------------------------------------------------------------------------------------

Serving = Annotated[Members, Depends(service_of("membership"))]
Authorization = Annotated[str | None, Header(description="Bearer, and the token")]
AppSession = Annotated[str | None, Header(alias="x-app-session-id", max_length=128)]


@asynccontextmanager
async def _refusals(**more: object) -> AsyncIterator[None]:
    """Turns what the service refuses into what the server answers. `more` stands beside the sentence."""
    try:
        yield
    except MembershipRefused as refused:
        headers = dict(NO_STORE)
        if refused.retry_after_s is not None:
            headers["retry-after"] = str(refused.retry_after_s)
        told = {"error_code": refused.reason, **more}
        raise Refusal(STATUS[refused.reason], refused.reason, str(refused), headers=headers, more=told) from None


def _is_bearer(authorization: str | None) -> bool:
    return (authorization or "").strip().partition(" ")[0].lower() == "bearer"


def _bearer(authorization: str | None) -> str:
    """The token of the header. Raises MembershipRefused where there is none."""
    token = (authorization or "").strip().partition(" ")[2].strip()
    if not _is_bearer(authorization) or not token:
        raise MembershipRefused("MISSING_AUTH", "send the header Authorization: Bearer, and the token")
    return token.strip()


def _limit(name: Literal["webhooks", "sign_ins", "crash_reports"]) -> Callable[[Request], Limits | None]:
    def found(request: Request) -> Limits | None:
        limit: Limits | None = getattr(request.app.state.kits["membership"], name)
        return limit

    return found


def _of(name: str) -> Callable[[Request], str]:
    """Whose requests a limit counts, where several limits share a family."""
    return lambda request: f"{name}:{address_of(request)}"


def _ip(request: Request) -> str:
    """The address itself, where the key holds one; all who have none are one."""
    try:
        return str(ip_address(address_of(request)))
    except ValueError:
        return "0.0.0.0"  # noqa: S104 - nobody's address


_SignIns = Depends(limited(_limit("sign_ins"), client=_of("sign-in")))
_Webhooks = Depends(limited(_limit("webhooks"), client=_of("webhook")))
_CrashReports = Annotated[Verdict | None, Depends(limited(_limit("crash_reports"), client=_ip))]


# --- the routes ------------------------------------------------------------------------------------------------


def router() -> APIRouter:
    """All routes of the kit."""
    routes = APIRouter(tags=["membership"])
    add = routes.add_api_route
    for path in ("/api/auth/callback", "/api/patreon/exchange"):
        add(
            path,
            _sign_in,
            methods=["POST"],
            response_model=SignedInAnswer,
            dependencies=[_SignIns],
            summary="Exchange a code of the provider for a session",
            operation_id=f"sign_in_{path.split('/')[2]}",
        )
    add("/api/session/validate", _validate, methods=["POST"], response_model=ValidAnswer, summary="Is it signed in?")
    add(
        "/api/patreon/license-status",
        _license,
        methods=["GET"],
        response_model=LicenseAnswer,
        summary="What is paid for, asked of the provider now",
    )
    add("/api/patreon/revoke", _revoke, methods=["POST"], response_model=DoneAnswer, summary="End this session")
    add(
        "/api/patreon/revoke-all",
        _revoke_all,
        methods=["POST"],
        response_model=RevokedAllAnswer,
        summary="End every session of the user",
    )
    add("/api/auth/logout", _logout, methods=["POST"], summary="Log out", operation_id="membership_logout")
    add("/api/auth/token", _token, methods=["POST"], response_model=TokensAnswer, summary="Tokens for a session")
    add("/api/auth/refresh", _refresh, methods=["POST"], response_model=TokensAnswer, summary="The next tokens")
    add("/api/quota/status", _quota, methods=["GET"], response_model=QuotaAnswer, summary="What is left this month")
    add("/.well-known/jwks.json", _jwks, methods=["GET"], summary="The keys that sign access tokens")
    add(
        "/webhook",
        _webhook,
        methods=["POST"],
        response_model=HeardAnswer,
        dependencies=[_Webhooks],
        summary="What the provider tells",
    )
    add("/api/crash-report", _crash_report, methods=["POST"], response_model=DoneAnswer, summary="Tell of a crash")
    add(TRY_PATH, _try, methods=["GET"], include_in_schema=False)
    return routes


async def _sign_in(members: Serving, body: SignInBody) -> Response:
    async with _refusals():
        return _answer(_signed_in(await members.sign_in(body.code, body.redirect_uri, body.code_verifier), members))


async def _validate(members: Serving, body: SessionBody) -> Response:
    async with _refusals(session_valid=False):
        member = await members.validate(body.session_token)
    return _answer(
        ValidAnswer(
            patreon_user_id=member.named.user,
            email=member.membership.email,
            full_name=member.membership.fullName,
            session_expires_at=member.expires_at_ms,
            **_paid(member),
        )
    )


async def _license(members: Serving, authorization: Authorization = None) -> Response:
    async with _refusals(success=False, session_valid=False, session_expired=True):
        token = _bearer(authorization)
        try:
            member = await members.sync(token)
        except MembershipRefused as refused:
            # Nobody is signed out because the provider is in trouble, and an application should not think so.
            stays = refused.reason in ("PROVIDER_UNAVAILABLE", "RATE_LIMITED")
            async with _refusals(success=False, session_valid=stays, session_expired=not stays):
                raise
    return _answer(LicenseAnswer(**_paid(member)))


async def _revoke(members: Serving, authorization: Authorization = None) -> Response:
    """Answers the same whether there was a session or not."""
    async with _refusals():
        await members.logout(_bearer(authorization))
    return _answer(DoneAnswer(message="the session has ended"))


async def _revoke_all(members: Serving, authorization: Authorization = None) -> Response:
    async with _refusals():
        ended = await members.logout_all(_bearer(authorization))
    return _answer(RevokedAllAnswer(message="all sessions have ended", revoked_count=ended))


async def _logout(request: Request, members: Serving, authorization: Authorization = None) -> Response:
    """Ends whichever credential it is given: the bearer token here, or the cookie of the login kit.

    Where both are given, it is the bearer token: a page of another site can make a browser send the cookie, and not it.
    What a proxy puts into the header (`Basic …`) is no token.
    """
    login = request.app.state.kits.get("login")
    if login is not None and not _is_bearer(authorization):
        return await _login_logout(request, login)
    async with _refusals():
        await members.logout(_bearer(authorization))
    return _answer(DoneAnswer(message="the session has ended"))


async def _login_logout(request: Request, login: Any) -> Response:
    # Imported where it is needed: this kit runs without that one, too.
    from keystead.kits.login.routes import LoginVisit, logout

    return await logout(LoginVisit(request, login))


async def _token(members: Serving, authorization: Authorization = None, app_session: AppSession = None) -> Response:
    async with _refusals():
        return _pair(await members.tokens(_bearer(authorization), app_session))


async def _refresh(members: Serving, body: RefreshBody, app_session: AppSession = None) -> Response:
    async with _refusals():
        if not body.refreshToken:
            raise MembershipRefused("MISSING_REFRESH_TOKEN", "send the refreshToken")
        return _pair(await members.refreshed(body.refreshToken, app_session))


async def _quota(members: Serving, authorization: Authorization = None) -> Response:
    async with _refusals(success=False):
        who, status = await members.quota(_bearer(authorization))
    usage = MonthlyUsage(
        year_month=status.month,
        tokens_used=status.tokens_used,
        tokens_limit=status.tokens_limit,
        is_exceeded=status.is_exceeded,
    )
    answer = _answer(QuotaAnswer(monthly_usage=usage, plan=who.plan, has_bonus_tokens=status.has_bonus_tokens))
    answer.headers["x-ratelimit-limit"] = str(status.tokens_limit)
    answer.headers["x-ratelimit-remaining"] = str(max(0, status.tokens_limit - status.tokens_used))
    answer.headers["x-ratelimit-reset"] = str(members.month_ends_s())
    return answer


async def _jwks(members: Serving) -> Response:
    return JSONResponse(members.signing.jwks(), headers={"cache-control": "public, max-age=300"})


async def _webhook(
    request: Request,
    members: Serving,
    x_patreon_signature: Annotated[str | None, Header()] = None,
    x_patreon_event: Annotated[str, Header(max_length=64)] = "",
) -> Response:
    body = await request.body()  # as it was signed: not a byte of it may be read and written again
    async with _refusals():
        heard = await members.webhook(body, x_patreon_signature, x_patreon_event)
    processed = heard.user is not None
    return _answer(HeardAnswer(event=heard.event, processed=processed, planChangeRecorded=heard.plan_change_recorded))


async def _crash_report(members: Serving, verdict: _CrashReports, body: Annotated[dict[str, Any], Body()]) -> Response:
    async with _refusals():
        is_new = await members.crash_report(body)
    answer = _answer(DoneAnswer(message="the report was kept" if is_new else "this report was submitted already"))
    answer.headers.update({} if verdict is None else verdict.headers())
    return answer


async def _try(request: Request, members: Serving) -> Response:
    """Where a newcomer sees all this work. It is there with a stand-in for the provider only."""
    stand_in = members.stand_in
    if stand_in is None:
        raise Refusal(404, "NOT_FOUND", "There is nothing at this address.")
    visit = Visit(request, members.site)
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
        "tier_id": told.tierId,
        "patron_status": told.patronStatus,
        "next_charge_date": told.nextChargeDate,
    }


def _signed_in(signed: SignedIn, members: Members) -> SignedInAnswer:
    member = signed.member
    return SignedInAnswer(
        session_token=signed.token,
        patreon_user_id=member.named.user,
        email=member.membership.email,
        full_name=member.membership.fullName,
        expires_in=max(0, member.expires_at_ms - members.keys.now_ms()) // 1000,
        entitled_amount_cents=member.membership.entitledAmountCents,
        **_paid(member),
    )


def _pair(pair: TokenPair) -> Response:
    return _answer(
        TokensAnswer(accessToken=pair.access_token, refreshToken=pair.refresh_token, expiresIn=pair.expires_in_s)
    )


def _answer(body: BaseModel) -> Response:
    return JSONResponse(body.model_dump(), headers=NO_STORE)


KIT: Final = Kit(
    name="membership",
    doc="Patrons of a desktop app: one device each, tokens that live an hour, what they pay for, and fair limits.",
    keyspace=MembershipKeys,
    settings=MembershipSettings,
    router=router,
    service=open_members,
    environment={
        "PATREON_CLIENT_ID": "client_id",
        "PATREON_CLIENT_SECRET": "client_secret",
        "PATREON_WEBHOOK_SECRET": "webhook_secret",
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
    leads=True,  # POST /api/auth/logout, which hands over to the login kit what has no bearer token
)
