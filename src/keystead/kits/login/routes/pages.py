"""The pages of the login kit: sign-in, account, and sign-out everywhere."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Query
from fastapi.responses import Response

from keystead.catalogue import message
from keystead.http.refusals import Refusal
from keystead.http.routing import translate_errors
from keystead.kits.login.identity import SIGN_IN
from keystead.kits.login.routes.request import Visiting, refusal_of
from keystead.kits.login.service import is_return_path

# Why a session is over.
_GONE: Final = {
    "evicted": message("You were signed out here because you signed in on another device."),
    "revoked": message("This session was ended. Sign in again."),
    "expired": message("This session has expired. Sign in again."),
}


async def account_page(visit: Visiting) -> Response:
    """The account page. Redirects to sign-in if there is no session."""
    if visit.home is None and not await visit.login.read_session(visit.token):
        return visit.redirect_to(f"{SIGN_IN.page}?returnTo={SIGN_IN.account}")
    return await login_page(visit)


async def login_page(visit: Visiting, return_to: Annotated[str | None, Query(alias="returnTo")] = None) -> Response:
    """Sign-in page, or the list of sessions. Redirects to `returnTo` if the user is already signed in."""
    if visit.home is not None:
        return visit.redirect_to(visit.home)
    wanted = return_to if return_to is not None and is_return_path(return_to) else None
    await visit.count("sessions")
    live = await visit.login.session(visit.token)
    csrf = visit.csrf_token()
    cookie = visit.csrf.set(csrf)
    if live and wanted is not None:
        return visit.redirect_to(wanted)
    if live:
        own, sessions = await visit.login.list_sessions(visit.token)
        start = visit.login.start_path(own.session)
        return visit.page(
            "login/account.html", cookie, scripts=True, live=own, sessions=sessions, start=start, csrf=csrf
        )
    gone = _GONE.get(live.reason)
    return visit.page(
        "login/login.html",
        cookie,
        providers=visit.login.providers,
        gone=gone and visit.say(gone),
        return_to=wanted or SIGN_IN.page,
    )


async def everywhere_page(visit: Visiting) -> Response:
    """Confirmation before all sessions end. Redirects to sign-in if there is no session."""
    try:
        with translate_errors(refusal_of):
            await visit.count("sessions")
            _, sessions = await visit.login.list_sessions(visit.token)
    except Refusal as refusal:
        if refusal.status == 401:
            return visit.redirect_to("/login")
        return visit.problem(refusal)
    csrf = visit.csrf_token()
    return visit.page("login/everywhere.html", visit.csrf.set(csrf), csrf=csrf, count=len(sessions))
