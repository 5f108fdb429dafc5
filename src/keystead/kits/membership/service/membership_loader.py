"""Loads memberships from the provider with the users' OAuth tokens, and renews those tokens."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from keystead.errors import StoreError
from keystead.kits.kit import Site
from keystead.kits.membership.keys import MembershipKeys
from keystead.kits.membership.models import CachedMembership, Plan, UserTokenData
from keystead.kits.membership.service.devices import Devices
from keystead.kits.membership.service.outcomes import SessionRef
from keystead.kits.membership.service.patreon import Patreon, TokenRejected
from keystead.kits.membership.service.settings import MembershipSettings
from keystead.parts.oauth import BadAnswer, ProviderUnavailable, Tokens
from keystead.parts.renewal import Fresh, HeldTokens, Over, Renewal
from keystead.schema.times import deadline_ms, moment

_log = logging.getLogger("keystead.membership")
_security = logging.getLogger("keystead.security")


class MembershipLoader:
    """Loads memberships for the cache. `has_bonus_tokens` reads the ledger."""

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
        """The membership as the provider reports it now; None if the user is signed out here or at the provider.

        Race: a logout deletes the user's row before it removes the load marker. So either the row is gone when it is
        read here, or the marker is gone when the result would be cached.
        """
        row = self._keys.user_token(user)
        for _ in range(2):
            before = await row.get()
            fresh = await self._renewal.fresh(row)
            if before is None:
                return None
            if isinstance(fresh, Over):
                if fresh.reason == "refused" and await self._has_signed_in_again(user, before):
                    continue  # with the new tokens
                return None
            if not isinstance(fresh, Fresh):
                raise ProviderUnavailable(
                    self._patreon.provider.name, f"its tokens could not be renewed ({fresh.reason})"
                )
            try:
                membership = await self._patreon.membership(fresh.value.access_token, self._settings.campaign)
            except TokenRejected:
                if await self._has_newer_token(user, fresh.value):
                    continue
                return None
            if fresh.was_renewed:
                await self._copy_tokens(fresh.value)
            if membership.user_id != user:
                raise BadAnswer(self._patreon.provider.name, "its identity endpoint answered about another user")
            loaded_at = moment(self._keys.now_ms())
            has_bonus = await self._has_bonus_if_known(user, membership.plan)
            membership = membership.model_copy(update={"has_bonus_tokens": has_bonus})
            return CachedMembership(membership=membership, cached_at=loaded_at)
        raise ProviderUnavailable(self._patreon.provider.name, "it rejects all of its tokens")

    async def _has_signed_in_again(self, user: str, before: UserTokenData) -> bool:
        """Whether a new sign-in replaced the tokens that the provider refused. If not, end their session."""
        now = await self._keys.user_token(user).get()
        if now is not None and now.session_tokens != before.session_tokens:
            return True
        await self.end_revoked_sessions(user, before)
        return False

    async def _has_newer_token(self, user: str, rejected: UserTokenData) -> bool:
        """Whether another process renewed the token that the provider rejected. If not, end its session."""
        now = await self._keys.user_token(user).get()
        if now is not None and now.access_token != rejected.access_token:
            return True
        await self.end_revoked_sessions(user, rejected)
        return False

    async def _copy_tokens(self, held: UserTokenData) -> None:
        """Copy renewed tokens to the session, as in the document. Never recreates a deleted session."""
        renewed = {
            "access_token": held.access_token,
            "refresh_token": held.refresh_token,
            "expires_at": held.expires_at,
        }
        for session_id in held.session_tokens:
            await self._keys.session(session_id).change(lambda record: record.model_copy(update=renewed))

    async def end_revoked_sessions(self, user: str, held: UserTokenData) -> None:
        """End the session with these tokens: the user has revoked our access at the provider.

        Race: a new sign-in has a different session, which stays.
        """
        _security.info("membership: the provider no longer accepts a user's tokens", extra={"event": "withdrawn"})
        self._site.count("membership", "session", "withdrawn")
        for session_id in held.session_tokens:
            await self._devices.end(SessionRef(user, session_id))

    async def _has_bonus_if_known(self, user: str, plan: Plan) -> bool:
        """Whether the user has bonus tokens; False while the database is down, so that sessions keep working.

        It is only for the cache: routes that report bonus tokens read the ledger.
        """
        try:
            return await self._has_bonus_tokens(user, plan)
        except StoreError as error:
            _log.warning("membership: bonus tokens of a user are unknown: %s", error.code)
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
