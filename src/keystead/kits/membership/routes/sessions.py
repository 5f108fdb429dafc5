"""Routes for sessions: sign-in, validation, tokens, quota and sign-out."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Header, Request
from fastapi.responses import Response

from keystead.http.bearer import bearer_token, parse_bearer
from keystead.http.refusals import Refusal
from keystead.http.responses import json_response
from keystead.http.routing import translate_errors
from keystead.kits.membership.routes.account import MonthlyUsage, quota_headers
from keystead.kits.membership.routes.bodies import (
    DoneAnswer,
    LicenseAnswer,
    QuotaAnswer,
    RefreshBody,
    RevokedAllAnswer,
    SessionBody,
    SignedInAnswer,
    SignInBody,
    TokensAnswer,
    ValidAnswer,
)
from keystead.kits.membership.routes.request import Authorization, Serving, bearer, refusal_of
from keystead.kits.membership.service import Member, MembershipRefused, TokenPair

AppSession = Annotated[str | None, Header(alias="x-app-session-id", max_length=128)]


async def sign_in(members: Serving, body: SignInBody) -> Response:
    result = await members.sign_in(body.code, body.redirect_uri, body.code_verifier)
    member = result.member
    return json_response(
        SignedInAnswer(
            session_token=result.token,
            patreon_user_id=member.session.user,
            email=member.membership.email,
            full_name=member.membership.full_name,
            expires_in=max(0, member.expires_at_ms - members.keys.now_ms()) // 1000,
            entitled_amount_cents=member.membership.entitled_amount_cents,
            **_plan_fields(member),
        )
    )


async def validate(members: Serving, body: SessionBody) -> Response:
    member = await members.validate(body.session_token)
    return json_response(
        ValidAnswer(
            patreon_user_id=member.session.user,
            email=member.membership.email,
            full_name=member.membership.full_name,
            session_expires_at=member.expires_at_ms,
            **_plan_fields(member),
        )
    )


async def license_status(members: Serving, authorization: Authorization = None) -> Response:
    return json_response(LicenseAnswer(**_plan_fields(await members.sync(bearer(authorization)))))


def license_refusal(error: Exception) -> Refusal | None:
    """The session stays valid while the provider is unavailable, and the response says so."""
    is_valid = isinstance(error, MembershipRefused) and error.reason in ("PROVIDER_UNAVAILABLE", "RATE_LIMITED")
    return refusal_of(error, success=False, session_valid=is_valid, session_expired=not is_valid)


async def revoke(members: Serving, authorization: Authorization = None) -> Response:
    """The response is the same whether there was a session or not."""
    await members.logout(bearer(authorization))
    return json_response(DoneAnswer(message="the session has ended"))


async def revoke_all(members: Serving, authorization: Authorization = None) -> Response:
    ended = await members.logout_all(bearer(authorization))
    return json_response(RevokedAllAnswer(message="all sessions have ended", revoked_count=ended))


async def logout(request: Request, members: Serving, authorization: Authorization = None) -> Response:
    """Sign out the given credential: a bearer token here, or the cookie of the login kit.

    If both are sent, the bearer token wins: another site can make a browser send the cookie, but not the token. Other
    schemes in the header, such as `Basic …` from a proxy, are ignored.
    """
    login = request.app.state.kits.get("login")
    token = bearer_token(request)
    if login is not None and (token is None or login.tokens.is_own(token)):
        # Imported here because this kit also runs without the login kit.
        from keystead.kits.login import routes as login_routes

        with translate_errors(login_routes.refusal_of):
            return await login_routes.logout(login_routes.LoginVisit(request, login))
    await members.logout(bearer(authorization))
    return json_response(DoneAnswer(message="the session has ended"))


async def issue_tokens(
    request: Request, members: Serving, authorization: Authorization = None, app_session: AppSession = None
) -> Response:
    """Issue tokens for a member's session (bearer token), or for a session of the login kit (cookie)."""
    login = request.app.state.kits.get("login")
    if login is not None and parse_bearer(authorization) is None:
        from keystead.kits.login import routes as login_routes

        visit = login_routes.LoginVisit(request, login)
        if visit.token is not None:
            with translate_errors(login_routes.refusal_of):
                return await login_routes.exchange(visit)
    return _respond_with_pair(await members.token_pairs.issue(bearer(authorization), app_session))


async def refresh_tokens(
    request: Request, members: Serving, body: RefreshBody, app_session: AppSession = None
) -> Response:
    """Refresh tokens of this kit or of the login kit, whichever issued the token."""
    login = request.app.state.kits.get("login")
    if login is not None and await login.tokens.find(body.refresh_token) is not None:
        from keystead.kits.login import routes as login_routes

        with translate_errors(login_routes.refusal_of):
            return await login_routes.refresh(login_routes.LoginVisit(request, login), body.refresh_token)
    if not body.refresh_token:
        raise MembershipRefused("MISSING_REFRESH_TOKEN", "send the refreshToken")
    return _respond_with_pair(await members.token_pairs.refresh(body.refresh_token, app_session))


async def quota(members: Serving, authorization: Authorization = None) -> Response:
    who, status = await members.usage.quota(bearer(authorization))
    answer = QuotaAnswer(
        monthly_usage=MonthlyUsage.of(status),
        plan=who.plan,
        has_bonus_tokens=status.has_bonus_tokens,
        plan_is_stale=who.plan_is_stale,
        plan_as_of=who.plan_as_of_ms,
    )
    return json_response(answer, headers=quota_headers(status, members))


def _plan_fields(member: Member) -> dict[str, Any]:
    membership = member.membership
    return {
        "plan": membership.plan,
        "tier_id": membership.tier_id,
        "patron_status": membership.patron_status,
        "next_charge_date": membership.next_charge_date,
        "plan_is_stale": member.is_stale,
        "plan_as_of": member.as_of_ms,
    }


def _respond_with_pair(pair: TokenPair) -> Response:
    return json_response(
        TokensAnswer(access_token=pair.access_token, refresh_token=pair.refresh_token, expires_in=pair.expires_in_s)
    )
