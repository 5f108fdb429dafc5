"""One device per user: a new sign-in ends the previous session, also under concurrent sign-ins."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final
from uuid import UUID

from keystead.errors import Contended, Unreadable, WrongKind
from keystead.kits.membership.keys import MembershipKeys, session_uuid
from keystead.kits.membership.models import SessionData, UserTokenData
from keystead.kits.membership.service.outcomes import SessionRef
from keystead.kits.membership.service.tables import is_user
from keystead.parts.oauth import Tokens
from keystead.parts.refresh import RefreshTokens
from keystead.parts.sessions.session_token import SECRET_BYTES, new_token, parse_token
from keystead.schema import Steps, attempts, procedure
from keystead.schema.kinds import Seen
from keystead.schema.times import moment

_MAX_TRIES: Final = 16  # of random tokens, before the random source is considered broken


class Devices:
    """The current session of each user: the one that `usertoken:{user}` names, and no other.

    refresh   the refresh tokens that end with a session
    forget    invalidates the cache entries of a user

    `new_secret` is for tests.
    """

    def __init__(
        self,
        keys: MembershipKeys,
        refresh: RefreshTokens[Any],
        forget: Callable[[str], Awaitable[Any]],
        *,
        new_secret: Callable[[], bytes] = lambda: secrets.token_bytes(SECRET_BYTES),
    ) -> None:
        self._new_secret = new_secret
        self._keys = keys
        self._refresh = refresh
        self._forget = forget

    def parse_token(self, token: str) -> SessionRef | None:
        """The session that a session token names; None if it is malformed. No round trip."""
        found = parse_token(token)
        return None if found is None or not is_user(found[1]) else SessionRef(found[1], session_uuid(token))

    async def admit(self, user: str, tokens: Tokens, email: str, name: str) -> tuple[str, SessionRef]:
        """Start a session and end the previous one. Returns the new token and the session it names.

        Race: other sign-ins of the same user. The swap is one write to one key, so sign-ins have an order. Each learns
        from it which session it replaced, and deletes that session's row. Only the last one is named by the user's row;
        the others do not count, even while their rows exist. In a cluster the two rows are in different slots, so the
        session is written first: nobody has its token yet, and the swap makes it current. If the process dies in
        between, an unnamed and unusable row remains until it expires.
        """
        granted: dict[str, Any] = {
            "access_token": tokens.access_token,
            "refresh_token": tokens.refresh_token or "",
            "expires_at": moment(tokens.expires_at_ms),
        }
        now = moment(self._keys.now_ms())
        record = SessionData(**granted, user_id=user, created_at=now)
        for _ in range(_MAX_TRIES):
            token = new_token(self._new_secret(), user)
            session = SessionRef(user, session_uuid(token))
            held = UserTokenData(**granted, email=email, full_name=name, session_tokens=[session.id], updated_at=now)
            replaced = await self._try_swap(session, record, held)
            if replaced is not None:
                for session_id in replaced:
                    await self.drop(session_id)
                return token, session
        raise Contended("every new session token was already in use; is the source of random numbers broken?")

    async def _try_swap(self, session: SessionRef, record: SessionData, held: UserTokenData) -> list[UUID] | None:
        """Make a session current. Returns the sessions it replaced; None if its id is taken and nothing was written."""
        try:
            done = await self._swap(session, record, held)
        except WrongKind:  # an unreadable user row admits no session, so it is overwritten
            await self._keys.session(session.id).set(record)
            await self._keys.user_token(session.user).set(held)
            return []
        if not done:
            return None
        return [] if done.value is None else done.value.value.session_tokens

    @procedure(ordered="a session that its user's row does not name is invalid, and expires")
    def _swap(self, session: SessionRef, record: SessionData, held: UserTokenData) -> Steps[Seen[UserTokenData] | None]:
        row = self._keys.user_token(session.user)
        before = row.see().if_readable()  # an unreadable row named no valid session
        added = self._keys.session(session.id).add(record).otherwise("the session exists already")
        return Steps(added, before, row.set(held)).giving(before)

    async def end(self, session: SessionRef) -> bool:
        """End a session if it is current. A newer one of the same user stays. False if it was not current.

        The user's row is deleted first, guarded by the value that was read. From then on no session is valid, and
        concurrent work (a token renewal, a provider request) finds the row gone and writes nothing.
        """
        return await self._end(session.user, only=session.id)

    async def end_all(self, user: str) -> bool:
        """End the current session of a user, whichever it is. False if there is none."""
        return await self._end(user, only=None)

    async def _end(self, user: str, only: UUID | None) -> bool:
        row = self._keys.user_token(user)
        async for _ in attempts("the row of a user"):
            try:
                seen = await row.see()
            except Unreadable:
                if only is not None:
                    # Whether this session is current is unknown, and anyone can make up a token that names a user. So
                    # only the session's own row is deleted.
                    await self.drop(only)
                    return False
                await row.delete()
                seen = None
            if seen is None:
                # An earlier call may have been interrupted: clean up after it.
                await self._forget(user)
                if only is not None:
                    await self.drop(only)
                return False
            if only is not None and only not in seen.value.session_tokens:
                await self.drop(only)
                return False
            if await row.delete_seen(seen):
                await self._forget(user)
                for session_id in seen.value.session_tokens:
                    await self.drop(session_id)
                return True
        raise AssertionError  # pragma: no cover - the last attempt raises Contended

    async def drop(self, session_id: UUID) -> None:
        """Delete the row of a session that is no longer current, with its caches and refresh tokens."""
        chain = await self._keys.refresh_chain(session_id).get()
        await self._keys.session(session_id).delete()
        if chain is not None:
            await self._refresh.revoke_chain(chain)
