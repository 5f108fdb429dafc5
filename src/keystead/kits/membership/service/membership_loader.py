"""Asks the provider what a user pays for, with the tokens that the user granted, and renews those tokens."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from keystead.errors import StoreError
from keystead.kits.kit import Site
from keystead.kits.membership.keys import MembershipKeys
from keystead.kits.membership.models import CachedMembership, Plan, UserTokenData
from keystead.kits.membership.service.devices import Devices
from keystead.kits.membership.service.outcomes import Named
from keystead.kits.membership.service.patreon import Patreon, TokenRejected
from keystead.kits.membership.service.settings import MembershipSettings
from keystead.parts.oauth import BadAnswer, ProviderUnavailable, Tokens
from keystead.parts.renewal import Fresh, HeldTokens, Over, Renewal
from keystead.schema.times import deadline_ms, moment

_log = logging.getLogger("keystead.membership")
_security = logging.getLogger("keystead.security")


class MembershipLoader:
    """Loads memberships for the cache. `has_bonus_tokens` asks the ledger."""

    def __init__(
        self,
        keys: MembershipKeys,
        settings: MembershipSettings,
        site: Site,
        patreon: Patreon,
        devices: Devices,
        has_bonus_tokens: Callable[[str, Plan], Awaitable[bool]],
    ) -> None:
        self._keys = keys
        self._settings = settings
        self._site = site
        self._patreon = patreon
        self._devices = devices
        self._has_bonus_tokens = has_bonus_tokens
        self._renewal: Renewal[UserTokenData] = Renewal(
            patreon, keys.renewing, held=_held_tokens, renewed=self._with_new_tokens
        )

    async def finish(self) -> None:
        """Wait until the tokens that the provider has granted are saved."""
        await self._renewal.finish()

    async def load(self, user: str) -> CachedMembership | None:
        """What the provider says now; None: the user is not signed in any more, or the provider says that they are not.

        Who may interleave: a logout. It deletes the row of the user before it drops the mark of this load. So either
        the row is gone when it is read here, or the mark is when the answer is to be written.
        """
        row = self._keys.user_token(user)
        for _ in range(2):
            before = await row.get()
            fresh = await self._renewal.fresh(row)
            if before is None:
                return None
            if isinstance(fresh, Over):
                if fresh.reason == "refused" and await self._has_signed_in_again(user, before):
                    continue  # with tokens that the provider has not refused
                return None
            if not isinstance(fresh, Fresh):
                raise ProviderUnavailable(
                    self._patreon.provider.name, f"its tokens could not be renewed ({fresh.reason})"
                )
            try:
                told = await self._patreon.membership(fresh.value.access_token, self._settings.campaign)
            except TokenRejected:
                if await self._has_newer_token(user, fresh.value):
                    continue
                return None
            if fresh.was_renewed:
                await self._copy_tokens(fresh.value)
            if told.user_id != user:
                raise BadAnswer(self._patreon.provider.name, "its identity endpoint speaks of somebody else")
            asked_at = moment(self._keys.now_ms())
            told = told.model_copy(update={"has_bonus_tokens": await self._has_bonus_if_known(user, told.plan)})
            return CachedMembership(membership=told, cached_at=asked_at)
        raise ProviderUnavailable(self._patreon.provider.name, "it takes none of its tokens")

    async def _has_signed_in_again(self, user: str, before: UserTokenData) -> bool:
        """Whether a new sign-in replaced the tokens that the provider refused. If not, their session ends."""
        again = await self._keys.user_token(user).get()
        if again is not None and again.session_tokens != before.session_tokens:
            return True
        await self.end_withdrawn(user, before)
        return False

    async def _has_newer_token(self, user: str, rejected: UserTokenData) -> bool:
        """Whether another process renewed the token that the provider rejected. If not, its session ends."""
        again = await self._keys.user_token(user).get()
        if again is not None and again.access_token != rejected.access_token:
            return True
        await self.end_withdrawn(user, rejected)
        return False

    async def _copy_tokens(self, held: UserTokenData) -> None:
        """The session shows the tokens that its user has now, as in the document. It is changed, and never revived."""
        renewed = {
            "access_token": held.access_token,
            "refresh_token": held.refresh_token,
            "expires_at": held.expires_at,
        }
        for session in held.session_tokens:
            await self._keys.session(session).change(lambda record: record.model_copy(update=renewed))

    async def end_withdrawn(self, user: str, held: UserTokenData) -> None:
        """The user took back at the provider what they had allowed us: the session ends that had these tokens.

        Who may interleave: a new sign-in. Its session is another one, and stays.
        """
        _security.info("membership: the provider does not take a user's tokens any more", extra={"event": "withdrawn"})
        self._site.count("membership", "session", "withdrawn")
        for session in held.session_tokens:
            await self._devices.end(Named(user, session))

    async def _has_bonus_if_known(self, user: str, plan: Plan) -> bool:
        """Whether somebody has bonus tokens, for what is remembered of their membership. Sessions go on while the
        database is away; the routes that tell of bonus tokens ask it themselves."""
        try:
            return await self._has_bonus_tokens(user, plan)
        except StoreError as error:
            _log.warning("membership: whether a user has bonus tokens is not known: %s", error.code)
            return False

    def _with_new_tokens(self, held: UserTokenData, tokens: Tokens) -> UserTokenData:
        return held.model_copy(
            update={
                "access_token": tokens.access_token,
                "refresh_token": tokens.refresh_token or held.refresh_token,
                "expires_at": moment(tokens.expires_at_ms),
                "updated_at": moment(self._keys.now_ms()),
            }
        )


def _held_tokens(row: UserTokenData) -> HeldTokens:
    return HeldTokens(row.access_token, row.refresh_token or None, deadline_ms(row.expires_at))
