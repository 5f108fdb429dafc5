"""What the ledger returns: profiles, usage, bonuses, plan changes and crash reports."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from keystead.kits.membership.models import Plan


@dataclass(frozen=True)
class Profile:
    """A member, as this database knows them."""

    id: UUID
    patreon_user_id: str
    email: str | None
    full_name: str | None
    created_at_ms: int


@dataclass(frozen=True)
class ToldPlan:
    """A plan, and when the provider told it."""

    plan: Plan
    as_of_ms: int


@dataclass(frozen=True)
class Recorded:
    """What a use was paid with."""

    is_new: bool  # False: it had been recorded before, as the rest says, and nothing was counted now
    month: str
    from_quota: int
    from_bonus: int
    beyond: int  # what neither paid for; it counts against the month all the same


@dataclass(frozen=True)
class Usage:
    """What a member has used in a month."""

    month: str
    tokens_used: int  # against the quota
    bonus_used: int  # beside it


@dataclass(frozen=True)
class Status:
    """What a member has used in a month, of what they may."""

    month: str
    tokens_used: int
    tokens_limit: int
    bonus_left: int

    @property
    def is_exceeded(self) -> bool:
        """Whether nothing is left of the quota. Bonus tokens may be."""
        return self.tokens_used >= self.tokens_limit

    @property
    def has_bonus_tokens(self) -> bool:
        return self.bonus_left > 0


@dataclass(frozen=True)
class Bonus:
    """Tokens beside the quota, which do not expire."""

    id: str
    granted: int
    used: int
    source: str
    granted_at_ms: int

    @property
    def left(self) -> int:
        return self.granted - self.used


@dataclass(frozen=True)
class CrashReport:
    """A report of an application. Its texts are kept as they are given; whoever takes them cuts them."""

    report_id: UUID
    crash_timestamp: str
    error_message: str
    app_version: str
    os_version: str
    system_info: str | None = None  # JSON
    logs: str | None = None


@dataclass(frozen=True)
class Received:
    """A crash report that is kept, and when it came."""

    report: CrashReport
    received_at_ms: int


@dataclass(frozen=True)
class PlanNote:
    """A plan in the history of a member. `source` is the event that named it."""

    old_plan: Plan
    new_plan: Plan
    source: str
    at_ms: int


@dataclass(frozen=True)
class PlanChange:
    """A plan that was noted, and the one before."""

    is_new: bool  # False: the event had been noted before, and nothing was changed now
    old_plan: Plan
    new_plan: Plan
    at_ms: int  # when it was noted first

    @property
    def is_change(self) -> bool:
        return self.old_plan != self.new_plan
