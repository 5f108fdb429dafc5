"""Usage: the monthly quota, bonus tokens, and the plan that both depend on."""

from __future__ import annotations

from contextlib import suppress
from datetime import date, timedelta
from typing import TYPE_CHECKING

from keystead.errors import Unreadable
from keystead.kits.membership.models import CachedMembership, CachedQuota, Plan
from keystead.kits.membership.service.ledger_records import Recorded, Status
from keystead.kits.membership.service.outcomes import Entitled, KnownPlan, unavailable
from keystead.parts.cache import LoadFailed
from keystead.schema.times import deadline_ms, moment

if TYPE_CHECKING:
    from keystead.kits.membership.service.members import Members


class UsageAccounts:
    """Made by `Members`."""

    def __init__(self, members: Members) -> None:
        self._members = members

    async def quota(self, bearer: str) -> tuple[Entitled, Status]:
        """How somebody stands this month, past the cache: the database is load."""
        who = await self._members.entitled(bearer)
        return who, await self.status_of(who.named.user, who.plan)

    async def tokens_used(self, who: Entitled) -> int:
        """How many tokens somebody has used this month, as it was known within the last 5 minutes, or since the last
        use that was recorded here."""
        user, month = who.named.user, month_of(self._members.keys.now_ms())

        async def load() -> CachedQuota | None:
            if not await self._members.is_current(who.named):  # signed out meanwhile: nothing is left behind
                return None
            used = (await self._members.ledger.usage(user, f"{month:%Y-%m}")).tokens_used
            return CachedQuota(tokens_used=used, cached_at=moment(self._members.keys.now_ms()))

        found = await self._members.quotas.get(self._members.keys.quota(user, month), load)
        return 0 if found is None else found.tokens_used

    async def record_usage(self, who: Entitled, event_id: str, tokens: int) -> Recorded:
        """Count what somebody has used, once for each event. What is remembered of their quota is dropped after it."""
        return await self.count_usage(who.named.user, who.plan, event_id, tokens)

    async def count_usage(self, user: str, plan: Plan, event_id: str, tokens: int) -> Recorded:
        """The same for somebody who need not be signed in."""
        now_ms = self._members.keys.now_ms()
        recorded = await self._members.ledger.record_usage(user, plan, event_id, tokens, now_ms)
        await self._members.quotas.invalidate(self._members.keys.quota(user, month_of(now_ms)))
        if recorded.from_bonus:
            await self.bonuses_changed(user)
        return recorded

    async def grant_bonus(self, user: str, bonus_id: str, tokens: int, source: str) -> bool:
        """Give a user tokens beside their quota. False: they had this bonus already, and it is as it was."""
        is_new = await self._members.ledger.grant_bonus(user, bonus_id, tokens, source, self._members.keys.now_ms())
        await self.bonuses_changed(user)
        return is_new

    async def bonuses_changed(self, user: str) -> None:
        """Bonus tokens were granted or used: what is remembered of a user says from now on whether there are some.

        The membership itself stays: to drop it would make its plan depend on a provider that may be away. Who may
        interleave: a question to the provider that read the ledger before and writes after this. Then the flag in the
        cache is wrong until the next question; no route goes by it, they all ask the ledger.
        """
        has_bonus = await self._members.has_bonus_tokens(user, "Free")

        def updated(cached: CachedMembership) -> CachedMembership:
            membership = cached.membership.model_copy(update={"has_bonus_tokens": has_bonus})
            return cached.model_copy(update={"membership": membership})

        for family in (self._members.keys.membership, self._members.keys.membership_stale):
            with suppress(Unreadable):
                await family(user).change(updated)
        for session in await self._members.sessions_of(user) or ():
            await self._members.entitlements.invalidate(self._members.keys.auth(session))

    async def plan_of(self, user: str, *, may_be_stale: bool = False) -> KnownPlan:
        """What a user pays for, whether they are signed in or not: what the provider says where it can be load with
        their tokens, else what it said last, and Free where nobody ever said.

        Where they are signed in and the provider does not answer, it is what it said last if that may be stale, and
        MembershipRefused otherwise: to go by an old plan could spend bonus tokens in the place of the quota.
        """
        is_stale = False
        if await self._members.sessions_of(user):
            try:
                found = await self._members.memberships.get(
                    self._members.keys.membership(user), lambda: self._members.loader.load(user)
                )
            except LoadFailed as error:
                if not may_be_stale:
                    raise unavailable(error) from None
                found, is_stale = None, True
            if found is not None:
                return KnownPlan(found.membership.plan, self._members.is_stale(deadline_ms(found.cached_at)))
        return KnownPlan(await self._members.ledger.plan_of(user) or "Free", is_stale)

    async def status_of(self, user: str, plan: Plan) -> Status:
        """How somebody stands this month, past the cache."""
        return await self._members.ledger.status(user, plan, self._members.keys.now_ms())

    def month_ends_s(self) -> int:
        """When the quota begins anew: the first of the next month, UTC, in seconds since 1970."""
        now = moment(self._members.keys.now_ms())
        start = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        return int((start + timedelta(days=32)).replace(day=1).timestamp())


def month_of(at_ms: int) -> date:
    return moment(at_ms).date().replace(day=1)
