"""The route table of the membership kit, and the kit itself."""

from __future__ import annotations

from functools import partial
from typing import Final

from fastapi import APIRouter

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
from keystead.kits.membership.routes.request import MembershipRoute, refusal_of
from keystead.kits.membership.service import TRY_PATH, MembershipSettings, missing, open_members
from keystead.kits.membership.service.tables import MEMBERSHIP_TABLES

_CRASH_REPORT_MAX_BYTES: Final = 1024 * 1024  # of a crash report with its logs


def router() -> APIRouter:
    """All routes of the kit."""
    routes = KitRouter("membership", refusal_of, MembershipRoute)
    add = routes.add
    for path in ("/api/auth/callback", "/api/patreon/exchange"):
        add(
            f"POST {path}",
            sessions.sign_in,
            "Exchange a code of the provider for a session",
            SignedInAnswer,
            dependencies=[SIGN_INS],
            operation_id=f"sign_in_{path.split('/')[2]}",
        )
    add(
        "POST /api/session/validate",
        sessions.validate,
        "Is it signed in?",
        ValidAnswer,
        translate=partial(refusal_of, session_valid=False),
    )
    paid = "What is paid for, asked of the provider now"
    add(
        "GET /api/patreon/license-status",
        sessions.license_status,
        paid,
        LicenseAnswer,
        translate=sessions.license_refusal,
    )
    add("POST /api/patreon/revoke", sessions.revoke, "End this session", DoneAnswer)
    add("POST /api/patreon/revoke-all", sessions.revoke_all, "End every session of the user", RevokedAllAnswer)
    add("POST /api/auth/logout", sessions.logout, "Sign out", operation_id="membership_logout")
    add("POST /api/auth/token", sessions.issue_tokens, "Tokens for a session", TokensAnswer)
    add("POST /api/auth/refresh", sessions.refresh_tokens, "The next tokens", TokensAnswer)
    failed = partial(refusal_of, success=False)
    add("GET /api/quota/status", sessions.quota, "What is left this month", QuotaAnswer, translate=failed)
    add("GET /.well-known/jwks.json", public.jwks, "The keys that sign access tokens")
    add("POST /webhook", provider.webhook, "What the provider tells", WebhookAnswer, dependencies=[WEBHOOKS])
    add("POST /api/crash-report", public.crash_report, "Tell of a crash", DoneAnswer)
    for path, endpoint, summary in (
        ("/oauth/token", provider.oauth_token, "Exchange a code for the provider's own tokens"),
        ("/oauth/refresh", provider.oauth_refresh, "The provider's own next tokens"),
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
        "What the provider says of its own access token",
        MembershipAnswer,
        dependencies=[SIGN_INS],
    )
    add("GET /health", public.health, "Is it there?", HealthAnswer, operation_id="health")
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        add(f"{method} /health", public.health)
    add_account_routes(routes)
    add_program_routes(routes)
    add(f"GET {TRY_PATH}", public.try_page)
    return routes


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
            is_there=lambda members: members.provider.stand_in is not None,
        ),
    ),
    bodies=lambda settings: {"/api/crash-report": _CRASH_REPORT_MAX_BYTES},
    jobs=lambda members: members.jobs,
    tables=MEMBERSHIP_TABLES,
    commands="keystead.kits.membership.commands:COMMANDS",
    leads=True,  # POST /api/auth/logout, which hands over to the login kit what has no bearer token
)
