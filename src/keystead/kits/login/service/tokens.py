"""Tokens for programs: short-lived access tokens and rotating refresh tokens, tied to a user's session."""

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

# Other kits sign with the same keys, so the audience separates these tokens from theirs.
AUDIENCE: Final = "keystead-login"
# A token denied for one of these reasons is ours: it has our key, our audience and a valid signature.
_OURS: Final = frozenset({"claims", "early", "expired"})
_FORGED: Final = frozenset({"algorithm", "type", "signature"})
_SUB_MAX: Final = 255  # characters


class TokenOwner(NamedTuple):
    """The user, session and refresh token chain of a token, by ids that are not secrets."""

    user: str
    session: str
    chain: str


class ProgramTokens:
    """Tokens for the programs of a signed-in user.

    They are valid as long as their session: signing out ends them. A session may have several pairs, one per program.
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
            keys.refresh, alive=lambda record: keys.user_sessions(record.uid).has(record.sid), tell=self._report_reuse
        )

    def verify(self, token: str) -> TokenOwner | None:
        """The owner of an access token; None if this kit did not issue it. No round trip.

        Raises LoginRefused if this kit issued it and it is not valid.
        """
        access = self._access.check(token)
        if isinstance(access, Access):
            user = access.claims.get("uid", access.sub)
            session, chain = access.claims.get("sid"), access.claims.get("chain")
            if isinstance(user, str) and isinstance(session, str) and isinstance(chain, str):
                return TokenOwner(user, session, chain)
            raise token_refused()
        if access.reason in _FORGED:
            event = {"event": "refused-token", "reason": access.reason}
            _security.warning("login: a bearer token was refused: %s", access.reason, extra=event)
        if access.reason in _OURS:
            raise token_refused()
        return None

    def is_own(self, token: str) -> bool:
        """Whether this kit issued an access token, valid or not."""
        try:
            return self.verify(token) is not None
        except LoginRefused:
            return True

    async def is_chain_active(self, owner: TokenOwner) -> bool:
        """Whether the refresh token chain of an access token is still active. One round trip.

        A chain ends when its program signs out or one of its refresh tokens is reused, which indicates theft.
        """
        try:
            found = await self._keys.refresh(owner.chain).get().if_readable()
        except BadKey:
            return False
        return found is not None and not found.is_used and (found.uid, found.sid) == (owner.user, owner.session)

    async def exchange(self, live: Live[Session]) -> TokenPair:
        """The first token pair for a live session."""
        begun = await self._refresh.begin(RefreshToken(uid=live.user, sid=live.id, audience=AUDIENCE))
        return self._pair(TokenOwner(live.user, live.id, begun.id), begun.token)

    async def find(self, refresh_token: str) -> TokenOwner | None:
        """The owner that a refresh token claims; None if its chain is unknown. Only `next_pair` verifies the token."""
        chain = digest(refresh_token.partition(".")[0])
        found = await self._keys.refresh(chain).get().if_readable()
        return None if found is None else TokenOwner(found.uid, found.sid, chain)

    async def next_pair(self, refresh_token: str) -> TokenPair:
        """The next token pair. Sending the same token again within 30 s yields the same successor; later, it ends the
        chain. Raises LoginRefused."""
        found = await self._refresh.rotate(refresh_token)
        if isinstance(found, RotationRefused):
            raise refresh_refused()
        return self._pair(TokenOwner(found.record.uid, found.record.sid, found.id), found.token)

    async def end(self, owner: TokenOwner) -> bool:
        """End a chain: its program is signed out, and the session continues. False if it had already ended."""
        return await self._refresh.revoke_chain(owner.chain)

    async def _report_reuse(self, event: RefreshEvent) -> None:
        fields = {"event": event.event, "why": event.why, "user": event.user, "chain": event.chain}
        _security.warning("login: a refresh token was reused, so its chain has ended", extra=fields)
        await self._audit.note(event.event, who=f"login:{event.user}", what=event.chain, why=event.why or "")

    def _pair(self, owner: TokenOwner, refresh_token: str) -> TokenPair:
        # A provider's id alone may be as long as a `sub`, and the provider's name is prepended to it.
        is_short = len(owner.user) <= _SUB_MAX
        subject, more = (owner.user, {}) if is_short else (digest(owner.user), {"uid": owner.user})
        new = self._access.issue(subject, sid=owner.session, chain=owner.chain, **more)
        return TokenPair(new.token, refresh_token, new.expires_in_s)


def token_refused() -> LoginRefused:
    return LoginRefused("INVALID_TOKEN", "the token is invalid or has expired; refresh it or sign in again")


def refresh_refused() -> LoginRefused:
    return LoginRefused("INVALID_REFRESH_TOKEN", "this refresh token is not valid; sign in again")
