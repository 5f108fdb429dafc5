"""What the service asks of the relational side. It is open before the service is, and closed after it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

from keystead.kits.membership.models import Plan


class Profile(Protocol):
    """A member, as the database knows them."""

    @property
    def id(self) -> UUID: ...


class Usage(Protocol):
    """What a member has used in a month."""

    @property
    def tokens_used(self) -> int: ...


class Status(Usage, Protocol):
    """What a member has used in a month, of what they may. `month` is written as in `2026-01`."""

    @property
    def month(self) -> str: ...
    @property
    def tokens_limit(self) -> int: ...
    @property
    def is_exceeded(self) -> bool: ...
    @property
    def has_bonus_tokens(self) -> bool: ...


class Recorded(Protocol):
    """What a use was paid with."""

    @property
    def is_new(self) -> bool: ...


class PlanChange(Protocol):
    """A plan that was noted. `is_new`: the event had not been; `is_change`: it was another plan before."""

    @property
    def is_new(self) -> bool: ...
    @property
    def is_change(self) -> bool: ...


@dataclass(frozen=True)
class CrashReport:
    """What an application tells of a crash, as it is kept."""

    report_id: UUID
    crash_timestamp: str
    error_message: str
    app_version: str
    os_version: str
    system_info: str | None = None  # JSON
    logs: str | None = None


class Ledger(Protocol):
    """Profiles, usage, plan changes and crash reports, by the user's id at the provider.

    A database that is away is a StoreError; whatever was asked may be asked again, since nothing counts twice.
    """

    async def profile_of(
        self, user: str, at_ms: int, *, email: str | None = None, full_name: str | None = None
    ) -> Profile:
        """The profile of a user, made at the first sight of them."""

    async def record_usage(self, user: str, plan: Plan, event_id: str, tokens: int, at_ms: int) -> Recorded:
        """Count what a user has used, once for each event."""

    async def usage(self, user: str, month: str) -> Usage:
        """What a user has used in a month."""

    async def status(self, user: str, plan: Plan, at_ms: int) -> Status:
        """How a user stands in the month of this moment."""

    async def note_plan_change(self, user: str, event_id: str, plan: Plan, source: str, at_ms: int) -> PlanChange:
        """Note which plan an event gives a user, once for each event."""

    async def add_crash_report(self, report: Any, at_ms: int) -> bool:
        """Keep a report. False: there is one with this id already."""
