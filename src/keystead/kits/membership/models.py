"""The stored values of the membership kit. In JSON the names are in camelCase."""

from typing import Literal, TypeAlias
from uuid import UUID

from pydantic import ConfigDict

from keystead.kits.camel_model import CamelModel
from keystead.parts.refresh import RefreshRecord
from keystead.schema import EpochMs, OmittedIfNone, Sealed

Plan: TypeAlias = Literal["Free", "Pro", "Premium", "Ultimate"]


class SessionData(CamelModel):
    """A session, and the provider's tokens from the sign-in."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    access_token: Sealed[str]
    refresh_token: Sealed[str]
    expires_at: EpochMs
    """when the provider's tokens expire; the session does not end with them"""
    user_id: str
    """the user's id at the provider, a string of digits"""
    supabase_uuid: OmittedIfNone[UUID] = None
    """the user's id in the database"""
    created_at: OmittedIfNone[EpochMs] = None
    """when the session began"""


class UserTokenData(CamelModel):
    """The provider's tokens of a user, and the id of their session."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    access_token: Sealed[str]
    refresh_token: Sealed[str]
    expires_at: EpochMs
    """when the provider's tokens expire"""
    email: str
    full_name: str
    session_tokens: list[UUID]
    """always one: a user is signed in on one device"""
    updated_at: EpochMs


class ParsedMembership(CamelModel):
    """A membership as the provider reports it."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    user_id: str
    """the user's id at the provider, a string of digits"""
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
    """A membership, and when the provider reported it."""

    membership: ParsedMembership
    cached_at: EpochMs


class RefreshTokenData(RefreshRecord, CamelModel):
    """A refresh token chain for JWTs: a token and its successors."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    user_id: str
    """the user's id at the provider, a string of digits"""
    session_token: UUID
    """the session it was issued for"""


class RateLimitData(CamelModel):
    """Requests in a window."""

    count: int
    window_start: EpochMs


class CachedQuota(CamelModel):
    """The tokens a user has used in a month, and when they were read from the database."""

    tokens_used: int
    cached_at: EpochMs


class CachedAuth(CamelModel):
    """The user and plan of a session."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    user_id: str
    plan: Plan
    has_bonus_tokens: bool
    cached_at: EpochMs
    plan_as_of: OmittedIfNone[EpochMs] = None
    """when the provider reported the plan"""
