"""Membership: one session per member, paid plans, refresh tokens, rate limits and quotas."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from keystead.kits.membership.routes import KIT
    from keystead.kits.membership.service import Members, MembershipRefused, MembershipSettings

__all__ = [
    "KIT",
    "CachedAuth",
    "CachedMembership",
    "CachedQuota",
    "Members",
    "MembershipKeys",
    "MembershipRefused",
    "MembershipSettings",
    "ParsedMembership",
    "Plan",
    "RateLimitData",
    "RefreshTokenData",
    "SessionData",
    "UserTokenData",
    "session_uuid",
]

_LATER = {
    "KIT": "routes",
    **dict.fromkeys(("Members", "MembershipRefused", "MembershipSettings"), "service"),
}


def __getattr__(name: str) -> Any:
    """Import what needs a web framework on demand: commands such as `keystead check` do without it."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_LATER[name]}"), name)
