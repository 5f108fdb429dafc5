"""What programs with an API key, and operators at the command line, do: record usage, grant bonuses, read."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from keystead.kits.membership.models import Plan
from keystead.kits.membership.service.ledger import check_user
from keystead.kits.membership.service.ledger_records import Bonus, CrashReport, PlanNote, Received, Recorded, Status
from keystead.kits.membership.service.outcomes import ASKING, KnownPlan, MembershipRefused
from keystead.parts.apikeys import ApiKeys, IssuedApiKey, ListedApiKey, id_of

if TYPE_CHECKING:
    from keystead.kits.membership.service.members import Members

LISTED_MAX: Final = 200
SOURCE: Final = "program"
_NO_USER: Final = 0  # an API key of this kit acts for no user

_security = logging.getLogger("keystead.security")


@dataclass(frozen=True)
class Standing:
    """How a member stands, as those see it who count for them. `plan_is_stale`: the provider does not answer, and this
    is what it said last."""

    user: str
    plan: Plan
    plan_is_stale: bool
    status: Status
    bonuses: Sequence[Bonus]


class Programs:
    """Made by `Members`. A user is named by their id at the provider; one that nobody knows has the plan Free.

    Ids that do not fit and numbers below 0 are a BadValue. A database that is away is a StoreError; whatever was asked
    may be asked again, since nothing counts twice.
    """

    def __init__(self, members: Members, keys: ApiKeys) -> None:
        self._members = members
        self._keys = keys

    # --- API keys ------------------------------------------------------------------------------------------

    async def admit(self, token: str) -> ListedApiKey:
        """The API key of a program. Raises MembershipRefused for what is none, or was revoked."""
        found = await self._keys.of(token)
        if found is None:
            event = {"event": "unknown-api-key", "client": ASKING.get()}
            _security.warning("membership: an API key that is none", extra=event)
            raise MembershipRefused("API_KEY_INVALID", "this is no API key, or it was revoked")
        return found

    async def issue_key(self, name: str) -> IssuedApiKey:
        """An API key for a program. Its token is told once."""
        issued = await self._keys.issue(_NO_USER, name)
        _security.info("membership: an API key was issued", extra={"event": "apikey-issued", "id": issued.id})
        return issued

    async def list_keys(self) -> list[ListedApiKey]:
        """All API keys, the oldest first."""
        return await self._keys.list()

    async def revoke_key(self, key: str) -> bool:
        """End an API key, named by its id or by itself, at once and for good. False: there is no such key."""
        key_id = id_of(key)
        is_ended = await self._keys.revoke(key_id)
        if is_ended:
            _security.info("membership: an API key was revoked", extra={"event": "apikey-revoked", "id": key_id})
        return is_ended

    # --- for a member --------------------------------------------------------------------------------------

    async def record_usage(self, user: str, event_id: str, tokens: int) -> tuple[Recorded, Standing]:
        """Count what a member has used, once for each `event_id`, and how they stand after it."""
        check_user(user)
        known = await self._members.usage.plan_of(user)
        recorded = await self._members.usage.count_usage(user, known.plan, event_id, tokens)
        return recorded, await self._standing(user, known)

    async def grant_bonus(self, user: str, bonus_id: str, tokens: int, source: str = SOURCE) -> tuple[bool, Standing]:
        """Give a member tokens beside their quota, once for each `bonus_id`; whether it is new, and how they stand."""
        check_user(user)
        is_new = await self._members.usage.grant_bonus(user, bonus_id, tokens, source)
        return is_new, await self.standing(user)

    async def standing(self, user: str) -> Standing:
        """How a member stands this month."""
        check_user(user)
        return await self._standing(user, await self._members.usage.plan_of(user, may_be_stale=True))

    async def _standing(self, user: str, known: KnownPlan) -> Standing:
        status = await self._members.usage.status_of(user, known.plan)
        return Standing(user, known.plan, known.is_stale, status, await self._members.ledger.bonuses(user))

    async def plan_history(self, user: str, most: int = LISTED_MAX) -> list[PlanNote]:
        """Which plans the provider's events gave a member, the newest first."""
        check_user(user)
        return await self._members.ledger.plan_history(user, most)

    # --- crash reports -------------------------------------------------------------------------------------

    async def crash_reports(self, most: int = LISTED_MAX, before: UUID | None = None) -> list[Received]:
        """The newest crash reports, newest first; `before` goes on after the one with this id."""
        return await self._members.ledger.crash_reports(most, before)

    async def crash_report(self, report_id: UUID) -> CrashReport:
        """One crash report. Raises MembershipRefused where there is none with this id."""
        found = await self._members.ledger.find_crash_report(report_id)
        if found is None:
            raise MembershipRefused("REPORT_NOT_FOUND", "there is no crash report with this id")
        return found
