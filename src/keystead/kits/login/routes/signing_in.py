"""Routes of a sign-in: start, OAuth callback, confirmation, and session claim of an installed app."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import quote

from fastapi import Query
from fastapi.responses import RedirectResponse, Response

from keystead.http.refusals import NO_STORE, Refusal
from keystead.http.responses import json_response, with_cookies
from keystead.http.routing import translate_errors
from keystead.kits.identity import set_user
from keystead.kits.login.identity import user_of
from keystead.kits.login.routes.bodies import (
    ClaimBody,
    ClaimedAnswer,
    FinishedAnswer,
    StartedAnswer,
    StartedInAppAnswer,
)
from keystead.kits.login.routes.request import LoginVisit, ProviderName, Visiting, refusal_of
from keystead.kits.login.service import Finished, Full, Unconfirmed

LOGIN_SECONDS: Final = 600


async def start(
    visit: Visiting,
    provider: ProviderName,
    context: Annotated[str, Query(description="browser or pwa")] = "browser",
    return_to: Annotated[str | None, Query(alias="returnTo", description="a path on this site")] = None,
    format: Annotated[str | None, Query(description="json: URLs instead of a redirect")] = None,
) -> Response:
    if visit.home is not None and not visit.wants_json:
        return visit.redirect_to(visit.home)
    try:
        with translate_errors(refusal_of):
            await visit.count("start")
            started = await visit.login.sign_ins.start(
                provider,
                context="pwa" if context == "pwa" else "browser",
                return_to=return_to or None,
                browser=visit.read(visit.browser),
            )
    except Refusal as refusal:
        return visit.problem(refusal)
    cookies = [visit.browser.set(started.browser, LOGIN_SECONDS)]
    cookies.append(visit.bridge.set(started.claim, LOGIN_SECONDS) if started.claim else visit.bridge.clear())
    if visit.wants_json:
        answer = {
            "authorize_url": started.authorize_url,
            "app_authorize_url": started.app_authorize_url,
            "state": started.state,
        }
        if started.code is None:
            return json_response(StartedAnswer.model_validate(answer), *cookies)
        return json_response(StartedInAppAnswer.model_validate({**answer, "code": started.code}), *cookies)
    return with_cookies(RedirectResponse(started.authorize_url, 302, headers=NO_STORE), cookies)


async def callback(
    visit: Visiting,
    provider: ProviderName,
    code: Annotated[str | None, Query()] = None,
    state: Annotated[str | None, Query()] = None,
    iss: Annotated[str | None, Query()] = None,
    error: Annotated[str | None, Query()] = None,
    error_description: Annotated[str | None, Query()] = None,
) -> Response:
    """Responds with a page, not a redirect: the service worker of an installed app would swallow a redirect."""
    try:
        with translate_errors(refusal_of):
            await visit.count("callback")
            if error is not None:
                return await _render_provider_refusal(visit, provider, state, error)
            done = await visit.login.sign_ins.callback(
                provider,
                code=code,
                state=state,
                iss=iss,
                browser=visit.read(visit.browser),
                token=visit.token,
                visitor=visit.visitor,
                can_ask=not visit.wants_json,
            )
    except Refusal as refusal:
        return visit.problem(refusal)
    if isinstance(done, Unconfirmed):
        cookie = visit.browser.set(done.browser, LOGIN_SECONDS)
        return visit.page(
            "login/confirm.html", cookie, provider=provider, name=done.name, confirm=done.confirm, codes=done.codes
        )
    return _render_finished(visit, provider, done)


def _render_finished(visit: LoginVisit, provider: str, done: Finished | Full) -> Response:
    if isinstance(done, Full):
        cookie = visit.browser.set(done.browser, LOGIN_SECONDS)
        return visit.page(
            "login/full.html",
            cookie,
            status=409,
            scripts=True,
            provider=provider,
            name=done.name,
            confirm=done.confirm,
            sessions=done.sessions,
        )
    cookies = [visit.sid.set(done.token, visit.session_seconds)] if done.token else []
    if done.token is not None:
        set_user(visit.request.scope, user_of(done.session, "cookie"))
    if visit.wants_json:
        return json_response(FinishedAnswer(redirect_to=done.return_to, login_context=done.context), *cookies)
    return visit.page(
        "login/finished.html",
        *cookies,
        name=done.session.name,
        return_to=done.return_to,
        is_elsewhere=done.token is None,
    )


async def _render_provider_refusal(visit: LoginVisit, provider: str, state: str | None, error: str) -> Response:
    to, word = await visit.login.sign_ins.refused_by_provider(provider, state, error)
    path, mark, fragment = to.partition("#")
    target = f"{path}{'&' if '?' in path else '?'}{quote(provider)}_oauth_error={quote(word)}{mark}{fragment}"
    if visit.wants_json:
        raise Refusal(
            400,
            "OAUTH_ERROR",
            "the sign-in was refused at the provider",
            more={"oauthError": word, "redirectTo": target},
        )
    shown = provider.capitalize()
    denied = word == "access_denied"
    sentence = (
        visit.say("You did not authorize this site at {provider}.", provider=shown)
        if denied
        else visit.say("{provider} refused the sign-in ({word}).", provider=shown, word=word)
    )
    return visit.page("login/refused.html", status=400, sentence=sentence, return_to=target)


async def confirm(visit: Visiting, provider: ProviderName) -> Response:
    """The user confirms a sign-in, with the code of the app if there is one, rejects it, or picks a session to end."""
    fields = {name: await visit.field(name) for name in ("confirm", "deny", "code", "end")}
    confirm, browser = fields["confirm"] or "", visit.read(visit.browser)
    try:
        with translate_errors(refusal_of):
            await visit.count("callback")
            visit.refuse_forged(None)
            if fields["deny"]:
                await visit.login.sign_ins.deny(provider, confirm, browser, visit.visitor)
                return visit.redirect_to("/login")
            done = await visit.login.sign_ins.confirm(
                provider,
                confirm,
                browser,
                visit.token,
                visitor=visit.visitor,
                code=fields["code"],
                end=fields["end"],
            )
    except Refusal as refusal:
        return visit.problem(refusal)
    return _render_finished(visit, provider, done)


async def claim_session(visit: Visiting, provider: ProviderName, body: ClaimBody) -> Response:
    visit.refuse_cross_site()
    await visit.count("claim")
    token = await visit.login.sign_ins.claim(provider, body.state, visit.read(visit.bridge), visit.token, visit.visitor)
    cookies = visit.sid.set(token, visit.session_seconds), visit.bridge.clear()
    return json_response(ClaimedAnswer(), *cookies)
