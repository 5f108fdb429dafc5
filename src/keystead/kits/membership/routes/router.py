"""The route table of the membership kit, and the kit itself."""

from __future__ import annotations

from functools import partial
from typing import Final

from fastapi import APIRouter

from keystead.catalogue import message
from keystead.http.routing import KitRouter
from keystead.kits.kit import Example, Kit
from keystead.kits.membership.keys import MembershipKeys
from keystead.kits.membership.routes import provider, public, sessions
from keystead.kits.membership.routes.account import add_account_routes
from keystead.kits.membership.routes.bodies import (
    DoneAnswer,
    HealthAnswer,
    LicenseAnswer,
    MembershipAnswer,
    ProviderTokensAnswer,
    QuotaAnswer,
    RevokedAllAnswer,
    SignedInAnswer,
    TokensAnswer,
    ValidAnswer,
    WebhookAnswer,
)
from keystead.kits.membership.routes.programs import add_program_routes
from keystead.kits.membership.routes.public import SIGN_INS, WEBHOOKS
from keystead.kits.membership.routes.request import refusal_of, request_context
from keystead.kits.membership.service import TRY_PATH, MembershipSettings, missing, open_members
from keystead.kits.membership.service.tables import MEMBERSHIP_TABLES

_CRASH_REPORT_MAX_BYTES: Final = 1024 * 1024


def router() -> APIRouter:
    routes = KitRouter("membership", refusal_of, request_context)
    add = routes.add
    for path in ("/api/auth/callback", "/api/patreon/exchange"):
        add(
            f"POST {path}",
            sessions.sign_in,
            "Exchange an authorization code for a session",
            SignedInAnswer,
            dependencies=[SIGN_INS],
            operation_id=f"sign_in_{path.split('/')[2]}",
        )
    add(
        "POST /api/session/validate",
        sessions.validate,
        "Validate a session",
        ValidAnswer,
        translate=partial(refusal_of, session_valid=False),
    )
    add(
        "GET /api/patreon/license-status",
        sessions.license_status,
        "The plan, asked of the provider now",
        LicenseAnswer,
        translate=sessions.license_refusal,
    )
    add("POST /api/patreon/revoke", sessions.revoke, "End this session", DoneAnswer)
    add("POST /api/patreon/revoke-all", sessions.revoke_all, "End all sessions of the user", RevokedAllAnswer)
    add("POST /api/auth/logout", sessions.logout, "Sign out", operation_id="membership_logout")
    add("POST /api/auth/token", sessions.issue_tokens, "Issue tokens for a session", TokensAnswer)
    add("POST /api/auth/refresh", sessions.refresh_tokens, "Refresh tokens", TokensAnswer)
    failed = partial(refusal_of, success=False)
    add("GET /api/quota/status", sessions.quota, "Usage and quota of this month", QuotaAnswer, translate=failed)
    add("GET /.well-known/jwks.json", public.jwks, "Public keys of access tokens")
    add("POST /webhook", provider.webhook, "Webhook of the provider", WebhookAnswer, dependencies=[WEBHOOKS])
    add("POST /api/crash-report", public.crash_report, "Submit a crash report", DoneAnswer)
    for path, endpoint, summary in (
        ("/oauth/token", provider.oauth_token, "Exchange a code for the provider's own tokens"),
        ("/oauth/refresh", provider.oauth_refresh, "Refresh the provider's own tokens"),
    ):
        add(
            f"POST {path}",
            endpoint,
            summary,
            ProviderTokensAnswer,
            dependencies=[SIGN_INS],
            operation_id=f"oauth_{path.rpartition('/')[2]}",
        )
    add(
        "GET /api/membership",
        provider.membership,
        "The membership of a provider access token",
        MembershipAnswer,
        dependencies=[SIGN_INS],
    )
    add("GET /health", public.health, "Health check", HealthAnswer, operation_id="health")
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        add(f"{method} /health", public.health)
    add_account_routes(routes)
    add_program_routes(routes)
    add(f"GET {TRY_PATH}", public.try_page)
    return routes


KIT: Final = Kit(
    name="membership",
    doc=message("Patrons of a desktop app: one device each, paid plans, access tokens, quotas and rate limits."),
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
            message("Try it"),
            TRY_PATH,
            message("Sign in at the demo provider, see your plan, and send an app's requests."),
            is_there=lambda members: members.provider.stand_in is not None,
        ),
    ),
    bodies=lambda settings: {"/api/crash-report": _CRASH_REPORT_MAX_BYTES},
    jobs=lambda members: members.jobs,
    tables=MEMBERSHIP_TABLES,
    commands="keystead.kits.membership.commands:COMMANDS",
    leads=True,  # for POST /api/auth/logout, which passes requests without a bearer token to the login kit
)
