"""The account of a signed-in member: initial sync, consents, promotions and bonus tokens."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

from keystead.errors import StoreError
from keystead.kits.membership.service.consents import Consent, Consents, ConsentType
from keystead.kits.membership.service.ledger_records import Bonus, Status
from keystead.kits.membership.service.outcomes import Entitled, MembershipRefused
from keystead.kits.membership.service.promotions import Promotions, RedeemFailure, Redemption

if TYPE_CHECKING:
    from keystead.kits.membership.service.members import Members
    from keystead.parts.limit import Limits

WELCOME: Final = "welcome"
_PARTS: Final = ("promotion", "consent", "bonus_tokens", "quota")  # of a sync

_log = logging.getLogger("keystead.membership")

_Consents: TypeAlias = Mapping[ConsentType, Consent]
_Part = TypeVar("_Part")


@dataclass(frozen=True)
class PromotionStatus:
    """The promotion that a member redeemed last, if any, and whether it has expired."""

    promotion: Redemption | None
    expired: bool


@dataclass(frozen=True)
class SyncResult:
    """Everything an application needs when it starts. A part that could not be read is None, and listed in `failed`.

    welcome_tokens   the welcome bonus that this sync granted; 0 if it is not the first sync
    """

    who: Entitled
    promotion: PromotionStatus | None
    consents: _Consents | None
    bonuses: Sequence[Bonus] | None
    quota: Status | None
    welcome_tokens: int
    failed: tuple[str, ...]


class Account:
    """Created by `Members`. Each operation takes a bearer token of either kind, and raises MembershipRefused."""

    def __init__(
        self, members: Members, promotions: Promotions, consents: Consents, limits: Mapping[str, Limits | None]
    ) -> None:
        self._members = members
        self.promotions = promotions
        self._consents = consents
        self._limits = limits

    async def _admit(self, bearer: str, limit: str = "") -> Entitled:
        who = await self._members.entitled(bearer)
        if limit:
            await self._members.enforce_limit(self._limits[limit], limit.replace("_", "-"), who.session.user)
        return who

    # --- initial sync --------------------------------------------------------------------------------------

    async def sync(self, bearer: str) -> SyncResult:
        """Grant the welcome bonus, once, and read all parts of the account concurrently.

        If some parts fail, the others are returned. Raises the database's error if all fail.
        """
        who = await self._admit(bearer, "sync_init")
        user, now_ms = who.session.user, self._members.keys.now_ms()
        welcome, tokens, failed = 0, self._members.settings.welcome_bonus, []
        if tokens:
            try:
                is_new = await self._members.usage.grant_bonus(user, WELCOME, tokens, WELCOME)
                welcome = tokens if is_new else 0
            except StoreError as error:
                _log.warning("membership: welcome bonus not granted: %s", error.code)
                failed.append("welcome_bonus")
        errors: dict[str, StoreError] = {}
        promotion, consents, bonuses, quota = await asyncio.gather(
            _attempt("promotion", self._promotion_status(user, now_ms), errors),
            _attempt("consent", self._consents.latest_of(user), errors),
            _attempt("bonus_tokens", self._members.ledger.bonuses(user), errors),
            _attempt("quota", self._members.usage.status_of(user, who.plan), errors),
        )
        if len(errors) == len(_PARTS):
            raise errors[_PARTS[0]]
        failed += [name for name in _PARTS if name in errors]
        return SyncResult(who, promotion, consents, bonuses, quota, welcome, tuple(failed))

    # --- consents ------------------------------------------------------------------------------------------

    async def record_consent(self, bearer: str, user_id: str, consent: Consent) -> bool:
        """Record a consent. False if the member had accepted this version before.

        `user_id` must be the member's own id, here or at the provider, so that an application cannot mix up members.
        """
        who = await self._admit(bearer)
        profile = await self._members.ledger.profile_of(who.session.user, consent.recorded_at_ms)
        if user_id not in (who.session.user, str(profile.id)):
            raise MembershipRefused("USER_ID_MISMATCH", "user_id is not the id of the signed-in user")
        return await self._consents.record(who.session.user, consent)

    async def consents(self, bearer: str) -> _Consents:
        """The latest consent of each type. A type without one is absent."""
        return await self._consents.latest_of((await self._admit(bearer)).session.user)

    # --- promotions ----------------------------------------------------------------------------------------

    async def redeem(self, bearer: str, code: str) -> Redemption | RedeemFailure:
        """Redeem a promotion code, or return why not. Rate limited, because codes are short enough to guess."""
        who = await self._admit(bearer, "redeem")
        found = await self.promotions.redeem(who.session.user, code, self._members.keys.now_ms())
        if isinstance(found, Redemption):
            await self._members.usage.refresh_bonus_flag(who.session.user)
        return found

    async def promotion(self, bearer: str) -> PromotionStatus:
        who = await self._admit(bearer)
        return await self._promotion_status(who.session.user, self._members.keys.now_ms())

    async def _promotion_status(self, user: str, now_ms: int) -> PromotionStatus:
        found = await self.promotions.latest_of(user)
        return PromotionStatus(found, found is not None and now_ms >= found.expires_at_ms)

    # --- bonus tokens --------------------------------------------------------------------------------------

    async def bonuses(self, bearer: str) -> Sequence[Bonus]:
        return await self._members.ledger.bonuses((await self._admit(bearer)).session.user)

    async def sync_bonuses(self, bearer: str, used: Mapping[str, int]) -> Mapping[str, int]:
        """Store how much of each bonus an application reports as used. The number never decreases."""
        user = (await self._admit(bearer, "bonus_sync")).session.user
        synced = await self._members.ledger.sync_bonuses(user, used)
        if synced:
            await self._members.usage.refresh_bonus_flag(user)
        return synced


async def _attempt(name: str, read: Awaitable[_Part], errors: dict[str, StoreError]) -> _Part | None:
    """The result of a read; None if the database failed, with its error in `errors`."""
    try:
        return await read
    except StoreError as error:
        errors[name] = error
        return None
