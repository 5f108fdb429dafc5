"""Tokens for programs: an access token for an hour, and a refresh token for the next, of somebody's session."""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from keystead.errors import BadDeclaration, BadKey
from keystead.kits.login.keys import LoginKeys
from keystead.kits.login.models import RefreshToken, Session
from keystead.kits.login.service.outcomes import LoginRefused, TokenPair
from keystead.parts.audit import Audit
from keystead.parts.digest import digest
from keystead.parts.jwt import Access, AccessTokens, SigningKeys
from keystead.parts.refresh import RefreshEvent, RefreshTokens, RotationRefused
from keystead.parts.sessions import Live

_security = logging.getLogger("keystead.security")

# Of these tokens alone: the keys that sign are those of other kits, too, and what they take says whom it is for.
AUDIENCE: Final = "keystead-login"
# A token that is denied for one of these is ours: it names our key, this audience, and is signed.
_OURS: Final = frozenset({"claims", "early", "expired"})
_FORGED: Final = frozenset({"algorithm", "type", "signature"})
_SUB_MAX: Final = 255  # characters


class Named(NamedTuple):
    """What a token names: a user, a session of theirs, and a chain of refresh tokens, by ids that open nothing."""

    user: str
    session: str
    chain: str


class ProgramTokens:
    """Tokens for programs of somebody who is signed in.

    They count as long as the session does that they came of: whoever signs out ends them. A session may have several
    pairs, one for each program.
    """

    def __init__(self, keys: LoginKeys, issuer: str, lifetime: str, audit: Audit) -> None:
        if keys.ring is None:
            raise BadDeclaration("the login kit seals tokens, so it needs keys: LoginKeys(store, seal=…)")
        self._keys = keys
        self._audit = audit
        self._access = AccessTokens(
            SigningKeys.from_ring(keys.ring), issuer=issuer, audience=AUDIENCE, lifetime=lifetime, now_ms=keys.now_ms
        )
        self._refresh: RefreshTokens[RefreshToken] = RefreshTokens(
            keys.refresh, alive=lambda record: keys.user_sessions(record.uid).has(record.sid), tell=self._tell
        )

    def named(self, token: str) -> Named | None:
        """What an access token names; None: it is none of this kit's. It asks nobody.

        Raises LoginRefused for one of this kit's that does not count.
        """
        access = self._access.check(token)
        if isinstance(access, Access):
            user = access.claims.get("uid", access.sub)
            session, chain = access.claims.get("sid"), access.claims.get("chain")
            if isinstance(user, str) and isinstance(session, str) and isinstance(chain, str):
                return Named(user, session, chain)
            raise token_refused()
        if access.reason in _FORGED:
            event = {"event": "refused-token", "reason": access.reason}
            _security.warning("login: a bearer token was refused: %s", access.reason, extra=event)
        if access.reason in _OURS:
            raise token_refused()
        return None

    def is_own(self, token: str) -> bool:
        """Whether an access token is of this kit, whether it counts or not."""
        try:
            return self.named(token) is not None
        except LoginRefused:
            return True

    async def counts(self, named: Named) -> bool:
        """Whether the chain of refresh tokens has not ended that an access token belongs to. One round trip.

        It ends when its program signs out, and when one of its refresh tokens is used again: so a stolen one is of no
        more use, and neither is what came of it.
        """
        try:
            found = await self._keys.refresh(named.chain).get().if_readable()
        except BadKey:
            return False
        return found is not None and not found.is_used and (found.uid, found.sid) == (named.user, named.session)

    async def exchange(self, live: Live[Session]) -> TokenPair:
        """A first pair for a session that is alive."""
        begun = await self._refresh.begin(RefreshToken(uid=live.user, sid=live.id, audience=AUDIENCE))
        return self._pair(Named(live.user, live.id, begun.id), begun.token)

    async def find(self, refresh_token: str) -> Named | None:
        """What a refresh token may be of; None: it is none of this kit's. Whether it counts, `next_pair` says."""
        chain = digest(refresh_token.partition(".")[0])
        found = await self._keys.refresh(chain).get().if_readable()
        return None if found is None else Named(found.uid, found.sid, chain)

    async def next_pair(self, refresh_token: str) -> TokenPair:
        """The next pair. The same token may be sent again for 30 s, and gets the same successor; later than that it
        ends the chain. Raises LoginRefused."""
        found = await self._refresh.rotate(refresh_token)
        if isinstance(found, RotationRefused):
            raise refresh_refused()
        return self._pair(Named(found.record.uid, found.record.sid, found.id), found.token)

    async def end(self, named: Named) -> bool:
        """End a chain: its program is signed out, and the session goes on. False: it had ended."""
        return await self._refresh.revoke_chain(named.chain)

    async def _tell(self, event: RefreshEvent) -> None:
        told = {"event": event.event, "why": event.why, "user": event.user, "chain": event.chain}
        _security.warning("login: a refresh token was used again, so its chain has ended", extra=told)
        await self._audit.note(event.event, who=f"login:{event.user}", what=event.chain, why=event.why or "")

    def _pair(self, named: Named, refresh_token: str) -> TokenPair:
        # A provider's id alone may be as long as a `sub`, and the name of the provider stands before it.
        is_short = len(named.user) <= _SUB_MAX
        subject, more = (named.user, {}) if is_short else (digest(named.user), {"uid": named.user})
        new = self._access.issue(subject, sid=named.session, chain=named.chain, **more)
        return TokenPair(new.token, refresh_token, new.expires_in_s)


def token_refused() -> LoginRefused:
    return LoginRefused("INVALID_TOKEN", "the token is not valid, or no longer; refresh it, or sign in again")


def refresh_refused() -> LoginRefused:
    return LoginRefused("INVALID_REFRESH_TOKEN", "this refresh token does not count; sign in again")
