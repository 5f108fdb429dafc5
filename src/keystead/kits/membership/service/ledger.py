"""What the service asks of the relational side. It is open before the service is, and closed after it."""

from __future__ import annotations

from typing import Protocol
from uuid import UUID

from keystead.kits.membership.models import CrashReport, Plan


class Ledger(Protocol):
    """Profiles, plan changes, bonus tokens and crash reports, by the user's id at the provider.

    Each raises an error of its own where the database does not answer.
    """

    async def profile_of(self, patreon_user_id: str) -> UUID | None:
        """The id of the user's profile; None: nobody has linked one."""

    async def has_bonus_tokens(self, patreon_user_id: str) -> bool:
        """Whether the user has bonus tokens left."""

    async def note_plan_change(self, patreon_user_id: str, plan: Plan, event_id: str) -> bool:
        """Write down that a user has another plan now. False: it is the plan they had, or this event was noted."""

    async def add_crash_report(self, report: CrashReport) -> bool:
        """Keep a crash report. False: there is one with this id already."""
