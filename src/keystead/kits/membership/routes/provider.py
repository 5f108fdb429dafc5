"""Routes that relay the provider's own tokens, and the webhook."""

from __future__ import annotations

from typing import Annotated

from fastapi import Header, Request
from fastapi.responses import JSONResponse, Response

from keystead.http.refusals import NO_STORE
from keystead.http.responses import json_response
from keystead.kits.membership.routes.bodies import CodeBody, MembershipAnswer, ProviderRefreshBody, Tier, WebhookAnswer
from keystead.kits.membership.routes.request import Authorization, Serving, bearer


async def oauth_token(members: Serving, body: CodeBody) -> Response:
    tokens = await members.provider.exchange_code(body.code, body.redirect_uri, body.code_verifier)
    return JSONResponse(tokens, headers=NO_STORE)


async def oauth_refresh(members: Serving, body: ProviderRefreshBody) -> Response:
    return JSONResponse(await members.provider.exchange_refresh_token(body.refresh_token), headers=NO_STORE)


async def membership(members: Serving, authorization: Authorization = None) -> Response:
    found = await members.provider.membership_by(bearer(authorization))
    return json_response(
        MembershipAnswer(
            user_id=found.user_id,
            email=found.email,
            full_name=found.full_name,
            is_active_patron=found.is_active,
            patron_status=found.patron_status,
            entitled_amount_cents=found.entitled_amount_cents,
            tier=None if found.tier_id is None else Tier(id=found.tier_id),
        )
    )


async def webhook(
    request: Request,
    members: Serving,
    x_patreon_signature: Annotated[str | None, Header()] = None,
    x_patreon_event: Annotated[str, Header(max_length=64)] = "",
) -> Response:
    body = await request.body()  # the raw bytes: they are what the provider signed
    result = await members.webhook(body, x_patreon_signature, x_patreon_event)
    processed = result.user is not None
    return json_response(
        WebhookAnswer(event=result.event, processed=processed, plan_change_recorded=result.plan_change_recorded)
    )
