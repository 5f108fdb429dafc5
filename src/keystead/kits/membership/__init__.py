"""Membership: one session a member, what the member pays for, refresh tokens, limits and quotas."""

from keystead.kits.membership.keys import MembershipKeys, session_uuid
from keystead.kits.membership.models import (
    CachedAuth,
    CachedMembership,
    CachedQuota,
    ParsedMembership,
    Plan,
    RateLimitData,
    RefreshTokenData,
    SessionData,
    UserTokenData,
)

__all__ = [
    "CachedAuth",
    "CachedMembership",
    "CachedQuota",
    "MembershipKeys",
    "ParsedMembership",
    "Plan",
    "RateLimitData",
    "RefreshTokenData",
    "SessionData",
    "UserTokenData",
    "session_uuid",
]
