"""Request and response bodies of sign-ins, sessions, tokens and webhooks."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from keystead.kits.camel_model import CamelBody, CamelModel
from keystead.kits.membership.models import Plan
from keystead.kits.membership.routes.account import MonthlyUsage


class CodeBody(BaseModel):
    code: str = Field(min_length=1, max_length=4096)
    redirect_uri: str = Field(min_length=1, max_length=2048)
    code_verifier: str | None = Field(None, max_length=128, description="The PKCE verifier, if PKCE was used.")


class SignInBody(CodeBody):
    state: str | None = Field(None, max_length=2048, description="Checked by the application; not used here.")


class ProviderRefreshBody(BaseModel):
    refresh_token: str = Field(min_length=1, max_length=4096)


class SessionBody(BaseModel):
    session_token: str = Field(max_length=1024)


class RefreshBody(CamelBody):
    model_config = ConfigDict(json_schema_extra={"required": ["refreshToken"]})  # if absent: MISSING_REFRESH_TOKEN

    refresh_token: str = Field("", max_length=1024)


class PlanAnswer(BaseModel):
    plan: Plan
    tier_id: str | None
    patron_status: str | None
    next_charge_date: str | None
    plan_is_stale: bool
    plan_as_of: int


class SignedInAnswer(PlanAnswer):
    session_token: str
    patreon_user_id: str
    email: str
    full_name: str
    expires_in: int
    entitled_amount_cents: int | None


class ProviderTokensAnswer(BaseModel):
    """The provider's own response."""

    access_token: str
    refresh_token: str | None = None
    token_type: str | None = None
    expires_in: int | None = None
    scope: str | None = None


class Tier(BaseModel):
    id: str


class MembershipAnswer(BaseModel):
    user_id: str
    email: str
    full_name: str
    is_active_patron: bool
    patron_status: str | None
    entitled_amount_cents: int | None
    tier: Tier | None


class HealthAnswer(BaseModel):
    status: Literal["ok"] = "ok"
    timestamp: str
    environment: Literal["development", "production"]


class ValidAnswer(PlanAnswer):
    session_valid: Literal[True] = True
    patreon_user_id: str
    email: str
    full_name: str
    session_expires_at: int


class LicenseAnswer(PlanAnswer):
    success: Literal[True] = True
    session_valid: Literal[True] = True
    session_expired: Literal[False] = False
    error: None = None
    error_code: None = None


class DoneAnswer(BaseModel):
    success: Literal[True] = True
    message: str


class RevokedAllAnswer(DoneAnswer):
    revoked_count: int


class TokensAnswer(CamelModel):
    access_token: str
    refresh_token: str
    expires_in: int
    token_type: Literal["Bearer"] = "Bearer"  # noqa: S105


class QuotaAnswer(BaseModel):
    success: Literal[True] = True
    monthly_usage: MonthlyUsage
    plan: Plan
    has_bonus_tokens: bool
    plan_is_stale: bool
    plan_as_of: int


class WebhookAnswer(CamelModel):
    success: Literal[True] = True
    event: str
    processed: bool
    plan_change_recorded: bool
