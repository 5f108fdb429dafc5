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
from keystead.parts.sessions.session_token import SECRET_BYTES, new_token, parse_token
from keystead.schema import Steps, attempts, procedure
from keystead.schema.kinds import Seen
from keystead.schema.times import moment

_SECRETS: Final = 16  # that may be taken before the source of random numbers is called broken


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

    def named(self, token: str) -> Named | None:
        """What a session token names; None: this was never one. It asks nobody."""
        found = parse_token(token)
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
            access_token=tokens.access_token,
            refresh_token=refresh_token,
            expires_at=expires,
            user_id=user,
            created_at=now,
        )
        held = UserTokenData(
            access_token=tokens.access_token,
            refresh_token=refresh_token,
            expires_at=expires,
            email=email,
            full_name=name,
            session_tokens=[],
            updated_at=now,
        )
        for _ in range(_SECRETS):
            token = new_token(self._new_secret(), user)
            named = Named(user, session_uuid(token))
            ended = await self._swapped(named, record, held.model_copy(update={"session_tokens": [named.session]}))
            if ended is not None:
                for before in ended:
                    await self.drop(before)
                return token, named
        raise Contended("there is a session for each token that was made; is the source of random numbers broken?")

    async def _swapped(self, named: Named, record: SessionData, held: UserTokenData) -> list[UUID] | None:
        """The sessions that were named until now. None: there is such a session already, and nothing was written."""
        try:
            done = await self._swap(named, record, held)
        except WrongKind:  # the list cannot be read, so it lets no session in
            await self._keys.session(named.session).set(record)
            await self._keys.user_token(named.user).set(held)
            return []
        if not done:
            return None
        return [] if done.value is None else done.value.value.session_tokens

    @procedure(ordered="a session that its user's row does not name counts for nothing, and expires")
    def _swap(self, named: Named, record: SessionData, held: UserTokenData) -> Steps[Seen[UserTokenData] | None]:
        row = self._keys.user_token(named.user)
        before = row.see().if_readable()  # what cannot be read named nobody who could be let in
        added = self._keys.session(named.session).add(record).otherwise("there is such a session")
        return Steps(added, before, row.set(held)).giving(before)

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
        async for _ in attempts("the row of a user"):
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
            if only is not None and only not in seen.value.session_tokens:
                await self.drop(only)
                return False
            if await row.delete_seen(seen):
                await self._forget(user)
                for session in seen.value.session_tokens:
                    await self.drop(session)
                return True
        raise AssertionError  # pragma: no cover - the last attempt raises Contended

    async def drop(self, session: UUID) -> None:
        """Delete the row of a session that is not named any more, with all that belongs to it."""
        chain = await self._keys.refresh_chain(session).get()
        await self._keys.session(session).delete()
        if chain is not None:
            await self._refresh.revoke_chain(chain)
