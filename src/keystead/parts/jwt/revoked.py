"""Access tokens that were revoked before their time: one by one, or all of a user."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from keystead.errors import BadDeclaration, BadKey, BadValue, Contended, DoesNotFit, StoreError, Unreadable
from keystead.parts.jwt.access import Access, Denied
from keystead.schema import Bound
from keystead.schema.fit import CACHE
from keystead.schema.kinds import Value, ValueKey
from keystead.schema.lifetime import After, Until, in_words

_log = logging.getLogger("keystead.jwt")

_ATTEMPTS: Final = 16

WhenDown: TypeAlias = Literal["deny", "allow"]


@dataclass(frozen=True)
class UncheckedToken:
    """A token was let pass although nobody could say whether it was revoked: the event of `when_down="allow"`."""

    sub: str
    jti: str
    error: str
    event: Literal["token-unchecked"] = "token-unchecked"


class RevokedTokens:
    """Which tokens count no more.

        revoked = Value("jwt:revoked:{jti}", int, lifetime=until("expires_at"), doc="a token that was revoked")
        since = Value("jwt:since:{sub}", int, lifetime=after("2h"), doc="from when on tokens of a user count")

        RevokedTokens(keys.revoked, keys.since)

    tokens      one key for each token that was revoked, until nobody would take the token any more
    since       for each user the moment, in ms, before which no token counts. It lives longer than any token
    when_down   what is told of a token while the store is away: `deny`, or `allow`, of which `tell` hears each time
    may_forget  that a restart of the store may make revoked tokens good again. Without it, a store that keeps nothing
                when it stops is refused

    Raises BadDeclaration for families of another shape and for the role cache, DoesNotFit for a store that may forget.
    """

    def __init__(
        self,
        tokens: Bound[ValueKey[int]],
        since: Bound[ValueKey[int]],
        *,
        when_down: WhenDown = "deny",
        tell: Callable[[UncheckedToken], Awaitable[Any]] | None = None,
        may_forget: bool = False,
    ) -> None:
        if when_down not in ("deny", "allow"):
            raise BadDeclaration(f"when_down is deny or allow, not {when_down!r}")
        if when_down == "allow" and tell is None:
            raise BadDeclaration('when_down="allow" lets tokens pass unchecked; pass tell=… to hear of each')
        self._since_ms = _checked(tokens, since, may_forget=may_forget)
        self._tokens = tokens
        self._since = since
        self._when_down = when_down
        self._tell = tell

    def check_lifetimes(self, token_ms: int) -> None:
        """Raises BadDeclaration where a token, with its leeway, could outlive what revoked it."""
        if self._since_ms < token_ms:
            raise BadDeclaration(
                f"{self._since.family.place}: it lives {in_words(self._since_ms)}, and tokens are taken for "
                f"{in_words(token_ms)}: a token would outlive its end; give it a longer lifetime"
            )
        longest_ms = self._tokens.family.lifetime.longest_ms
        if longest_ms is not None and longest_ms < token_ms:
            raise BadDeclaration(
                f"{self._tokens.family.place}: it lives {in_words(longest_ms)} at most, and tokens are taken for "
                f"{in_words(token_ms)}; give it a longer lifetime"
            )

    async def admitted(self, access: Access) -> Access | Denied:
        """The token, unless it was revoked, or all of its user's were. One round trip for both questions."""
        try:
            token, since = self._tokens(access.jti), self._since(access.sub)
        except BadKey:  # no key can name it, so nobody could ever revoke it
            return Denied("claims")
        try:
            is_revoked, from_ms = await self._tokens.keyspace.run(token.exists(), since.get())
        except Unreadable:
            return Denied("unavailable")
        except StoreError as error:
            return await self._unknown(access, error)
        if is_revoked or (from_ms is not None and access.issued_at_ms < from_ms):
            return Denied("revoked")
        return access

    async def revoke(self, access: Access, until_ms: int) -> bool:
        """End one token, which nobody takes after `until_ms`. False: that is past. One round trip."""
        now_ms = self._tokens.now_ms()
        if until_ms <= now_ms:
            return False
        await self._tokens(access.jti).set(now_ms, **{_until(self._tokens).field: until_ms})
        return True

    async def revoke_all(self, sub: str) -> None:
        """End all tokens of a user that were issued until now. It never goes back. Two round trips."""
        key = self._since(sub)
        for _ in range(_ATTEMPTS):
            seen, now_ms = await key.see(), self._since.now_ms()
            # Another server's clock may be ahead: what it ended must not come back by this.
            from_ms = now_ms if seen is None else max(now_ms, seen.value)
            if await self._since.keyspace.atomically(key.holds(seen), key.set(from_ms)):
                return
        raise Contended("the tokens of a user were ended again and again at the same moment; try again")

    async def _unknown(self, access: Access, error: StoreError) -> Access | Denied:
        _log.warning("jwt: nobody can say whether a token was revoked (%s): %s", self._when_down, error.code)
        if self._when_down == "deny" or self._tell is None:
            return Denied("unavailable")
        try:
            await self._tell(UncheckedToken(access.sub, access.jti, error.code))
        except Exception as failure:
            _log.warning("jwt: nobody could be told of an unchecked token: %s", type(failure).__name__)
        return access


def _checked(tokens: Any, since: Any, *, may_forget: bool) -> int:
    for given, what in ((tokens, "keys.revoked"), (since, "keys.since")):
        is_value = isinstance(given, Bound) and isinstance(given.family, Value) and given.family.codec.type is int
        if not is_value or len(given.family.pattern.names) != 1:
            raise BadDeclaration(f"revoked tokens are kept in two families Value(…, int, …), as in {what}")
    lifetime = since.family.lifetime
    if not isinstance(tokens.family.lifetime, Until):
        raise BadDeclaration(
            f"{tokens.family.place}: a revoked token is kept until it would have expired; write "
            'lifetime=until("expires_at")'
        )
    if not isinstance(lifetime, After):
        raise BadDeclaration(f'{since.family.place}: it lives longer than any token, as in after("2h")')
    for one in (tokens, since):
        if one.family.role == CACHE:
            raise BadDeclaration(f"{one.family.place}: a cache may forget what was revoked; give it another role")
        if one.store.guarantees.durability == "memory" and not may_forget:
            raise DoesNotFit(
                f"{one.family.place} does not fit {one.store.url}: it keeps nothing when it stops, and revoked tokens "
                "would be good again; give it a store that keeps, or pass may_forget=True"
            )
    return lifetime.ms


def _until(bound: Bound[Any]) -> Until:
    lifetime = bound.family.lifetime
    if not isinstance(lifetime, Until):  # pragma: no cover - checked at the start
        raise BadValue(f"{bound.family.place} lives until a moment")
    return lifetime
