"""Routes of sessions: the signed-in user, tokens for programs, and sign-out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated

from fastapi import Path, Query
from fastapi.responses import Response
from pydantic import BaseModel

from keystead.http.bearer import bearer_token
from keystead.http.refusals import Refusal
from keystead.http.responses import json_response
from keystead.http.routing import translate_errors
from keystead.kits.login.identity import live_session
from keystead.kits.login.routes.bodies import (
    EndedAnswer,
    LoggedInAnswer,
    LoggedOutAnswer,
    ProviderRefusedAnswer,
    ProvidersAnswer,
    RefreshBody,
    SessionAnswer,
    SessionsAnswer,
    TokenPairAnswer,
    User,
)
from keystead.kits.login.routes.request import LoginVisit, Visiting, refusal_of
from keystead.kits.login.service import TokenPair, Visitor, not_logged_in
from keystead.kits.visit import Ok


async def list_providers(visit: Visiting) -> Response:
    return json_response(ProvidersAnswer(providers=visit.login.providers))


async def csrf(visit: Visiting) -> Response:
    """Also sets the token as a cookie. Send it back as `csrf` in the body, or in the header x-csrf-token."""
    await visit.count("csrf")
    return visit.csrf_response()


async def me(visit: Visiting, soft: Annotated[str | None, Query()] = None) -> Response:
    """With `soft=1`, being signed out is not an error. If `providerSignInRequired` is true, the provider issues no new
    tokens until the user signs in again at `startUrl`."""
    await visit.count("me")
    is_program = bearer_token(visit.request) is not None
    live = await (live_session(visit.login, visit.request) if is_program else visit.login.session(visit.token))
    if live:
        user = User(id=live.session.uid, name=live.session.name, avatar=live.session.avatar)
        if live.session.provider_refused:
            start = visit.login.start_path(live.session)
            return json_response(ProviderRefusedAnswer(user=user, start_url=start))
        return json_response(LoggedInAnswer(user=user))
    # Do not clear the cookie: this response may arrive after a sign-in in another tab and delete the new cookie.
    if soft == "1":
        return json_response(LoggedOutAnswer())
    refused = not_logged_in(live)
    raise Refusal(401, refused.reason, str(refused), more={"loggedIn": False}, sign_in_helps=True)


async def exchange(visit: Visiting) -> Response:
    """Exchanges the session cookie for tokens, valid until the session ends. A session may have several pairs."""
    visit.refuse_forged(await visit.field("csrf"))
    await visit.count("token")
    return _respond_with_pair(await visit.login.exchange(visit.token, visit.visitor))


async def refresh_tokens(visit: Visiting, body: RefreshBody) -> Response:
    return await refresh(visit, body.refresh_token)


async def refresh(visit: LoginVisit, refresh_token: str) -> Response:
    """Needs no CSRF check: a page of another site does not have the token."""
    await visit.count("token")
    return _respond_with_pair(await visit.login.next_tokens(refresh_token))


def _respond_with_pair(pair: TokenPair) -> Response:
    return json_response(
        TokenPairAnswer(access_token=pair.access_token, refresh_token=pair.refresh_token, expires_in=pair.expires_in_s)
    )


async def logout(visit: Visiting) -> Response:
    """Ends the session of the cookie, or the tokens of a program. The response does not tell whether there was one."""
    token = bearer_token(visit.request)
    if token is not None and visit.login.tokens.is_own(token):
        await visit.count("logout")
        await visit.login.logout_program(token, visit.visitor)
        return json_response(Ok())
    visit.refuse_forged(await visit.field("csrf"))
    await visit.count("logout")
    await visit.login.logout(visit.token, visit.visitor)
    return _respond(visit, Ok(), visit.sid.clear())


async def logout_all(visit: Visiting) -> Response:
    """Ends all sessions of the user, including this one. The sign-in must be recent."""
    return await _end_sessions(visit, visit.login.logout_all, visit.sid.clear())


async def logout_others(visit: Visiting) -> Response:
    """Ends all other sessions of the user. The sign-in must be recent."""
    return await _end_sessions(visit, visit.login.logout_others)


async def _end_sessions(
    visit: LoginVisit, end: Callable[[str | None, Visitor], Awaitable[int]], *cookies: str
) -> Response:
    visit.refuse_forged(await visit.field("csrf"))
    try:
        with translate_errors(refusal_of):
            await visit.count("logout")
            ended = await end(visit.token, visit.visitor)
    except Refusal as refusal:
        return _ask_to_sign_in_again(visit, refusal)
    return _respond(visit, EndedAnswer(ended=ended), *cookies)


async def list_sessions(visit: Visiting) -> Response:
    await visit.count("sessions")
    own, sessions = await visit.login.list_sessions(visit.token)
    listed = [
        SessionAnswer(
            id=one.id,
            current=one.id == own.id,
            created_at=_ms(one.session.created_at),
            last_seen_at=_ms(one.session.last_seen_at),
            ends_at=one.ends_at_ms,
            browser=one.session.browser,
            device=one.session.device,
        )
        for one in sessions
    ]
    return json_response(SessionsAnswer(sessions=listed))


async def end_session(visit: Visiting, id: Annotated[str, Path(max_length=64)]) -> Response:
    """Ending a session other than this one needs a recent sign-in. The id of another user's session ends nothing."""
    visit.refuse_forged(await visit.field("csrf"))
    try:
        with translate_errors(refusal_of):
            await visit.count("sessions")
            own = await visit.login.session(visit.token)
            ended = await visit.login.end(visit.token, id, visit.visitor)
    except Refusal as refusal:
        return _ask_to_sign_in_again(visit, refusal)
    cookies = [visit.sid.clear()] if own and own.id == id else []
    return _respond(visit, EndedAnswer(ended=int(ended)), *cookies)


def _respond(visit: LoginVisit, body: BaseModel, *cookies: str) -> Response:
    return visit.redirect_to("/login", *cookies) if visit.is_form else json_response(body, *cookies)


def _ask_to_sign_in_again(visit: LoginVisit, refusal: Refusal) -> Response:
    """For forms, a page that asks to sign in again; otherwise the refusal."""
    if refusal.code != "LOGIN_AGAIN" or not visit.is_form:
        return visit.problem(refusal)
    return visit.page("login/again.html", status=refusal.status, start=refusal.more["startUrl"])


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
