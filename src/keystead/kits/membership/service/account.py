"""What a member who is signed in does beside using tokens: consents, promotions, bonus tokens, and the first sync."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from keystead.errors import StoreError
from keystead.kits.membership.service.consents import Consent, Consents, ConsentType
from keystead.kits.membership.service.ledger_records import Bonus, Status
from keystead.kits.membership.service.outcomes import Entitled, MembershipRefused
from keystead.kits.membership.service.promotions import NotRedeemed, Promotions, Redeemed

if TYPE_CHECKING:
    from keystead.kits.membership.service.members import Members
    from keystead.parts.limit import Limits

WELCOME: Final = "welcome"

_log = logging.getLogger("keystead.membership")

_Consents: TypeAlias = Mapping[ConsentType, Consent]


@dataclass(frozen=True)
class PromotionStatus:
    """The promotion that a member redeemed last, if any, and whether its time is over."""

    promotion: Redeemed | None
    expired: bool


@dataclass(frozen=True)
class Synced:
    """All that an application asks for when it starts. What could not be read is None, and named in `failed`.

    welcome_tokens   what this very sync granted; 0: nothing, it is not the first one
    """

    who: Entitled
    promotion: PromotionStatus | None
    consents: _Consents | None
    bonuses: Sequence[Bonus] | None
    quota: Status | None
    welcome_tokens: int
    failed: tuple[str, ...]


class Account:
    """Made by `Members`. Each verb takes a bearer token of either kind, and raises MembershipRefused without one."""

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
            await self._members.refuse_impatient(self._limits[limit], limit.replace("_", "-"), who.named.user)
        return who

    # --- the first sync ------------------------------------------------------------------------------------

    async def sync(self, bearer: str) -> Synced:
        """All at once, with the bonus that welcomes a member, which is granted once.

        Where a part of it fails, the others are told all the same; the error of the database is raised where all do.
        """
        who = await self._admit(bearer, "sync_init")
        user, now_ms = who.named.user, self._members.keys.now_ms()
        welcome, tokens, failed = 0, self._members.settings.welcome_bonus, []
        if tokens:
            try:
                is_new = await self._members.usage.grant_bonus(user, WELCOME, tokens, WELCOME)
                welcome = tokens if is_new else 0
            except StoreError as error:
                _log.warning("membership: a welcome bonus could not be granted: %s", error.code)
                failed.append("welcome_bonus")
        asked: dict[str, Awaitable[object]] = {
            "promotion": self._promotion_status(user, now_ms),
            "consent": self._consents.latest_of(user),
            "bonus_tokens": self._members.ledger.bonuses(user),
            "quota": self._members.usage.status_of(user, who.plan),
        }
        ends = dict(zip(asked, await asyncio.gather(*asked.values(), return_exceptions=True), strict=True))
        errors = {name: end for name, end in ends.items() if isinstance(end, BaseException)}
        for end in errors.values():
            if not isinstance(end, StoreError) or len(errors) == len(ends):
                raise end
        found = {name: None if name in errors else end for name, end in ends.items()}
        return Synced(
            who,
            found["promotion"],  # type: ignore[arg-type]  # each is what was asked for under its name
            found["consent"],  # type: ignore[arg-type]
            found["bonus_tokens"],  # type: ignore[arg-type]
            found["quota"],  # type: ignore[arg-type]
            welcome,
            (*failed, *errors),
        )

    # --- consents ------------------------------------------------------------------------------------------

    async def record_consent(self, bearer: str, user_id: str, consent: Consent) -> bool:
        """Keep what somebody agreed to. False: they had agreed to this version before.

        `user_id` is the member's own, here or at the provider: an application that mixes up two members is refused.
        """
        who = await self._admit(bearer)
        profile = await self._members.ledger.profile_of(who.named.user, consent.recorded_at_ms)
        if user_id not in (who.named.user, str(profile.id)):
            raise MembershipRefused("USER_ID_MISMATCH", "user_id is not that of whoever is signed in")
        return await self._consents.record(who.named.user, consent)

    async def consents(self, bearer: str) -> _Consents:
        """What somebody agreed to last, of each type that there is."""
        return await self._consents.latest_of((await self._admit(bearer)).named.user)

    # --- promotions ----------------------------------------------------------------------------------------

    async def redeem(self, bearer: str, code: str) -> Redeemed | NotRedeemed:
        """Redeem a promotion code, or say why not. A few tries a minute: a code is short enough to be guessed at."""
        who = await self._admit(bearer, "redeem")
        found = await self.promotions.redeem(who.named.user, code, self._members.keys.now_ms())
        if isinstance(found, Redeemed):
            await self._members.usage.bonuses_changed(who.named.user)
        return found

    async def promotion(self, bearer: str) -> PromotionStatus:
        """The promotion that somebody redeemed last."""
        who = await self._admit(bearer)
        return await self._promotion_status(who.named.user, self._members.keys.now_ms())

    async def _promotion_status(self, user: str, now_ms: int) -> PromotionStatus:
        found = await self.promotions.latest_of(user)
        return PromotionStatus(found, found is not None and now_ms >= found.expires_at_ms)

    # --- bonus tokens --------------------------------------------------------------------------------------

    async def bonuses(self, bearer: str) -> Sequence[Bonus]:
        """All bonuses of somebody, the oldest first."""
        return await self._members.ledger.bonuses((await self._admit(bearer)).named.user)

    async def sync_bonuses(self, bearer: str, used: Mapping[str, int]) -> Mapping[str, int]:
        """Take over what an application says it has used of each bonus: it only grows."""
        user = (await self._admit(bearer, "bonus_sync")).named.user
        synced = await self._members.ledger.sync_bonuses(user, used)
        if synced:
            await self._members.usage.bonuses_changed(user)
        return synced
