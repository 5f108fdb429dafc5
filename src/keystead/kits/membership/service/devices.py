"""One device a user: a new sign-in ends the one before it, whatever happens in parallel."""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable
from typing import Any, Final
from uuid import UUID

from keystead.errors import Contended, Unreadable, WrongKind
from keystead.kits.membership.keys import MembershipKeys, session_uuid
from keystead.kits.membership.models import SessionData, UserTokenData
from keystead.kits.membership.service.outcomes import Named
from keystead.kits.membership.service.tables import is_user
from keystead.parts.oauth import Tokens
from keystead.parts.refresh import RefreshTokens
from keystead.parts.sessions.token import SECRET_BYTES, named_by, new_token
from keystead.schema.deletion import delete_if
from keystead.schema.kinds import Seen
from keystead.schema.times import moment
from keystead.stores import holds

_ATTEMPTS: Final = 16


class Devices:
    """Which session of a user counts: the one that `usertoken:{user}` names, and no other.

    refresh   the refresh tokens that end with a session
    forget    drops what is remembered of a user's membership

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
        self._one_step = keys.session.store.guarantees.atomic == "any keys"

    def named(self, token: str) -> Named | None:
        """What a session token names; None: this was never one. It asks nobody."""
        found = named_by(token)
        return None if found is None or not is_user(found[1]) else Named(found[1], session_uuid(token))

    async def admit(self, user: str, tokens: Tokens, email: str, name: str) -> tuple[str, Named]:
        """A new session, and the end of the one before. The new token, and what it names.

        Who may interleave: other sign-ins of the same user. The swap is one write to one key, so they have an order;
        each learns from it which session it put an end to, and deletes that one's row. The last one is named, and none
        of the others is, also where its row is still there. In a cluster the rows of the session and of the user are in
        two slots: then the session is written first, whose token nobody has yet, and the swap makes it count. Where the
        process dies in between, what remains is a row that nothing names and nobody can use.
        """
        refresh_token, expires = tokens.refresh_token or "", moment(tokens.expires_at_ms)
        now = moment(self._keys.now_ms())
        record = SessionData(
            accessToken=tokens.access_token, refreshToken=refresh_token, expiresAt=expires, userId=user, createdAt=now
        )
        held = UserTokenData(
            accessToken=tokens.access_token,
            refreshToken=refresh_token,
            expiresAt=expires,
            email=email,
            fullName=name,
            sessionTokens=[],
            updatedAt=now,
        )
        for _ in range(_ATTEMPTS):
            token = new_token(self._new_secret(), user)
            named = Named(user, session_uuid(token))
            ended = await self._swapped(named, record, held.model_copy(update={"sessionTokens": [named.session]}))
            if ended is not None:
                for before in ended:
                    await self.drop(before)
                return token, named
        raise Contended("there is a session for each token that was made; is the source of random numbers broken?")

    async def _swapped(self, named: Named, record: SessionData, held: UserTokenData) -> list[UUID] | None:
        """The sessions that were named until now. None: there is such a session already, and nothing was written."""
        session, row = self._keys.session(named.session), self._keys.user_token(named.user)
        before: Seen[UserTokenData] | None
        try:
            if self._one_step:
                done = await self._keys.atomically(session.add(record).required(), row.see(), row.set(held))
                if not done:
                    return None
                _, before, _ = done.values
            else:
                if not await session.add(record):
                    return None
                before, _ = (await self._keys.atomically(row.see(), row.set(held))).values
        except WrongKind:  # nothing has taken effect, and nobody can be let in by what is there
            return [] if await self._written(session, row, record, held) else None
        except Unreadable:  # it has taken effect: what cannot be read named nobody who could be let in
            return []
        return [] if before is None else before.value.sessionTokens

    async def _written(self, session: Any, row: Any, record: SessionData, held: UserTokenData) -> bool:
        """Write both without a look at what the row held. False: there is such a session already."""
        if self._one_step:
            return bool(await self._keys.atomically(session.add(record).required(), row.set(held)))
        if await session.add(record) or await session.exists():  # it was added before the row was looked at
            await row.set(held)
            return True
        return False

    async def end(self, named: Named) -> bool:
        """End a session, if it is still the one that counts. A newer one of the same user stays. False: it is not.

        The row of the user goes first, in a step that is guarded by what it holds: from then on nothing counts, and
        whatever is under way (a renewal, a question to the provider) finds it gone and writes nothing.
        """
        return await self._ended(named.user, only=named.session)

    async def end_all(self, user: str) -> bool:
        """End whichever session of a user counts now. False: there is none."""
        return await self._ended(user, only=None)

    async def _ended(self, user: str, only: UUID | None) -> bool:
        row = self._keys.user_token(user)
        for _ in range(_ATTEMPTS):
            try:
                seen = await row.see()
            except Unreadable:
                if only is not None:
                    # Whether this session is the one that counts cannot be known, and anybody can make up a token of a
                    # user: so its own row goes, and that of the user stays.
                    await self.drop(only)
                    return False
                await row.delete()
                seen = None
            if seen is None:
                # Perhaps an end that did not come to its own end, so that something of it is still there.
                await self._forget(user)
                if only is not None:
                    await self.drop(only)
                return False
            if only is not None and only not in seen.value.sessionTokens:
                await self.drop(only)
                return False
            guard = (row.bound.store, holds(row.key, seen.stored))
            if await delete_if(row.bound, row.key, "its session has ended", [guard]):
                await self._forget(user)
                for session in seen.value.sessionTokens:
                    await self.drop(session)
                return True
        raise Contended("the row of a user was changed by others again and again; try again")

    async def drop(self, session: UUID) -> None:
        """Delete the row of a session that is not named any more, with all that belongs to it."""
        chain = await self._keys.refresh_chain(session).get()
        await self._keys.session(session).delete()
        if chain is not None:
            await self._refresh.revoke_chain(chain)
