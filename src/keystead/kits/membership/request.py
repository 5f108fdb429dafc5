"""Requests to the membership kit: who sends them, and how each is answered that is no success."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any, Final

from fastapi import Depends, Header, Request
from fastapi.responses import JSONResponse, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel

from keystead.kits.kit import service_of
from keystead.kits.limited import address_of
from keystead.kits.membership.service import ASKING, Members, MembershipRefused
from keystead.kits.refusal import CODE_ALIAS, Refusal
from keystead.kits.visit import NO_STORE

# What each refusal of the service is in HTTP.
STATUS: Final[Mapping[str, int]] = {
    "INVALID_REDIRECT_URI": 400,
    "VALIDATION_ERROR": 400,
    "WEBHOOK_ERROR": 400,
    "MISSING_REFRESH_TOKEN": 400,
    "MISSING_AUTH": 401,
    "API_KEY_INVALID": 401,
    "TOKEN_EXCHANGE_FAILED": 401,
    "IDENTITY_FETCH_FAILED": 401,
    "SESSION_INVALID": 401,
    "SESSION_EXPIRED": 401,
    "PATREON_TOKEN_EXPIRED": 401,
    "INVALID_REFRESH_TOKEN": 401,
    "MISSING_SIGNATURE": 401,
    "INVALID_SIGNATURE": 401,
    "PAYMENT_REQUIRED": 402,
    "PLAN_NOT_SUPPORTED": 403,
    "USER_ID_MISMATCH": 403,
    "REPORT_NOT_FOUND": 404,
    "RATE_LIMITED": 429,
    "QUOTA_EXCEEDED": 429,
    "API_ERROR": 502,
    "NETWORK_ERROR": 502,
    "CONFIG_ERROR": 503,
    "NOT_IMPLEMENTED": 503,
    "PROVIDER_UNAVAILABLE": 503,
    "WEBHOOK_NOT_CONFIGURED": 503,
    "TIMEOUT": 504,
}

# What these two are called on routes that have names of their own for them.
PROMOTION_CODES: Final = {"MISSING_AUTH": "PROMO_AUTH_REQUIRED", "SESSION_INVALID": "PROMO_INVALID_TOKEN"}
CONSENT_CODES: Final = dict.fromkeys(("MISSING_AUTH", "SESSION_INVALID"), "AUTHENTICATION_REQUIRED")

_SIGNED: Final = frozenset({"MISSING_SIGNATURE", "INVALID_SIGNATURE"})  # a bearer token would not help

Serving = Annotated[Members, Depends(service_of("membership"))]
Authorization = Annotated[str | None, Header(description="Bearer, and the token")]


class MembershipRoute(APIRoute):
    """A route of this kit: whatever goes wrong in it, the answer has `error_code` beside `code`, and what the service
    notes in the log names the address of whoever asked."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def handled(request: Request) -> Response:
            request.scope[CODE_ALIAS] = "error_code"
            asking = ASKING.set(address_of(request))
            try:
                return await handle(request)
            finally:
                ASKING.reset(asking)

        return handled


@asynccontextmanager
async def refusals(renamed: Mapping[str, str] | None = None, **more: object) -> AsyncIterator[None]:
    """Turns what the service refuses into what the server answers. `more` stands beside the sentence."""
    try:
        yield
    except MembershipRefused as refused:
        raise refusal_of(refused, renamed, **more) from None


def refusal_of(refused: MembershipRefused, renamed: Mapping[str, str] | None = None, **more: object) -> Refusal:
    """What the server answers where the service refuses. Its code may have another name on this route."""
    status, code = STATUS[refused.reason], (renamed or {}).get(refused.reason, refused.reason)
    return Refusal(status, code, str(refused), headers=_headers(refused, status), more=more)


def _headers(refused: MembershipRefused, status: int) -> dict[str, str]:
    headers = dict(NO_STORE)
    if refused.retry_after_s is not None:
        headers["retry-after"] = str(refused.retry_after_s)
    if status == 401 and refused.reason not in _SIGNED:
        error = "" if refused.reason == "MISSING_AUTH" else ', error="invalid_token"'
        headers["www-authenticate"] = f'Bearer realm="membership"{error}'
    return headers


def is_bearer(authorization: str | None) -> bool:
    return (authorization or "").strip().partition(" ")[0].lower() == "bearer"


def bearer(authorization: str | None) -> str:
    """The token of the header. Raises MembershipRefused where there is none."""
    token = (authorization or "").strip().partition(" ")[2].strip()
    if not is_bearer(authorization) or not token:
        raise MembershipRefused("MISSING_AUTH", "send the header Authorization: Bearer, and the token")
    return token


def answer(body: BaseModel, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse(body.model_dump(mode="json"), headers={**NO_STORE, **(headers or {})})
