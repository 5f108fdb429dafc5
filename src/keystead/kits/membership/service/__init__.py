"""What a member can do, from the sign-in to the logout, and what the provider tells of them. It knows no HTTP."""

from keystead.kits.membership.service.ledger import Ledger
from keystead.kits.membership.service.ledger_records import CrashReport
from keystead.kits.membership.service.members import Members, open_members
from keystead.kits.membership.service.outcomes import (
    ASKING,
    Entitled,
    Heard,
    Member,
    MembershipRefused,
    Named,
    SignedIn,
    TokenPair,
)
from keystead.kits.membership.service.patreon import Patreon, plan_of
from keystead.kits.membership.service.provider_access import TRY_PATH
from keystead.kits.membership.service.settings import LIMITS, PATREON, MembershipSettings, missing
from keystead.kits.membership.service.webhook import EVENTS

__all__ = [
    "ASKING",
    "EVENTS",
    "LIMITS",
    "PATREON",
    "TRY_PATH",
    "CrashReport",
    "Entitled",
    "Heard",
    "Ledger",
    "Member",
    "Members",
    "MembershipRefused",
    "MembershipSettings",
    "Named",
    "Patreon",
    "SignedIn",
    "TokenPair",
    "missing",
    "open_members",
    "plan_of",
]
