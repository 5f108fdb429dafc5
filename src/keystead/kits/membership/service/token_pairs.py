"""Token pairs: an access token and a refresh token for a session, with refresh token rotation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from keystead.kits.membership.models import ParsedMembership, Plan, RefreshTokenData
from keystead.kits.membership.service.ledger_records import ToldPlan
from keystead.kits.membership.service.outcomes import MembershipRefused, Named, TokenPair, session_invalid
from keystead.parts.refresh import NewChain, Retried, Rotated, RotationRefused
from keystead.schema.times import deadline_ms

if TYPE_CHECKING:
    from keystead.kits.membership.service.members import Members

_APP_SESSION_MOST: Final = 128


class _Profile(NamedTuple):
    """Whom an access token is for."""

    subject: str
    has_bonus_tokens: bool


class TokenPairs:
    """Made by `Members`."""

    def __init__(self, members: Members) -> None:
        self._members = members

    async def issue(self, token: str, app_session: str | None = None) -> TokenPair:
        """An access token and a refresh token for a session. Those that it had before end: a session has one pair."""
        member = await self._members.validate(token)
        named, profile = member.named, await self._profile(member.membership, member.as_of_ms)
        begun = await self._members.refresh.begin(
            RefreshTokenData(user_id=named.user, session_token=named.session, audience=self._members.settings.audience)
        )
        row = self._members.keys.refresh_chain(named.session)
        before, _ = (await self._members.keys.atomically(row.get(), row.set(begun.id))).values
        if before is not None:
            await self._members.refresh.revoke_chain(before)
        # A logout that came between may not have seen the new chain, or only the row that named it: it leads nowhere,
        # and is not left behind.
        counts = await self._members.is_current(named)
        if not counts:
            await self._members.refresh.revoke_chain(begun.id)
            if counts is not None:
                await self._members.devices.drop(named.session)
            raise session_invalid()
        return self._build_pair(named, member.membership.plan, profile, begun, app_session, is_stale=member.is_stale)

    async def refresh(self, refresh_token: str, app_session: str | None = None) -> TokenPair:
        """The next pair for a refresh token. It may be sent again for as long as the grace, and gets the same.

        All that can fail is asked before the token is used up: who is refused because the provider or the database is
        away comes again with the same token, whenever that is.
        """
        record = await self._members.refresh.examine(refresh_token)
        if isinstance(record, RotationRefused):
            raise _bad_refresh_token()
        named = Named(record.user_id, record.session_token)
        counts = await self._members.is_current(named)
        if not counts:
            if counts is not None:
                await self._members.devices.drop(named.session)
                await self._members.refresh.revoke(refresh_token)
            raise _session_expired()
        known = await self._members.membership_of(named)
        membership, as_of_ms = known.membership, deadline_ms(known.cached_at)
        profile = await self._profile(membership, as_of_ms)
        found = await self._members.refresh.rotate(refresh_token)
        if isinstance(found, RotationRefused):
            raise _session_expired() if found.reason == "session" else _bad_refresh_token()
        return self._build_pair(
            named, membership.plan, profile, found, app_session, is_stale=self._members.is_stale(as_of_ms)
        )

    async def _profile(self, membership: ParsedMembership, as_of_ms: int) -> _Profile:
        """Whom an access token is for. The database learns here what the provider said of them."""
        user, plan = membership.user_id, ToldPlan(membership.plan, as_of_ms)
        email, name = membership.email or None, membership.full_name or None
        found = await self._members.ledger.profile_of(
            user, self._members.keys.now_ms(), email=email, full_name=name, plan=plan
        )
        return _Profile(str(found.id), await self._members.has_bonus_tokens(user, membership.plan))

    def _build_pair(
        self,
        named: Named,
        plan: Plan,
        profile: _Profile,
        refresh: NewChain[RefreshTokenData] | Rotated[RefreshTokenData] | Retried[RefreshTokenData],
        app_session: str | None,
        *,
        is_stale: bool,
    ) -> TokenPair:
        claims: dict[str, Any] = {
            "plan": plan,
            "hasBonusTokens": profile.has_bonus_tokens,
            "ver": 1,
            "pid": named.user,
            "ses": str(named.session),
            "chn": refresh.id,
        }
        if is_stale:
            claims["planIsStale"] = True
        if app_session:
            claims["sid"] = app_session[:_APP_SESSION_MOST]
        new = self._members.access.issue(profile.subject, **claims)
        return TokenPair(new.token, refresh.token, new.expires_in_s)


def _session_expired() -> MembershipRefused:
    return MembershipRefused("SESSION_EXPIRED", "the session of this token has ended; sign in again")


def _bad_refresh_token() -> MembershipRefused:
    return MembershipRefused("INVALID_REFRESH_TOKEN", "this refresh token does not count; sign in again")
