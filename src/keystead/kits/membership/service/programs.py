"""Operations for programs with an API key and for operators: record usage, grant bonuses, read reports."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from keystead.kits.membership.models import Plan
from keystead.kits.membership.service.ledger import check_user
from keystead.kits.membership.service.ledger_records import (
    Bonus,
    CrashReport,
    PlanNote,
    ReceivedReport,
    RecordedUsage,
    Status,
)
from keystead.kits.membership.service.outcomes import CLIENT_ADDRESS, KnownPlan, MembershipRefused
from keystead.parts.apikeys import ApiKeys, IssuedApiKey, ListedApiKey, id_of

if TYPE_CHECKING:
    from keystead.kits.membership.service.members import Members

LISTED_MAX: Final = 200
SOURCE: Final = "program"
_NO_USER: Final = 0  # API keys of this kit do not act for a user

_security = logging.getLogger("keystead.security")


@dataclass(frozen=True)
class Standing:
    """A member's plan, usage and bonuses. `plan_is_stale`: the provider does not answer, and this is its last plan."""

    user: str
    plan: Plan
    plan_is_stale: bool
    status: Status
    bonuses: Sequence[Bonus]


class Programs:
    """Created by `Members`. Users are identified by their id at the provider; an unknown user has the plan Free.

    Raises BadValue for invalid ids and negative numbers, and StoreError if the database is down. Every operation is
    idempotent, so it can be retried.
    """

    def __init__(self, members: Members, keys: ApiKeys) -> None:
        self._members = members
        self._keys = keys

    # --- API keys ------------------------------------------------------------------------------------------

    async def admit(self, token: str) -> ListedApiKey:
        """Check the API key of a program. Raises MembershipRefused if it is unknown or revoked."""
        found = await self._keys.of(token)
        if found is None:
            event = {"event": "unknown-api-key", "client": CLIENT_ADDRESS.get()}
            _security.warning("membership: unknown API key", extra=event)
            raise MembershipRefused("API_KEY_INVALID", "this API key is unknown or was revoked")
        return found

    async def issue_key(self, name: str) -> IssuedApiKey:
        """Issue an API key for a program. Its token is returned only once."""
        issued = await self._keys.issue(_NO_USER, name)
        _security.info("membership: API key issued", extra={"event": "apikey-issued", "id": issued.id})
        return issued

    async def list_keys(self) -> list[ListedApiKey]:
        """All API keys, oldest first."""
        return await self._keys.list()

    async def revoke_key(self, key: str) -> bool:
        """Revoke an API key, given as its id or the whole key. Immediate and final. False if there is no such key."""
        key_id = id_of(key)
        was_revoked = await self._keys.revoke(key_id)
        if was_revoked:
            _security.info("membership: API key revoked", extra={"event": "apikey-revoked", "id": key_id})
        return was_revoked

    # --- members -------------------------------------------------------------------------------------------

    async def record_usage(self, user: str, event_id: str, tokens: int) -> tuple[RecordedUsage, Standing]:
        """Record usage of a member, once per `event_id`. Returns the record and the member's standing after it."""
        check_user(user)
        known = await self._members.usage.plan_of(user)
        recorded = await self._members.usage.record_usage(user, known.plan, event_id, tokens)
        return recorded, await self._build_standing(user, known)

    async def grant_bonus(self, user: str, bonus_id: str, tokens: int, source: str = SOURCE) -> tuple[bool, Standing]:
        """Grant bonus tokens, once per `bonus_id`. Returns whether it is new, and the member's standing."""
        check_user(user)
        is_new = await self._members.usage.grant_bonus(user, bonus_id, tokens, source)
        return is_new, await self.standing(user)

    async def standing(self, user: str) -> Standing:
        """The plan, usage and bonuses of a member this month."""
        check_user(user)
        return await self._build_standing(user, await self._members.usage.plan_of(user, may_be_stale=True))

    async def _build_standing(self, user: str, known: KnownPlan) -> Standing:
        status = await self._members.usage.status_of(user, known.plan)
        return Standing(user, known.plan, known.is_stale, status, await self._members.ledger.bonuses(user))

    async def plan_history(self, user: str, most: int = LISTED_MAX) -> list[PlanNote]:
        """The plan changes of a member by webhooks, newest first."""
        check_user(user)
        return await self._members.ledger.plan_history(user, most)

    # --- crash reports -------------------------------------------------------------------------------------

    async def crash_reports(self, most: int = LISTED_MAX, before: UUID | None = None) -> list[ReceivedReport]:
        """The newest crash reports, newest first. `before` continues after the report with this id."""
        return await self._members.ledger.crash_reports(most, before)

    async def crash_report(self, report_id: UUID) -> CrashReport:
        """One crash report. Raises MembershipRefused if absent."""
        found = await self._members.ledger.find_crash_report(report_id)
        if found is None:
            raise MembershipRefused("REPORT_NOT_FOUND", "there is no crash report with this id")
        return found
