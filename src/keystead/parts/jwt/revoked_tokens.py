"""Access tokens that were revoked before their time: one by one, or all of a user."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from keystead.errors import (
    BadDeclaration,
    BadKey,
    BadValue,
    CommandError,
    DoesNotFit,
    KeysteadError,
    StoreError,
    Unreadable,
)
from keystead.parts.jwt.access_tokens import Access, Denied, each_of
from keystead.schema import Bound, Operation, attempts
from keystead.schema.kinds import Value, ValueKey
from keystead.schema.lifetime import After, Until, in_words
from keystead.schema.operation import combine, settled
from keystead.schema.store_fit import CACHE
from keystead.schema.unreadable import log_unreadable

_log = logging.getLogger("keystead.jwt")

_TICKS: Final = 8  # looks at a clock that goes: a millisecond passes in one or two

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

        revoked = Value("jwt:blacklist:{jti}", str, lifetime=until("expires_at"), role="durable", doc="a revoked token")
        since = Value("jwt:since:{sub}", int, lifetime=after("2h"), role="durable", doc="when all of a user ended")

        RevokedTokens(keys.revoked, keys.since)

    tokens      one key for each token that was revoked, until nobody would take the token any more. It holds `1`
    since       for each user the moment, in ms, up to which tokens do not count. It lives longer than any token
    when_down   what is told of a token while the store is away: `deny`, or `allow`, of which `tell` hears each time
    may_forget  that a restart of the store may make revoked tokens good again. Without it, a store that keeps nothing
                when it stops is refused

    A token was issued at a millisecond, which its `jti` tells (see AccessTokens). One that was issued in the very
    millisecond of `revoke_all` counts as issued before it. A token of another issuer, whose `jti` tells no time, has
    only the whole second of `iat`: it counts as issued at the beginning of that second, so `revoke_all` ends what was
    issued in the same second after it, too, and never leaves anything from before it.

    Raises BadDeclaration for families of another shape and for the role cache, DoesNotFit for a store that may forget.
    """

    def __init__(
        self,
        tokens: Bound[ValueKey[int]] | Bound[ValueKey[str]],
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
        self._tokens: Bound[Any] = tokens
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

    def is_revoked(self, access: Access) -> Operation[bool]:
        """Whether this token was revoked, or all of its user's were: one operation for both questions.

            is_revoked, user = await keys.run(revoked.is_revoked(access), keys.user(access.sub).get())

        So it leaves in the round trip of whatever else a request asks for. Raises BadKey where no key can name the
        token, so that nobody could ever revoke it. Its answer raises Unreadable where the moment cannot be read; then
        let nobody in.
        """

        def is_revoked(itself: bool, until_ms: int | None) -> bool:
            return itself or (until_ms is not None and access.issued_at_ms <= until_ms)

        asked = self._tokens(access.jti).exists(), self._since(access.sub).get()
        return combine("is_revoked", asked, is_revoked, atomic=False)

    async def admitted(self, access: Access) -> Access | Denied:
        """The token, unless it was revoked, or all of its user's were. One round trip for both questions."""
        found, _ = await self.decided(access)
        return found

    async def decided(self, access: Access, *beside: Operation[Any]) -> tuple[Access | Denied, list[Any]]:
        """As `admitted`, and what these operations found, in the same round trip (one a store, at the same moment).

        An error stands in the place of each that failed: it must not let in, nor keep out, whoever came.
        """
        try:
            question = self.is_revoked(access)
        except BadKey:  # no key can name it, so nobody could ever revoke it
            return Denied("claims"), []
        answer, *found = await each_of(question, *beside)
        if isinstance(answer, StoreError) and not isinstance(answer, CommandError):
            return await self._unknown(access, answer), found
        if isinstance(answer, Unreadable):  # something is there, so it may have been revoked
            log_unreadable(self._tokens.store, answer)
            return Denied("unreadable"), found
        if isinstance(answer, KeysteadError):
            _log.error("jwt: whether a token was revoked cannot be asked: %s", answer.code)
            return Denied("unavailable"), found
        if isinstance(answer, BaseException):
            raise answer
        return Denied("revoked") if answer else access, found

    def revoke(self, access: Access, until_ms: int) -> Operation[bool]:
        """End one token, which nobody takes after `until_ms`. False: that is past, and nothing is written.

        One round trip; await it, or give it to `run` or `atomically` with what else a logout does.
        """
        tokens = self._tokens
        if until_ms <= tokens.now_ms():
            return settled(tokens, "revoke", False)
        one = "1" if tokens.family.codec.type is str else 1
        written = tokens(access.jti).set(one, **{_until(tokens).field: until_ms})
        return combine("revoke", [written], lambda _: True, atomic=False)

    async def revoke_all(self, sub: str) -> None:
        """End all tokens of a user that were issued until now. It never goes back. Two round trips.

        It returns in a later millisecond, so that a token which is issued after it by the same clock is good.
        """
        key = self._since(sub)
        async for _ in attempts("the moment until which the tokens of a user do not count"):
            try:
                seen = await key.see()
            except Unreadable:  # while it stood there nobody was let in; this is how that ends
                await key.set(now_ms := self._since.now_ms())
                break
            now_ms = self._since.now_ms()
            # Another server's clock may be ahead: what it ended must not come back by this.
            until_ms = now_ms if seen is None else max(now_ms, seen.value)
            if await self._since.keyspace.atomically(key.holds(seen), key.set(until_ms)):
                break
        await self._later_than(now_ms)

    async def _later_than(self, ms: int) -> None:
        for _ in range(_TICKS):
            if self._since.now_ms() > ms:
                return
            await asyncio.sleep(0.001)

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
    for given, what, types in ((tokens, "keys.revoked", (str, int)), (since, "keys.since", (int,))):
        is_value = isinstance(given, Bound) and isinstance(given.family, Value) and given.family.codec.type in types
        if not is_value or len(given.family.pattern.names) != 1 or given.family.has_relations:
            raise BadDeclaration(
                "revoked tokens are kept in two families of one placeholder, Value(…, str, …) for each token and "
                f"Value(…, int, …) for each user; {what} is none"
            )
    if tokens.store is not since.store:
        raise BadDeclaration(f"{tokens.family.place} and {since.family.place} are asked together; give both one role")
    lifetime = since.family.lifetime
    if not isinstance(tokens.family.lifetime, Until):
        raise BadDeclaration(
            f"{tokens.family.place}: a revoked token is kept until it would have expired; write "
            'lifetime=until("expires_at")'
        )
    if not isinstance(lifetime, After):
        raise BadDeclaration(f'{since.family.place}: it lives longer than any token, as in after("2h")')
    if since.family.member_text is not None:
        raise BadDeclaration(
            f"{since.family.place} belongs to {since.family.member_text}: to erase them would make tokens good again "
            "that were ended; leave member_of out, it ends by itself"
        )
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
