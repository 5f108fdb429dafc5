"""Token pairs: an access token and a refresh token for a session, with refresh token rotation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from keystead.kits.membership.models import ParsedMembership, Plan, RefreshTokenData
from keystead.kits.membership.service.ledger_records import PlanAsOf
from keystead.kits.membership.service.outcomes import MembershipRefused, SessionRef, TokenPair, session_invalid
from keystead.parts.refresh import NewChain, Retried, Rotated, RotationRefused
from keystead.schema.times import deadline_ms

if TYPE_CHECKING:
    from keystead.kits.membership.service.members import Members

_APP_SESSION_MOST: Final = 128


class _Profile(NamedTuple):
    """The subject of an access token."""

    subject: str
    has_bonus_tokens: bool


class TokenPairs:
    """Created by `Members`."""

    def __init__(self, members: Members) -> None:
        self._members = members

    async def issue(self, token: str, app_session: str | None = None) -> TokenPair:
        """Issue an access token and a refresh token for a session. Revokes the previous pair of the session."""
        member = await self._members.validate(token)
        session, profile = member.session, await self._save_profile(member.membership, member.as_of_ms)
        chain = await self._members.refresh.begin(
            RefreshTokenData(user_id=session.user, session_token=session.id, audience=self._members.settings.audience)
        )
        row = self._members.keys.refresh_chain(session.id)
        previous, _ = (await self._members.keys.atomically(row.get(), row.set(chain.id))).values
        if previous is not None:
            await self._members.refresh.revoke_chain(previous)
        # Race: a concurrent logout may have missed the new chain, or the row that names it. So both are cleaned up.
        is_current = await self._members.is_current(session)
        if not is_current:
            await self._members.refresh.revoke_chain(chain.id)
            if is_current is not None:
                await self._members.devices.drop(session.id)
            raise session_invalid()
        return self._build_pair(session, member.membership.plan, profile, chain, app_session, is_stale=member.is_stale)

    async def refresh(self, refresh_token: str, app_session: str | None = None) -> TokenPair:
        """Rotate a refresh token: the next pair. Within the grace period a retry gets the same refresh token.

        Everything that can fail is done before the rotation. So a request that is refused because the provider or the
        database is down does not use up the token.
        """
        record = await self._members.refresh.examine(refresh_token)
        if isinstance(record, RotationRefused):
            raise _bad_refresh_token()
        session = SessionRef(record.user_id, record.session_token)
        is_current = await self._members.is_current(session)
        if not is_current:
            if is_current is not None:
                await self._members.devices.drop(session.id)
                await self._members.refresh.revoke(refresh_token)
            raise _session_expired()
        cached = await self._members.require_membership(session.user)
        membership, as_of_ms = cached.membership, deadline_ms(cached.cached_at)
        profile = await self._save_profile(membership, as_of_ms)
        rotated = await self._members.refresh.rotate(refresh_token)
        if isinstance(rotated, RotationRefused):
            raise _session_expired() if rotated.reason == "session" else _bad_refresh_token()
        return self._build_pair(
            session, membership.plan, profile, rotated, app_session, is_stale=self._members.is_stale(as_of_ms)
        )

    async def _save_profile(self, membership: ParsedMembership, as_of_ms: int) -> _Profile:
        """Store what the provider reported of a user, and return the subject of their access tokens."""
        user, plan = membership.user_id, PlanAsOf(membership.plan, as_of_ms)
        email, name = membership.email or None, membership.full_name or None
        found = await self._members.ledger.profile_of(
            user, self._members.keys.now_ms(), email=email, full_name=name, plan=plan
        )
        return _Profile(str(found.id), await self._members.has_bonus_tokens(user, membership.plan))

    def _build_pair(
        self,
        session: SessionRef,
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
            "pid": session.user,
            "ses": str(session.id),
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
    return MembershipRefused("INVALID_REFRESH_TOKEN", "this refresh token is not valid; sign in again")
