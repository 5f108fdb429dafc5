"""Records of the ledger: profiles, usage, bonuses, plan changes and crash reports."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from keystead.kits.membership.models import Plan


@dataclass(frozen=True)
class Profile:
    id: UUID
    patreon_user_id: str
    email: str | None
    full_name: str | None
    created_at_ms: int


@dataclass(frozen=True)
class PlanAsOf:
    """A plan, and when the provider reported it."""

    plan: Plan
    as_of_ms: int


@dataclass(frozen=True)
class RecordedUsage:
    """How recorded usage was charged."""

    is_new: bool  # False: this is the earlier record, and nothing was counted now
    month: str
    from_quota: int
    from_bonus: int
    beyond: int  # covered by neither; it still counts against the month


@dataclass(frozen=True)
class Usage:
    """The usage of a member in a month."""

    month: str
    tokens_used: int  # counted against the quota
    bonus_used: int  # covered by bonus tokens


@dataclass(frozen=True)
class Status:
    """A member's usage and limits in a month."""

    month: str
    tokens_used: int
    tokens_limit: int
    bonus_left: int

    @property
    def is_exceeded(self) -> bool:
        """Whether the quota is exhausted. Bonus tokens may be left."""
        return self.tokens_used >= self.tokens_limit

    @property
    def has_bonus_tokens(self) -> bool:
        return self.bonus_left > 0


@dataclass(frozen=True)
class Bonus:
    """Tokens in addition to the quota. They do not expire."""

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
    """A crash report of an application. The ledger stores texts unchanged; `parse_crash_report` truncates them."""

    report_id: UUID
    crash_timestamp: str
    error_message: str
    app_version: str
    os_version: str
    system_info: str | None = None  # JSON
    logs: str | None = None


@dataclass(frozen=True)
class ReceivedReport:
    """A stored crash report, and when the server received it."""

    report: CrashReport
    received_at_ms: int


@dataclass(frozen=True)
class PlanNote:
    """An entry of a member's plan history. `source` is the event that set the plan."""

    old_plan: Plan
    new_plan: Plan
    source: str
    at_ms: int


@dataclass(frozen=True)
class PlanChange:
    """The effect of an event that sets a plan."""

    is_new: bool  # False: the event was recorded before, and nothing was changed now
    old_plan: Plan
    new_plan: Plan
    at_ms: int  # when it was first recorded

    @property
    def is_change(self) -> bool:
        return self.old_plan != self.new_plan
