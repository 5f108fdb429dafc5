"""The values of the membership kit, with the names that their fields have in the stored JSON."""

# ruff: noqa: N815 - fields are named as they are stored

from typing import Literal, TypeAlias
from uuid import UUID

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel

from keystead.parts.refresh import RefreshRecord
from keystead.schema import EpochMs, OmittedIfNone, Sealed

Plan: TypeAlias = Literal["Free", "Pro", "Premium", "Ultimate"]


class SessionData(BaseModel):
    """Who is logged in, and the provider's tokens."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    accessToken: Sealed[str]
    refreshToken: Sealed[str]
    expiresAt: EpochMs
    """when the provider's tokens expire; the session lives on"""
    userId: str
    """the user's id at the provider, a text of digits"""
    supabaseUuid: OmittedIfNone[UUID] = None
    """the user's id in the database"""
    createdAt: OmittedIfNone[EpochMs] = None
    """when the session began"""


class UserTokenData(BaseModel):
    """The tokens of a user, and which session is theirs."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    accessToken: Sealed[str]
    refreshToken: Sealed[str]
    expiresAt: EpochMs
    """when the provider's tokens expire"""
    email: str
    fullName: str
    sessionTokens: list[UUID]
    """always one: a user is logged in on one device"""
    updatedAt: EpochMs


class ParsedMembership(BaseModel):
    """What the provider says a user pays for."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    userId: str
    """the user's id at the provider, a text of digits"""
    email: str
    fullName: str
    plan: Plan
    hasBonusTokens: bool
    pledgeAmountCents: int
    campaignLifetimeSupportCents: int
    nextChargeDate: OmittedIfNone[str] = None
    isActive: bool
    tierId: OmittedIfNone[str] = None
    patronStatus: OmittedIfNone[str] = None
    entitledAmountCents: OmittedIfNone[int] = None


class CachedMembership(BaseModel):
    """A membership, and when the provider was asked."""

    membership: ParsedMembership
    cachedAt: EpochMs


class RefreshTokenData(RefreshRecord):
    """Refresh tokens for JWTs: all that come of one, each made of the one before."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, use_attribute_docstrings=True)

    userId: str
    """the user's id at the provider, a text of digits"""
    sessionToken: UUID
    """the session that it was made for"""


class RateLimitData(BaseModel):
    """How many came in a window."""

    count: int
    windowStart: EpochMs


class CachedQuota(BaseModel):
    """How many tokens a user has used in a month, and when the database was asked."""

    tokensUsed: int
    cachedAt: EpochMs


class CachedAuth(BaseModel):
    """Whose session it is and what it may do, for requests that come in quick succession."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    userId: str
    plan: Plan
    hasBonusTokens: bool
    cachedAt: EpochMs
    planAsOf: OmittedIfNone[EpochMs] = None
    """when the provider told the plan"""
