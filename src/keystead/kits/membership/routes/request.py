"""Request handling of the membership kit: authorization, and refusals as HTTP responses."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Final

from fastapi import Depends, Header, Request

from keystead.http.bearer import parse_bearer, www_authenticate
from keystead.http.rate_limits import client_address
from keystead.http.refusals import CODE_ALIAS, Refusal, statuses
from keystead.kits.kit import service_of
from keystead.kits.membership.service import CLIENT_ADDRESS, Members, MembershipRefused

# The HTTP status of each refusal.
STATUS: Final = statuses(
    {
        400: "INVALID_REDIRECT_URI VALIDATION_ERROR WEBHOOK_ERROR MISSING_REFRESH_TOKEN",
        401: (
            "MISSING_AUTH API_KEY_INVALID TOKEN_EXCHANGE_FAILED IDENTITY_FETCH_FAILED SESSION_INVALID "
            "SESSION_EXPIRED PATREON_TOKEN_EXPIRED INVALID_REFRESH_TOKEN MISSING_SIGNATURE INVALID_SIGNATURE"
        ),
        402: "PAYMENT_REQUIRED",
        403: "PLAN_NOT_SUPPORTED USER_ID_MISMATCH",
        404: "REPORT_NOT_FOUND",
        429: "RATE_LIMITED QUOTA_EXCEEDED",
        502: "API_ERROR NETWORK_ERROR",
        503: "CONFIG_ERROR NOT_IMPLEMENTED PROVIDER_UNAVAILABLE WEBHOOK_NOT_CONFIGURED",
        504: "TIMEOUT",
    }
)

# Routes of promotions and consents have their own names for these codes.
PROMOTION_CODES: Final = {"MISSING_AUTH": "PROMO_AUTH_REQUIRED", "SESSION_INVALID": "PROMO_INVALID_TOKEN"}
CONSENT_CODES: Final = dict.fromkeys(("MISSING_AUTH", "SESSION_INVALID"), "AUTHENTICATION_REQUIRED")

_SIGNATURE_CODES: Final = frozenset({"MISSING_SIGNATURE", "INVALID_SIGNATURE"})  # a bearer token would not help

Serving = Annotated[Members, Depends(service_of("membership"))]
Authorization = Annotated[str | None, Header(description="`Bearer` and the token")]


@contextmanager
def request_context(request: Request) -> Iterator[None]:
    """Errors of this kit have `error_code` in addition to `code`; log lines of the service have the client address."""
    request.scope[CODE_ALIAS] = "error_code"
    previous = CLIENT_ADDRESS.set(client_address(request))
    try:
        yield
    finally:
        CLIENT_ADDRESS.reset(previous)


def refusal_of(error: Exception, renamed: Mapping[str, str] | None = None, **more: object) -> Refusal | None:
    """The HTTP refusal for an error of the service; None for any other error.

    renamed   codes that have another name on this route
    more      further fields of the response
    """
    if not isinstance(error, MembershipRefused):
        return None
    status, code = STATUS[error.reason], (renamed or {}).get(error.reason, error.reason)
    wants_bearer = status == 401 and error.reason not in _SIGNATURE_CODES
    problem = "" if error.reason == "MISSING_AUTH" else "invalid_token"
    headers = www_authenticate("membership", problem) if wants_bearer else None
    return Refusal(status, code, str(error), headers=headers, more=more, retry_after_s=error.retry_after_s)


def bearer(authorization: str | None) -> str:
    """The bearer token of the header. Raises MembershipRefused if absent."""
    token = parse_bearer(authorization)
    if not token:
        raise MembershipRefused("MISSING_AUTH", "send the header Authorization: Bearer with a token")
    return token
