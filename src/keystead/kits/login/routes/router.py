"""The route table of the login kit, and the kit itself."""

from __future__ import annotations

from typing import Final

from fastapi import APIRouter

from keystead.catalogue import message
from keystead.http.routing import KitRouter
from keystead.kits.kit import Example, Kit
from keystead.kits.login.identity import SIGN_IN
from keystead.kits.login.keys import LoginKeys
from keystead.kits.login.routes import pages, sessions, signing_in
from keystead.kits.login.routes.bodies import (
    ClaimedAnswer,
    CsrfBody,
    EndedAnswer,
    FinishedAnswer,
    LoggedInAnswer,
    LoggedOutAnswer,
    ProviderRefusedAnswer,
    ProvidersAnswer,
    SessionsAnswer,
    StartedAnswer,
    StartedInAppAnswer,
    TokenPairAnswer,
)
from keystead.kits.login.routes.request import refusal_of
from keystead.kits.login.service import LoginSettings, missing, open_login
from keystead.kits.visit import CsrfAnswer, Ok

_BODY: Final = {
    "requestBody": {
        "required": False,
        "content": {"application/json": {"schema": CsrfBody.model_json_schema(), "example": {}}},
    }
}


def router() -> APIRouter:
    """All routes of the kit. Fixed paths come before those with a provider."""
    routes = KitRouter("login", refusal_of)
    add = routes.add
    add(f"GET {SIGN_IN.page}", pages.login_page)
    add(f"GET {SIGN_IN.account}", pages.account_page)
    add("GET /login/everywhere", pages.everywhere_page)
    add("GET /api/auth/providers", sessions.list_providers, "List sign-in providers", ProvidersAnswer)
    for path in ("/api/auth/csrf", "/api/discord/csrf"):
        add(
            f"GET {path}",
            sessions.csrf,
            "Get a CSRF token",
            CsrfAnswer,
            operation_id=f"csrf_{path.split('/')[2]}",
        )
    for path in ("/api/auth/me", "/api/discord/me"):
        add(
            f"GET {path}",
            sessions.me,
            "Get the signed-in user",
            ProviderRefusedAnswer | LoggedInAnswer | LoggedOutAnswer,
            operation_id=f"me_{path.split('/')[2]}",
        )
    add("POST /api/auth/logout", sessions.logout, "Sign out", Ok, openapi_extra=_BODY)
    add("POST /api/auth/logout-all", sessions.logout_all, "Sign out everywhere", EndedAnswer, openapi_extra=_BODY)
    add(
        "POST /api/auth/logout-others",
        sessions.logout_others,
        "Sign out everywhere else",
        EndedAnswer,
        openapi_extra=_BODY,
    )
    add(
        "POST /api/auth/token",
        sessions.exchange,
        "Exchange the session for tokens of a program",
        TokenPairAnswer,
        operation_id="login_token",
        openapi_extra=_BODY,
    )
    add(
        "POST /api/auth/refresh",
        sessions.refresh_tokens,
        "Refresh the tokens of a program",
        TokenPairAnswer,
        operation_id="login_refresh",
    )
    add("GET /api/auth/sessions", sessions.list_sessions, "List my sessions", SessionsAnswer)
    add("DELETE /api/auth/sessions/{id}", sessions.end_session, "End one session", EndedAnswer, openapi_extra=_BODY)
    add("POST /api/auth/sessions/{id}/end", sessions.end_session)  # for forms
    add(
        "GET /api/auth/{provider}/start",
        signing_in.start,
        "Start a sign-in",
        StartedInAppAnswer | StartedAnswer,
        responses={302: {"description": "Redirect to the provider, for browsers."}},
    )
    add("GET /api/auth/{provider}/callback", signing_in.callback, "OAuth callback from the provider", FinishedAnswer)
    add("POST /api/auth/{provider}/confirm", signing_in.confirm)
    add(
        "POST /api/auth/{provider}/claim-session",
        signing_in.claim_session,
        "Claim the session of a sign-in that finished in another browser",
        ClaimedAnswer,
    )
    return routes


_PRESETS = ("discord", "github", "google")
KIT: Final = Kit(
    name="login",
    doc=message(
        "Sign in with Discord, GitHub, Google or any OpenID Connect provider; sessions with timeouts and revocation."
    ),
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
        Example(message("Sign in"), "/login", message("Sign in, see your sessions, end them.")),
        Example(message("Who am I?"), "/api/auth/me?soft=1", message("Who is signed in, as JSON.")),
        Example(message("My sessions"), "/api/auth/sessions", message("Where you are signed in, as JSON.")),
    ),
)
