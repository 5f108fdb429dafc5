"""The membership service, independent of HTTP."""

from keystead.kits.membership.service.ledger import Ledger
from keystead.kits.membership.service.ledger_records import CrashReport
from keystead.kits.membership.service.members import Members, open_members
from keystead.kits.membership.service.outcomes import (
    CLIENT_ADDRESS,
    Entitled,
    Member,
    MembershipRefused,
    SessionRef,
    SignInResult,
    TokenPair,
    WebhookResult,
)
from keystead.kits.membership.service.patreon import Patreon, plan_of
from keystead.kits.membership.service.provider_access import TRY_PATH
from keystead.kits.membership.service.settings import LIMITS, PATREON, MembershipSettings, missing
from keystead.kits.membership.service.webhook import EVENTS

__all__ = [
    "CLIENT_ADDRESS",
    "EVENTS",
    "LIMITS",
    "PATREON",
    "TRY_PATH",
    "CrashReport",
    "Entitled",
    "Ledger",
    "Member",
    "Members",
    "MembershipRefused",
    "MembershipSettings",
    "Patreon",
    "SessionRef",
    "SignInResult",
    "TokenPair",
    "WebhookResult",
    "missing",
    "open_members",
    "plan_of",
]
