"""Routes of a session: sign-in, validation, tokens, quota and sign-out."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Header, Request
from fastapi.responses import Response

from keystead.http.bearer import bearer_token, parse_bearer
from keystead.http.refusals import Refusal
from keystead.http.responses import json_response
from keystead.http.routing import translated
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
from keystead.kits.membership.service import Member, Members, MembershipRefused, SignInResult, TokenPair

AppSession = Annotated[str | None, Header(alias="x-app-session-id", max_length=128)]


async def sign_in(members: Serving, body: SignInBody) -> Response:
    return json_response(
        _sign_in_answer(await members.sign_in(body.code, body.redirect_uri, body.code_verifier), members)
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
    """Nobody is signed out because the provider is in trouble, and an application should not think so."""
    stays = isinstance(error, MembershipRefused) and error.reason in ("PROVIDER_UNAVAILABLE", "RATE_LIMITED")
    return refusal_of(error, success=False, session_valid=stays, session_expired=not stays)


async def revoke(members: Serving, authorization: Authorization = None) -> Response:
    """Answers the same whether there was a session or not."""
    await members.logout(bearer(authorization))
    return json_response(DoneAnswer(message="the session has ended"))


async def revoke_all(members: Serving, authorization: Authorization = None) -> Response:
    ended = await members.logout_all(bearer(authorization))
    return json_response(RevokedAllAnswer(message="all sessions have ended", revoked_count=ended))


async def logout(request: Request, members: Serving, authorization: Authorization = None) -> Response:
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


async def issue_tokens(
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
    return _respond_with_pair(await members.token_pairs.issue(bearer(authorization), app_session))


async def refresh_tokens(
    request: Request, members: Serving, body: RefreshBody, app_session: AppSession = None
) -> Response:
    """Of a session of a member, or of the login kit, as the token says."""
    login = request.app.state.kits.get("login")
    if login is not None and await login.tokens.find(body.refresh_token) is not None:
        from keystead.kits.login import routes as login_routes

        with translated(login_routes.refusal_of):
            return await login_routes.refresh(login_routes.LoginVisit(request, login), body.refresh_token)
    if not body.refresh_token:
        raise MembershipRefused("MISSING_REFRESH_TOKEN", "send the refreshToken")
    return _respond_with_pair(await members.token_pairs.refresh(body.refresh_token, app_session))


async def quota(members: Serving, authorization: Authorization = None) -> Response:
    who, status = await members.usage.quota(bearer(authorization))
    told = QuotaAnswer(
        monthly_usage=MonthlyUsage.of(status),
        plan=who.plan,
        has_bonus_tokens=status.has_bonus_tokens,
        plan_is_stale=who.plan_is_stale,
        plan_as_of=who.plan_as_of_ms,
    )
    return json_response(told, headers=quota_headers(status, members))


def _plan_fields(member: Member) -> dict[str, Any]:
    told = member.membership
    return {
        "plan": told.plan,
        "tier_id": told.tier_id,
        "patron_status": told.patron_status,
        "next_charge_date": told.next_charge_date,
        "plan_is_stale": member.is_stale,
        "plan_as_of": member.as_of_ms,
    }


def _sign_in_answer(signed: SignInResult, members: Members) -> SignedInAnswer:
    member = signed.member
    return SignedInAnswer(
        session_token=signed.token,
        patreon_user_id=member.session.user,
        email=member.membership.email,
        full_name=member.membership.full_name,
        expires_in=max(0, member.expires_at_ms - members.keys.now_ms()) // 1000,
        entitled_amount_cents=member.membership.entitled_amount_cents,
        **_plan_fields(member),
    )


def _respond_with_pair(pair: TokenPair) -> Response:
    return json_response(
        TokensAnswer(access_token=pair.access_token, refresh_token=pair.refresh_token, expires_in=pair.expires_in_s)
    )
