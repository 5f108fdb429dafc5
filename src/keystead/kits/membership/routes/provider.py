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
    told = await members.provider.exchange_code(body.code, body.redirect_uri, body.code_verifier)
    return JSONResponse(told, headers=NO_STORE)


async def oauth_refresh(members: Serving, body: ProviderRefreshBody) -> Response:
    return JSONResponse(await members.provider.exchange_refresh_token(body.refresh_token), headers=NO_STORE)


async def membership(members: Serving, authorization: Authorization = None) -> Response:
    told = await members.provider.membership_by(bearer(authorization))
    return json_response(
        MembershipAnswer(
            user_id=told.user_id,
            email=told.email,
            full_name=told.full_name,
            is_active_patron=told.is_active,
            patron_status=told.patron_status,
            entitled_amount_cents=told.entitled_amount_cents,
            tier=None if told.tier_id is None else Tier(id=told.tier_id),
        )
    )


async def webhook(
    request: Request,
    members: Serving,
    x_patreon_signature: Annotated[str | None, Header()] = None,
    x_patreon_event: Annotated[str, Header(max_length=64)] = "",
) -> Response:
    body = await request.body()  # as it was signed: not a byte of it may be read and written again
    heard = await members.webhook(body, x_patreon_signature, x_patreon_event)
    processed = heard.user is not None
    return json_response(
        WebhookAnswer(event=heard.event, processed=processed, plan_change_recorded=heard.plan_change_recorded)
    )
