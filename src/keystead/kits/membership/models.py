"""The values of the membership kit. The stored JSON has the same names in camelCase."""

from typing import Literal, TypeAlias
from uuid import UUID

from pydantic import ConfigDict

from keystead.kits.camel_model import CamelModel
from keystead.parts.refresh import RefreshRecord
from keystead.schema import EpochMs, OmittedIfNone, Sealed

Plan: TypeAlias = Literal["Free", "Pro", "Premium", "Ultimate"]


class SessionData(CamelModel):
    """Who is logged in, and the provider's tokens."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    access_token: Sealed[str]
    refresh_token: Sealed[str]
    expires_at: EpochMs
    """when the provider's tokens expire; the session lives on"""
    user_id: str
    """the user's id at the provider, a text of digits"""
    supabase_uuid: OmittedIfNone[UUID] = None
    """the user's id in the database"""
    created_at: OmittedIfNone[EpochMs] = None
    """when the session began"""


class UserTokenData(CamelModel):
    """The tokens of a user, and which session is theirs."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    access_token: Sealed[str]
    refresh_token: Sealed[str]
    expires_at: EpochMs
    """when the provider's tokens expire"""
    email: str
    full_name: str
    session_tokens: list[UUID]
    """always one: a user is logged in on one device"""
    updated_at: EpochMs


class ParsedMembership(CamelModel):
    """What the provider says a user pays for."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    user_id: str
    """the user's id at the provider, a text of digits"""
    email: str
    full_name: str
    plan: Plan
    has_bonus_tokens: bool
    pledge_amount_cents: int
    campaign_lifetime_support_cents: int
    next_charge_date: OmittedIfNone[str] = None
    is_active: bool
    tier_id: OmittedIfNone[str] = None
    patron_status: OmittedIfNone[str] = None
    entitled_amount_cents: OmittedIfNone[int] = None


class CachedMembership(CamelModel):
    """A membership, and when the provider was asked."""

    membership: ParsedMembership
    cached_at: EpochMs


class RefreshTokenData(RefreshRecord, CamelModel):
    """Refresh tokens for JWTs: all that come of one, each made of the one before."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    user_id: str
    """the user's id at the provider, a text of digits"""
    session_token: UUID
    """the session that it was made for"""


class RateLimitData(CamelModel):
    """How many came in a window."""

    count: int
    window_start: EpochMs


class CachedQuota(CamelModel):
    """How many tokens a user has used in a month, and when the database was asked."""

    tokens_used: int
    cached_at: EpochMs


class CachedAuth(CamelModel):
    """Whose session it is and what it may do, for requests that come in quick succession."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    user_id: str
    plan: Plan
    has_bonus_tokens: bool
    cached_at: EpochMs
    plan_as_of: OmittedIfNone[EpochMs] = None
    """when the provider told the plan"""
