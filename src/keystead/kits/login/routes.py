"""The routes of the login kit. They translate HTTP, and decide nothing."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Final, Literal
from urllib.parse import quote

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.responses import RedirectResponse, Response
from pydantic import BaseModel, Field
from pydantic.alias_generators import to_camel

from keystead.errors import CapReached
from keystead.http.bearer import bearer_token
from keystead.http.cookies import Cookie
from keystead.http.rate_limits import too_many_requests
from keystead.http.refusals import NO_STORE, Refusal, statuses
from keystead.http.responses import json_response, with_cookies
from keystead.http.routing import KitRouter, translated
from keystead.kits.camel_model import CamelBody, CamelModel
from keystead.kits.identity import SignedInUser, set_user
from keystead.kits.kit import Example, Kit, service_of
from keystead.kits.login.identity import SIGN_IN, SPACE, live_session
from keystead.kits.login.keys import LoginKeys
from keystead.kits.login.messages import MESSAGES
from keystead.kits.login.service import (
    Finished,
    Full,
    Login,
    LoginRefused,
    LoginSettings,
    TokenPair,
    Unconfirmed,
    Visitor,
    is_return_path,
    missing,
    not_logged_in,
    open_login,
)
from keystead.kits.visit import CsrfAnswer, Ok, Visit
from keystead.parts.limit import LimitReached

LOGIN_SECONDS: Final = 600


# What each refusal of the service is in HTTP.
STATUS: Final = statuses(
    {
        400: "BAD_RETURN_TO BAD_CALLBACK STATE_INVALID STATE_REQUIRED",
        401: (
            "PROVIDER_REFUSED CLAIM_TOKEN_REQUIRED NOT_LOGGED_IN SESSION_EVICTED SESSION_REVOKED "
            "SESSION_EXPIRED INVALID_TOKEN INVALID_REFRESH_TOKEN"
        ),
        403: "CODE_WRONG CLAIM_TOKEN_WRONG LOGIN_AGAIN",
        404: "UNKNOWN_PROVIDER NOT_FOUND",
        409: "CONFIRMATION_REQUIRED ALREADY_CLAIMED",
        410: "NOT_CLAIMABLE SESSION_ENDED",
        502: "PROVIDER_UNAVAILABLE",
        503: "TRY_AGAIN",
    }
)

# A sign-in that begins anew may succeed.
_START_AGAIN: Final = frozenset({"STATE_INVALID", "PROVIDER_UNAVAILABLE"})


# --- what is sent and answered ---------------------------------------------------------------------------------


class StartedAnswer(Ok):
    authorize_url: str
    app_authorize_url: str | None
    state: str


class StartedInAppAnswer(StartedAnswer):
    code: str = Field(description="For the app to show: the user finds it again where the sign-in is confirmed.")


class FinishedAnswer(Ok):
    redirect_to: str
    login_context: Literal["browser", "pwa"]


class ClaimedAnswer(Ok):
    claimed: Literal[True] = True


class User(BaseModel):
    id: str
    name: str
    avatar: str | None


class LoggedInAnswer(Ok):
    logged_in: Literal[True] = True
    user: User


class ProviderRefusedAnswer(LoggedInAnswer):
    provider_sign_in_required: Literal[True] = True
    start_url: str


class LoggedOutAnswer(CamelModel):
    ok: Literal[False] = False
    logged_in: Literal[False] = False


class SessionAnswer(CamelModel):
    id: str
    current: bool
    created_at: int
    last_seen_at: int
    ends_at: int
    browser: str | None = Field(description="Firefox, Chrome, Safari, …; null where it is not known.")
    device: str | None = Field(description="Windows, iPhone, Android, …; null where it is not known.")


class SessionsAnswer(Ok):
    sessions: list[SessionAnswer]


class EndedAnswer(Ok):
    ended: int


class ProvidersAnswer(Ok):
    providers: list[str]


class TokenPairAnswer(CamelModel):
    access_token: str
    refresh_token: str
    expires_in: int
    token_type: Literal["Bearer"] = "Bearer"  # noqa: S105


class RefreshBody(CamelBody):
    refresh_token: str = Field(min_length=1, max_length=1024)


class ClaimBody(BaseModel):
    state: str | None = None


class CsrfBody(BaseModel):
    csrf: str | None = Field(None, description="The token of /api/auth/csrf; or send it as the header x-csrf-token.")


# --- the request -----------------------------------------------------------------------------------------------


def refusal_of(error: Exception) -> Refusal | None:
    """What is answered where the service refuses; None: the error is none of its refusals."""
    match error:
        case LoginRefused(reason=reason):
            status = STATUS[reason]
            helps = status == 401 or reason in _START_AGAIN
            wait_s = 1 if reason == "TRY_AGAIN" else None
            more = {to_camel(name): value for name, value in error.more.items()}
            return Refusal(status, reason, str(error), more=more, retry_after_s=wait_s, sign_in_helps=helps)
        case LimitReached():
            return too_many_requests(error)
        case CapReached():
            return Refusal(409, "TOO_MANY_SESSIONS", str(error))
    return None


class LoginVisit(Visit):
    """A request to the login kit: with the cookies of a login, and who asks."""

    messages = MESSAGES

    def __init__(self, request: Request, login: Annotated[Login, Depends(service_of("login"))]) -> None:
        super().__init__(request, login.site)
        secure = login.site.secure
        self.login = login
        self.sid, self.browser = Cookie("sid", secure), Cookie("d_login", secure)
        self.bridge = Cookie("d_pwa_bridge", secure)
        self.token = self.read(self.sid)

    @property
    def session_seconds(self) -> int:
        return self.login.settings.policy.absolute_ms // 1000

    @property
    def visitor(self) -> Visitor:
        return Visitor(self.address, self.request.headers.get("user-agent", ""))

    def problem(self, refusal: Refusal) -> Response:
        """The page of a refusal, in the language of the browser; raises it for programs, and where there is none."""
        is_browser = "text/html" in self.request.headers.get("accept", "") and not self.wants_json
        if not is_browser or not self.say.knows(refusal.code):
            raise refusal
        sentence = self.say(refusal.code)
        response = self.page("login/refused.html", status=refusal.status, sentence=sentence, return_to=None)
        response.headers.update(refusal.headers or {})
        return response

    async def count(self, name: str) -> None:
        await self.login.limit.count(name, self.address)


Visiting = Annotated[LoginVisit, Depends()]
ProviderName = Annotated[str, Path(pattern=r"^[a-z0-9][a-z0-9-]{0,31}$", description="discord, github, google, …")]


# --- the routes ------------------------------------------------------------------------------------------------

_BODY: Final = {
    "requestBody": {
        "required": False,
        "content": {"application/json": {"schema": CsrfBody.model_json_schema(), "example": {}}},
    }
}


def router() -> APIRouter:
    """All routes of the kit. Fixed paths come before those with a provider in them."""
    routes = KitRouter("login", refusal_of)
    add = routes.add
    add(f"GET {SIGN_IN.page}", _page)
    add(f"GET {SIGN_IN.account}", _account)
    add("GET /login/everywhere", _everywhere)
    add("GET /api/auth/providers", _providers, "Who to sign in with", ProvidersAnswer)
    for path in ("/api/auth/csrf", "/api/discord/csrf"):
        add(
            f"GET {path}",
            _csrf,
            "A token for requests that change something",
            CsrfAnswer,
            operation_id=f"csrf_{path.split('/')[2]}",
        )
    for path in ("/api/auth/me", "/api/discord/me"):
        add(
            f"GET {path}",
            _me,
            "Who is signed in?",
            ProviderRefusedAnswer | LoggedInAnswer | LoggedOutAnswer,
            operation_id=f"me_{path.split('/')[2]}",
        )
    add("POST /api/auth/logout", logout, "Sign out", Ok, openapi_extra=_BODY)
    add("POST /api/auth/logout-all", _logout_all, "Sign out everywhere", EndedAnswer, openapi_extra=_BODY)
    add("POST /api/auth/logout-others", _logout_others, "Sign out everywhere else", EndedAnswer, openapi_extra=_BODY)
    add(
        "POST /api/auth/token",
        exchange,
        "Tokens for a program, for my session",
        TokenPairAnswer,
        operation_id="login_token",
        openapi_extra=_BODY,
    )
    add(
        "POST /api/auth/refresh",
        _refresh,
        "The next tokens of a program",
        TokenPairAnswer,
        operation_id="login_refresh",
    )
    add("GET /api/auth/sessions", _sessions, "My sessions", SessionsAnswer)
    add("DELETE /api/auth/sessions/{id}", _end, "End one session", EndedAnswer, openapi_extra=_BODY)
    add("POST /api/auth/sessions/{id}/end", _end)  # for forms
    add(
        "GET /api/auth/{provider}/start",
        _start,
        "Begin a sign-in",
        StartedInAppAnswer | StartedAnswer,
        responses={302: {"description": "To the provider, for browsers."}},
    )
    add("GET /api/auth/{provider}/callback", _callback, "Come back from the provider", FinishedAnswer)
    add("POST /api/auth/{provider}/confirm", _confirm)
    add(
        "POST /api/auth/{provider}/claim-session",
        _claim,
        "Claim the session of a sign-in that ended in another browser",
        ClaimedAnswer,
    )
    return routes


async def _account(visit: Visiting) -> Response:
    """The page of whoever is signed in. Others sign in first, and come back to it."""
    if visit.home is None and not await visit.login.seen(visit.token):
        return visit.goes_on(f"{SIGN_IN.page}?returnTo={SIGN_IN.account}")
    return await _page(visit)


async def _page(visit: Visiting, return_to: Annotated[str | None, Query(alias="returnTo")] = None) -> Response:
    """The page of the kit: sign in, or see who is signed in and where. Who is signed in already goes where they were
    sent to sign in from."""
    if visit.home is not None:
        return visit.goes_on(visit.home)
    wanted = return_to if return_to is not None and is_return_path(return_to) else None
    await visit.count("sessions")
    live = await visit.login.session(visit.token)
    csrf = visit.csrf_token()
    cookie = visit.csrf.set(csrf)
    if live and wanted is not None:
        return visit.goes_on(wanted)
    if live:
        own, sessions = await visit.login.all_of(visit.token)
        start = visit.login.start_path(own.session)
        return visit.page(
            "login/account.html", cookie, scripts=True, live=own, sessions=sessions, start=start, csrf=csrf
        )
    gone = live.reason if live.reason in ("expired", "evicted", "revoked") else None
    return visit.page(
        "login/login.html", cookie, providers=visit.login.providers, gone=gone, return_to=wanted or SIGN_IN.page
    )


async def _everywhere(visit: Visiting) -> Response:
    """Asks before all sessions end. Without a session there is nothing to ask."""
    try:
        with translated(refusal_of):
            await visit.count("sessions")
            _, sessions = await visit.login.all_of(visit.token)
    except Refusal as refusal:
        if refusal.status == 401:
            return visit.goes_on("/login")
        return visit.problem(refusal)
    csrf = visit.csrf_token()
    return visit.page("login/everywhere.html", visit.csrf.set(csrf), csrf=csrf, count=len(sessions))


async def _providers(visit: Visiting) -> Response:
    return json_response(ProvidersAnswer(providers=visit.login.providers))


async def _csrf(visit: Visiting) -> Response:
    """The same value comes as a cookie; send it back as `csrf` in the body, or in the header x-csrf-token."""
    await visit.count("csrf")
    return visit.csrf_response()


async def _me(visit: Visiting, soft: Annotated[str | None, Query()] = None) -> Response:
    """With `soft=1`, being signed out is no error. `providerSignInRequired`: the provider gives no new tokens; the user
    signs in again at `startUrl`."""
    await visit.count("me")
    is_program = bearer_token(visit.request) is not None
    live = await (live_session(visit.login, visit.request) if is_program else visit.login.session(visit.token))
    if live:
        user = User(id=live.session.uid, name=live.session.name, avatar=live.session.avatar)
        if live.session.provider_refused:
            start = visit.login.start_path(live.session)
            return json_response(ProviderRefusedAnswer(user=user, start_url=start))
        return json_response(LoggedInAnswer(user=user))
    # The cookie stays: this answer may come after that of a login in another tab, and would take the new one away.
    if soft == "1":
        return json_response(LoggedOutAnswer())
    refused = not_logged_in(live)
    more = {"loggedIn": False}
    raise Refusal(401, refused.reason, str(refused), more=more, sign_in_helps=True)


async def _start(
    visit: Visiting,
    provider: ProviderName,
    context: Annotated[str, Query(description="browser or pwa")] = "browser",
    return_to: Annotated[str | None, Query(alias="returnTo", description="a path of this site")] = None,
    format: Annotated[str | None, Query(description="json: the addresses instead of a redirect")] = None,
) -> Response:
    if visit.home is not None and not visit.wants_json:
        return visit.goes_on(visit.home)
    try:
        with translated(refusal_of):
            await visit.count("start")
            started = await visit.login.start(
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


async def _callback(
    visit: Visiting,
    provider: ProviderName,
    code: Annotated[str | None, Query()] = None,
    state: Annotated[str | None, Query()] = None,
    iss: Annotated[str | None, Query()] = None,
    error: Annotated[str | None, Query()] = None,
    error_description: Annotated[str | None, Query()] = None,
) -> Response:
    """A page that leads on, not a redirect: the service worker of an installed app would swallow that."""
    try:
        with translated(refusal_of):
            await visit.count("callback")
            if error is not None:
                return await _refused(visit, provider, state, error)
            done = await visit.login.callback(
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
    return _finished(visit, provider, done)


def _finished(visit: LoginVisit, provider: str, done: Finished | Full) -> Response:
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
        set_user(visit.request.scope, SignedInUser(SPACE, done.session.uid, done.session.name, "cookie"))
    if visit.wants_json:
        return json_response(FinishedAnswer(redirect_to=done.return_to, login_context=done.context), *cookies)
    return visit.page(
        "login/finished.html",
        *cookies,
        name=done.session.name,
        return_to=done.return_to,
        is_elsewhere=done.token is None,
    )


async def _refused(visit: LoginVisit, provider: str, state: str | None, error: str) -> Response:
    to, word = await visit.login.refused_by_provider(provider, state, error)
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
    sentence = visit.say("did_not_agree" if denied else "provider_said_no", provider=shown, word=word)
    return visit.page("login/refused.html", status=400, sentence=sentence, return_to=target)


async def _confirm(visit: Visiting, provider: ProviderName) -> Response:
    """What the user answers: that the login is theirs, with the code of the app where it shows one; that it is not; or
    which session to end for it."""
    fields = {name: await visit.field(name) for name in ("confirm", "deny", "code", "end")}
    confirm, browser = fields["confirm"] or "", visit.read(visit.browser)
    try:
        with translated(refusal_of):
            await visit.count("callback")
            visit.refuse_forged(None)
            if fields["deny"]:
                await visit.login.deny(provider, confirm, browser, visit.visitor)
                return visit.goes_on("/login")
            done = await visit.login.confirm(
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
    return _finished(visit, provider, done)


async def _claim(visit: Visiting, provider: ProviderName, body: ClaimBody) -> Response:
    visit.refuse_cross_site()
    await visit.count("claim")
    token = await visit.login.claim(provider, body.state, visit.read(visit.bridge), visit.token, visit.visitor)
    cookies = visit.sid.set(token, visit.session_seconds), visit.bridge.clear()
    return json_response(ClaimedAnswer(), *cookies)


async def exchange(visit: Visiting) -> Response:
    """Exchanges the session of the cookie for tokens. They count until it ends; a session may have several pairs."""
    visit.refuse_forged(await visit.field("csrf"))
    await visit.count("token")
    return _pair(visit, await visit.login.exchange(visit.token, visit.visitor))


async def _refresh(visit: Visiting, body: RefreshBody) -> Response:
    return await refresh(visit, body.refresh_token)


async def refresh(visit: LoginVisit, refresh_token: str) -> Response:
    """The token itself says whose it is: a page of another site has none."""
    await visit.count("token")
    return _pair(visit, await visit.login.next_tokens(refresh_token))


def _pair(visit: LoginVisit, pair: TokenPair) -> Response:
    return json_response(
        TokenPairAnswer(access_token=pair.access_token, refresh_token=pair.refresh_token, expires_in=pair.expires_in_s)
    )


async def logout(visit: Visiting) -> Response:
    """Ends the session of the cookie, or the tokens of a program. Answers the same whether there was one or not."""
    token = bearer_token(visit.request)
    if token is not None and visit.login.tokens.is_own(token):
        await visit.count("logout")
        await visit.login.logout_program(token, visit.visitor)
        return json_response(Ok())
    visit.refuse_forged(await visit.field("csrf"))
    await visit.count("logout")
    await visit.login.logout(visit.token, visit.visitor)
    return _after_form(visit, Ok(), visit.sid.clear())


async def _logout_all(visit: Visiting) -> Response:
    """Ends every session of the user, this one too. The login must be recent."""
    visit.refuse_forged(await visit.field("csrf"))
    try:
        with translated(refusal_of):
            await visit.count("logout")
            ended = await visit.login.logout_all(visit.token, visit.visitor)
    except Refusal as refusal:
        return _again(visit, refusal)
    return _after_form(visit, EndedAnswer(ended=ended), visit.sid.clear())


async def _logout_others(visit: Visiting) -> Response:
    """Ends every session of the user but this one. The login must be recent."""
    visit.refuse_forged(await visit.field("csrf"))
    try:
        with translated(refusal_of):
            await visit.count("logout")
            ended = await visit.login.logout_others(visit.token, visit.visitor)
    except Refusal as refusal:
        return _again(visit, refusal)
    return _after_form(visit, EndedAnswer(ended=ended))


async def _sessions(visit: Visiting) -> Response:
    await visit.count("sessions")
    own, sessions = await visit.login.all_of(visit.token)
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


async def _end(visit: Visiting, id: Annotated[str, Path(max_length=64)]) -> Response:
    """Of another session than this one only after a recent login. An id that is none of the user's ends nothing."""
    visit.refuse_forged(await visit.field("csrf"))
    try:
        with translated(refusal_of):
            await visit.count("sessions")
            own = await visit.login.session(visit.token)
            ended = await visit.login.end(visit.token, id, visit.visitor)
    except Refusal as refusal:
        return _again(visit, refusal)
    cookies = [visit.sid.clear()] if own and own.id == id else []
    return _after_form(visit, EndedAnswer(ended=int(ended)), *cookies)


def _after_form(visit: LoginVisit, body: BaseModel, *cookies: str) -> Response:
    return visit.goes_on("/login", *cookies) if visit.is_form else json_response(body, *cookies)


def _again(visit: LoginVisit, refusal: Refusal) -> Response:
    """Whoever pressed a button and must sign in again first is led there."""
    if refusal.code != "LOGIN_AGAIN" or not visit.is_form:
        return visit.problem(refusal)
    return visit.page("login/again.html", status=refusal.status, start=refusal.more["startUrl"])


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


_PRESETS = ("discord", "github", "google")

KIT: Final = Kit(
    name="login",
    doc="Sign in with Discord, GitHub, Google or any OpenID Connect provider; sessions that end when they should.",
    keyspace=LoginKeys,
    settings=LoginSettings,
    turned_on_by="DISCORD_CLIENT_ID and DISCORD_CLIENT_SECRET, or [login.providers.NAME]",
    router=router,
    service=open_login,
    environment={
        f"{name.upper()}_{setting.upper()}": f"providers.{name}.{setting}"
        for name in _PRESETS
        for setting in ("client_id", "client_secret", "redirect_uri")
    },
    missing=missing,
    sign_in=SIGN_IN,
    examples=(
        Example("Sign in", "/login", "Sign in, see your sessions, end them."),
        Example("Who am I?", "/api/auth/me?soft=1", "Who is signed in, as JSON."),
        Example("My sessions", "/api/auth/sessions", "Where you are signed in, as JSON."),
    ),
)
