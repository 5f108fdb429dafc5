"""Usage: the monthly quota, bonus tokens, and the user's plan."""

from __future__ import annotations

from contextlib import suppress
from datetime import date, timedelta
from typing import TYPE_CHECKING

from keystead.errors import Unreadable
from keystead.kits.membership.models import CachedMembership, CachedQuota, Plan
from keystead.kits.membership.service.ledger_records import RecordedUsage, Status
from keystead.kits.membership.service.outcomes import Entitled, KnownPlan, provider_unavailable
from keystead.parts.cache import LoadFailed
from keystead.schema.times import deadline_ms, moment

if TYPE_CHECKING:
    from keystead.kits.membership.service.members import Members


class UsageAccounts:
    """Created by `Members`."""

    def __init__(self, members: Members) -> None:
        self._members = members

    async def quota(self, bearer: str) -> tuple[Entitled, Status]:
        """The member's usage this month, read from the database and not from the cache."""
        who = await self._members.entitled(bearer)
        return who, await self.status_of(who.session.user, who.plan)

    async def tokens_used(self, who: Entitled) -> int:
        """Tokens used this month, at most 5 minutes old. Usage recorded here counts immediately."""
        user, month = who.session.user, first_of_month(self._members.keys.now_ms())

        async def load() -> CachedQuota | None:
            if not await self._members.is_current(who.session):
                return None  # signed out meanwhile: cache nothing
            used = (await self._members.ledger.usage(user, f"{month:%Y-%m}")).tokens_used
            return CachedQuota(tokens_used=used, cached_at=moment(self._members.keys.now_ms()))

        found = await self._members.quotas.get(self._members.keys.quota(user, month), load)
        return 0 if found is None else found.tokens_used

    async def record_usage(self, user: str, plan: Plan, event_id: str, tokens: int) -> RecordedUsage:
        """Record usage, once per user and event id, and invalidate the cached quota."""
        now_ms = self._members.keys.now_ms()
        recorded = await self._members.ledger.record_usage(user, plan, event_id, tokens, now_ms)
        await self._members.quotas.invalidate(self._members.keys.quota(user, first_of_month(now_ms)))
        if recorded.from_bonus:
            await self.refresh_bonus_flag(user)
        return recorded

    async def grant_bonus(self, user: str, bonus_id: str, tokens: int, source: str) -> bool:
        """Grant bonus tokens. False if the user has this bonus already; it is not changed."""
        is_new = await self._members.ledger.grant_bonus(user, bonus_id, tokens, source, self._members.keys.now_ms())
        await self.refresh_bonus_flag(user)
        return is_new

    async def refresh_bonus_flag(self, user: str) -> None:
        """Update `has_bonus_tokens` in the caches after bonus tokens were granted or used.

        The cached membership is updated, not invalidated: otherwise its plan would depend on a provider that may be
        down. Race: a load that read the ledger before this and writes after it leaves the flag wrong until the next
        load. No route relies on the flag; they all read the ledger.
        """
        has_bonus = await self._members.has_bonus_tokens(user, "Free")

        def with_flag(cached: CachedMembership) -> CachedMembership:
            membership = cached.membership.model_copy(update={"has_bonus_tokens": has_bonus})
            return cached.model_copy(update={"membership": membership})

        for family in (self._members.keys.membership, self._members.keys.membership_stale):
            with suppress(Unreadable):
                await family(user).change(with_flag)
        for session_id in await self._members.sessions_of(user) or ():
            await self._members.entitlements.invalidate(self._members.keys.auth(session_id))

    async def plan_of(self, user: str, *, may_be_stale: bool = False) -> KnownPlan:
        """The plan of a user, who need not be signed in.

        For a signed-in user it is what the provider reports, else the last plan stored in the ledger, or Free. If the
        provider does not answer for a signed-in user, it is the stored plan with `may_be_stale`; otherwise it raises
        MembershipRefused, because an outdated plan could spend bonus tokens instead of the quota.
        """
        is_stale = False
        if await self._members.sessions_of(user):
            try:
                found = await self._members.get_membership(user)
            except LoadFailed as error:
                if not may_be_stale:
                    raise provider_unavailable(error) from None
                found, is_stale = None, True
            if found is not None:
                return KnownPlan(found.membership.plan, self._members.is_stale(deadline_ms(found.cached_at)))
        return KnownPlan(await self._members.ledger.plan_of(user) or "Free", is_stale)

    async def status_of(self, user: str, plan: Plan) -> Status:
        """The usage and limits of a user this month, from the database."""
        return await self._members.ledger.status(user, plan, self._members.keys.now_ms())

    def month_ends_s(self) -> int:
        """When the quota resets: the first of the next month in UTC, as a Unix time in seconds."""
        now = moment(self._members.keys.now_ms())
        start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        return int((start + timedelta(days=32)).replace(day=1).timestamp())


def first_of_month(at_ms: int) -> date:
    return moment(at_ms).date().replace(day=1)
