"""Routes of signed-in members: initial sync, consents, promotions, bonus tokens and translations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Annotated, Final, Literal, Self

from fastapi import Request
from fastapi.responses import Response
from pydantic import AfterValidator, AwareDatetime, BaseModel, Field

from keystead.http.rate_limits import x_ratelimit_headers
from keystead.http.refusals import NO_STORE, Refusal
from keystead.http.responses import json_response
from keystead.http.routing import KitRouter, translate_errors
from keystead.kits.membership.models import Plan
from keystead.kits.membership.routes.request import (
    CONSENT_CODES,
    PROMOTION_CODES,
    Authorization,
    Serving,
    bearer,
    refusal_of,
)
from keystead.kits.membership.service import Members, MembershipRefused
from keystead.kits.membership.service.account import PromotionStatus
from keystead.kits.membership.service.consents import CONSENT_TYPES, Consent, ConsentType
from keystead.kits.membership.service.ledger import MOST_TOKENS
from keystead.kits.membership.service.ledger_records import Bonus, Status
from keystead.kits.membership.service.promotions import RedeemFailure, Redemption
from keystead.schema.times import deadline_ms, moment

_BONUSES_MOST: Final = 1_000

_REDEEM_MESSAGES: Final[Mapping[RedeemFailure, str]] = {
    "INVALID_CODE": "this is not a promotion code; check for typing errors",
    "CODE_EXPIRED": "this code has expired",
    "CODE_USED_UP": "this code has reached its maximum number of redemptions",
    "ALREADY_REDEEMED": "you have already redeemed this code",
}


# --- requests --------------------------------------------------------------------------------------------------


def _to_utc(at: datetime) -> datetime:
    try:
        return at.astimezone(UTC)
    except OverflowError:  # in UTC it is before the year 1 or after 9999: it could be stored, but not formatted
        raise ValueError("this date is out of range") from None


class ConsentBody(BaseModel):
    user_id: str = Field(min_length=1, max_length=64, description="The member's own id: at Patreon, or the `sub`.")
    consent_type: ConsentType
    version: str = Field(min_length=1, max_length=64)
    accepted_at: Annotated[AwareDatetime, AfterValidator(_to_utc)]
    client_version: str | None = Field(None, max_length=256)


class RedeemBody(BaseModel):
    code: str = Field(max_length=64)


class UsedBonus(BaseModel):
    id: str = Field(min_length=1, max_length=200)
    used_tokens: int = Field(ge=0, le=MOST_TOKENS, strict=True)


class BonusSyncBody(BaseModel):
    bonuses: Annotated[list[UsedBonus], Field(max_length=_BONUSES_MOST)]


# --- responses -------------------------------------------------------------------------------------------------


class MonthlyUsage(BaseModel):
    year_month: str
    tokens_used: int
    tokens_limit: int
    is_exceeded: bool

    @classmethod
    def of(cls, status: Status) -> Self:
        return cls(
            year_month=status.month,
            tokens_used=status.tokens_used,
            tokens_limit=status.tokens_limit,
            is_exceeded=status.is_exceeded,
        )


class BonusAnswer(BaseModel):
    id: str
    granted_tokens: int
    used_tokens: int
    remaining_tokens: int
    source: str
    granted_at: str

    @classmethod
    def of(cls, bonus: Bonus) -> Self:
        return cls(
            id=bonus.id,
            granted_tokens=bonus.granted,
            used_tokens=bonus.used,
            remaining_tokens=bonus.left,
            source=bonus.source,
            granted_at=format_time(bonus.granted_at_ms),
        )


class BonusesAnswer(BaseModel):
    bonuses: list[BonusAnswer]
    total_remaining: int

    @classmethod
    def of(cls, bonuses: Sequence[Bonus]) -> Self:
        return cls(bonuses=[BonusAnswer.of(one) for one in bonuses], total_remaining=sum(one.left for one in bonuses))


class BonusStatusAnswer(BonusesAnswer):
    success: Literal[True] = True


class BonusSyncAnswer(BaseModel):
    success: Literal[True] = True
    synced: dict[str, int]
    synced_count: int


class RedeemedPromotion(BaseModel):
    code_masked: str
    plan_type: Plan
    applied_at: str
    expires_at: str


class PromotionAnswer(BaseModel):
    has_promotion: bool
    promotion: RedeemedPromotion | None
    expired: bool

    @classmethod
    def of(cls, status: PromotionStatus) -> Self:
        found = status.promotion
        if found is None:
            return cls(has_promotion=False, promotion=None, expired=status.expired)
        promotion = RedeemedPromotion(
            code_masked=found.masked,
            plan_type=found.plan,
            applied_at=format_time(found.redeemed_at_ms),
            expires_at=format_time(found.expires_at_ms),
        )
        return cls(has_promotion=not status.expired, promotion=promotion, expired=status.expired)


class RedeemAnswer(BaseModel):
    """200 even if the code was not redeemed: then `success` is false, and `error_code` says why."""

    success: bool
    plan_type: Plan | None = None
    expires_at: str | None = None
    bonus_tokens_granted: int = 0
    message: str
    error_code: str | None = None


class GivenConsent(BaseModel):
    version: str
    accepted_at: str


class ConsentsAnswer(BaseModel):
    privacy_policy: GivenConsent | None = None
    terms_of_service: GivenConsent | None = None

    @classmethod
    def of(cls, given: Mapping[ConsentType, Consent]) -> Self:
        return cls(
            **{
                name: GivenConsent(version=given[name].version, accepted_at=format_time(given[name].accepted_at_ms))
                for name in CONSENT_TYPES
                if name in given
            }
        )


class ConsentStatusAnswer(ConsentsAnswer):
    success: Literal[True] = True


class RecordedAnswer(BaseModel):
    success: Literal[True] = True
    is_new: bool


class WelcomeBonus(BaseModel):
    granted_tokens: int


class SyncAnswer(BaseModel):
    success: Literal[True] = True
    promotion: PromotionAnswer | None
    consent: ConsentsAnswer | None
    bonus_tokens: BonusesAnswer | None
    quota: MonthlyUsage | None
    plan: Plan
    plan_is_stale: bool
    plan_as_of: int
    welcome_bonus: WelcomeBonus | None
    partial_failure: bool
    failed_components: list[str]


def format_time(at_ms: int) -> str:
    """RFC 3339, such as 2026-01-18T09:30:00.000Z."""
    return moment(at_ms).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def quota_headers(status: Status, members: Members) -> dict[str, str]:
    left = max(0, status.tokens_limit - status.tokens_used)
    return x_ratelimit_headers(status.tokens_limit, left, members.usage.month_ends_s())


# --- routes ----------------------------------------------------------------------------------------------------


def add_account_routes(routes: KitRouter) -> None:
    add = partial(routes.add, translate=partial(refusal_of, success=False))
    add_consent = partial(routes.add, translate=partial(refusal_of, renamed=CONSENT_CODES, success=False))
    add_promotion = partial(routes.add, translate=partial(refusal_of, renamed=PROMOTION_CODES, success=False))
    add("GET /api/sync/init", _sync, "Everything an app needs at startup", SyncAnswer)
    add_consent("POST /api/consent/record", _record_consent, "Record a consent", RecordedAnswer)
    add_consent("GET /api/consent/status", _consents, "Latest consents", ConsentStatusAnswer)
    add_promotion("POST /api/promotion/redeem", _redeem, "Redeem a promotion code", RedeemAnswer)
    add_promotion("GET /api/promotion/status", _promotion, "Latest promotion", PromotionAnswer)
    add("GET /api/bonus-tokens/status", _bonuses, "Bonus tokens", BonusStatusAnswer)
    add("POST /api/bonus-tokens/sync", _sync_bonuses, "Report used bonus tokens", BonusSyncAnswer)
    add(
        "POST /api/translate",
        _translate,
        "Forward a request to the translation service, and count its tokens",
        openapi_extra={
            "requestBody": {"required": True, "content": {"application/json": {"schema": {"type": "object"}}}}
        },
    )


async def _sync(members: Serving, authorization: Authorization = None) -> Response:
    found = await members.account.sync(bearer(authorization))
    return json_response(
        SyncAnswer(
            promotion=None if found.promotion is None else PromotionAnswer.of(found.promotion),
            consent=None if found.consents is None else ConsentsAnswer.of(found.consents),
            bonus_tokens=None if found.bonuses is None else BonusesAnswer.of(found.bonuses),
            quota=None if found.quota is None else MonthlyUsage.of(found.quota),
            plan=found.who.plan,
            plan_is_stale=found.who.plan_is_stale,
            plan_as_of=found.who.plan_as_of_ms,
            welcome_bonus=WelcomeBonus(granted_tokens=found.welcome_tokens) if found.welcome_tokens else None,
            partial_failure=bool(found.failed),
            failed_components=list(found.failed),
        )
    )


async def _record_consent(members: Serving, body: ConsentBody, authorization: Authorization = None) -> Response:
    consent = Consent(
        body.consent_type,
        body.version,
        deadline_ms(body.accepted_at),
        members.keys.now_ms(),
        body.client_version,
    )
    is_new = await members.account.record_consent(bearer(authorization), body.user_id, consent)
    return json_response(RecordedAnswer(is_new=is_new))


async def _consents(members: Serving, authorization: Authorization = None) -> Response:
    return json_response(ConsentStatusAnswer.of(await members.account.consents(bearer(authorization))))


async def _redeem(members: Serving, body: RedeemBody, authorization: Authorization = None) -> Response:
    found = await members.account.redeem(bearer(authorization), body.code)
    if not isinstance(found, Redemption):
        return json_response(RedeemAnswer(success=False, message=_REDEEM_MESSAGES[found], error_code=found))
    return json_response(
        RedeemAnswer(
            success=True,
            plan_type=found.plan,
            expires_at=format_time(found.expires_at_ms),
            bonus_tokens_granted=found.bonus_tokens,
            message="code redeemed",
        )
    )


async def _promotion(members: Serving, authorization: Authorization = None) -> Response:
    return json_response(PromotionAnswer.of(await members.account.promotion(bearer(authorization))))


async def _bonuses(members: Serving, authorization: Authorization = None) -> Response:
    return json_response(BonusStatusAnswer.of(await members.account.bonuses(bearer(authorization))))


async def _sync_bonuses(members: Serving, body: BonusSyncBody, authorization: Authorization = None) -> Response:
    used: dict[str, int] = {}
    for one in body.bonuses:
        used[one.id] = max(one.used_tokens, used.get(one.id, 0))
    synced = await members.account.sync_bonuses(bearer(authorization), used)
    return json_response(BonusSyncAnswer(synced=dict(synced), synced_count=len(synced)))


async def _translate(request: Request, members: Serving, authorization: Authorization = None) -> Response:
    request_id: str = request.scope.get("state", {}).get("request_id", "")
    body = await request.body()
    with translate_errors(lambda error: _translation_refusal(error, request_id, members)):
        found = await members.translation.translate(bearer(authorization), body)
    headers = {**NO_STORE, **quota_headers(found.status, members), "x-tokens-used": str(found.tokens)}
    return Response(found.body, media_type="application/json", headers=headers)


def _translation_refusal(error: Exception, request_id: str, members: Members) -> Refusal | None:
    refusal = refusal_of(error, success=False, request_id=request_id)
    if refusal is None or not isinstance(error, MembershipRefused):
        return None
    can_wait = error.retry_after_s is not None
    refusal.more["is_retryable"] = can_wait if error.is_retryable is None else error.is_retryable
    if error.status is not None:
        refusal.more["monthly_usage"] = MonthlyUsage.of(error.status).model_dump()
        refusal.headers.update(quota_headers(error.status, members))
    return refusal
