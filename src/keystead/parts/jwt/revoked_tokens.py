"""JWT revocation: a denylist of single tokens, and "log out everywhere" for all tokens of a user."""

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
from keystead.parts.jwt.access_tokens import Access, Denied, run_each
from keystead.schema import Bound, Operation, attempts
from keystead.schema.kinds import Value, ValueKey
from keystead.schema.lifetime import After, Until, in_words
from keystead.schema.operation import combine, settled
from keystead.schema.store_fit import CACHE
from keystead.schema.unreadable import log_unreadable

_log = logging.getLogger("keystead.jwt")

_TICKS: Final = 8  # clock reads; a running clock needs one or two

WhenDown: TypeAlias = Literal["deny", "allow"]


@dataclass(frozen=True)
class UncheckedToken:
    """A token was admitted without a revocation check: the event of `when_down="allow"`."""

    sub: str
    jti: str
    error: str
    event: Literal["token-unchecked"] = "token-unchecked"


class RevokedTokens:
    """The denylist of revoked tokens.

        revoked = Value("jwt:blacklist:{jti}", str, lifetime=until("expires_at"), role="durable", doc="a revoked token")
        since = Value("jwt:since:{sub}", int, lifetime=after("2h"), role="durable", doc="when all of a user ended")

        RevokedTokens(keys.revoked, keys.since)

    tokens      one key for each revoked token, until the token would have expired. It holds `1`
    since       for each user the time, in ms, up to which tokens are revoked. It lives longer than any token
    when_down   policy for store outages: `deny`, or `allow`, which calls `tell` for each token
    may_forget  allow a store that does not survive a restart, after which revoked tokens would work again. Without it
                such a store is refused

    The `jti` of a token contains the millisecond when it was issued (see AccessTokens). A token issued in the same
    millisecond as `revoke_all` counts as issued before it. A token of another issuer, whose `jti` contains no time, has
    only the whole second of `iat`: it counts as issued at the start of that second. So `revoke_all` also revokes tokens
    issued later in the same second, and never misses an earlier one.

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
            raise BadDeclaration(f"when_down must be deny or allow, not {when_down!r}")
        if when_down == "allow" and tell is None:
            raise BadDeclaration('when_down="allow" admits unchecked tokens; pass tell=… to be notified of each')
        self._since_ms = _check_families(tokens, since, may_forget=may_forget)
        self._tokens: Bound[Any] = tokens
        self._since = since
        self._when_down = when_down
        self._tell = tell

    def check_lifetimes(self, token_ms: int) -> None:
        """Raise BadDeclaration if a token, with its leeway, could outlive its revocation."""
        if self._since_ms < token_ms:
            raise BadDeclaration(
                f"{self._since.family.place}: it lives {in_words(self._since_ms)}, but tokens are accepted for "
                f"{in_words(token_ms)} and would outlive their revocation; give it a longer lifetime"
            )
        longest_ms = self._tokens.family.lifetime.longest_ms
        if longest_ms is not None and longest_ms < token_ms:
            raise BadDeclaration(
                f"{self._tokens.family.place}: it lives at most {in_words(longest_ms)}, but tokens are accepted for "
                f"{in_words(token_ms)}; give it a longer lifetime"
            )

    def is_revoked(self, access: Access) -> Operation[bool]:
        """Whether this token, or all tokens of its user, were revoked: one operation for both checks.

            is_revoked, user = await keys.run(revoked.is_revoked(access), keys.user(access.sub).get())

        So it shares the round trip of other reads. Raises BadKey if no key can name the token, so that it could never
        be revoked. Its result raises Unreadable if the record cannot be read; then refuse the token.
        """

        def is_revoked(itself: bool, until_ms: int | None) -> bool:
            return itself or (until_ms is not None and access.issued_at_ms <= until_ms)

        reads = self._tokens(access.jti).exists(), self._since(access.sub).get()
        return combine("is_revoked", reads, is_revoked, atomic=False)

    async def admitted(self, access: Access) -> Access | Denied:
        """The token, unless it or all tokens of its user were revoked. One round trip for both checks."""
        found, _ = await self.check_revocation(access)
        return found

    async def check_revocation(self, access: Access, *beside: Operation[Any]) -> tuple[Access | Denied, list[Any]]:
        """As `admitted`, with the results of these operations, in the same round trip (one per store, concurrently).

        A failed operation gives its error in place of its result: it must neither admit nor refuse the token.
        """
        try:
            check = self.is_revoked(access)
        except BadKey:  # no key can name it, so it could never be revoked
            return Denied("claims"), []
        result, *found = await run_each(check, *beside)
        if isinstance(result, StoreError) and not isinstance(result, CommandError):
            return await self._handle_outage(access, result), found
        if isinstance(result, Unreadable):  # something is there, so it may have been revoked
            log_unreadable(self._tokens.store, result)
            return Denied("unreadable"), found
        if isinstance(result, KeysteadError):
            _log.error("jwt: revocation of a token cannot be checked: %s", result.code)
            return Denied("unavailable"), found
        if isinstance(result, BaseException):
            raise result
        return Denied("revoked") if result else access, found

    def revoke(self, access: Access, until_ms: int) -> Operation[bool]:
        """Revoke one token, which expires at `until_ms`. False: it has expired, and nothing is written.

        One round trip; await it, or give it to `run` or `atomically` with what else a logout does.
        """
        tokens = self._tokens
        if until_ms <= tokens.now_ms():
            return settled(tokens, "revoke", False)
        one = "1" if tokens.family.codec.type is str else 1
        written = tokens(access.jti).set(one, **{_until(tokens).field: until_ms})
        return combine("revoke", [written], lambda _: True, atomic=False)

    async def revoke_all(self, sub: str) -> None:
        """Revoke all tokens of a user issued until now. The time never goes back. Two round trips.

        It returns in a later millisecond, so that a token issued afterwards by the same clock is valid.
        """
        key = self._since(sub)
        async for _ in attempts("the revocation time of a user's tokens"):
            try:
                seen = await key.see()
            except Unreadable:  # it refused all tokens; overwriting it ends that
                await key.set(now_ms := self._since.now_ms())
                break
            now_ms = self._since.now_ms()
            # Another server's clock may be ahead: the tokens it revoked must stay revoked.
            until_ms = now_ms if seen is None else max(now_ms, seen.value)
            if await self._since.keyspace.atomically(key.holds(seen), key.set(until_ms)):
                break
        await self._wait_past(now_ms)

    async def _wait_past(self, ms: int) -> None:
        for _ in range(_TICKS):
            if self._since.now_ms() > ms:
                return
            await asyncio.sleep(0.001)

    async def _handle_outage(self, access: Access, error: StoreError) -> Access | Denied:
        _log.warning("jwt: revocation cannot be checked (%s): %s", self._when_down, error.code)
        if self._when_down == "deny" or self._tell is None:
            return Denied("unavailable")
        try:
            await self._tell(UncheckedToken(access.sub, access.jti, error.code))
        except Exception as failure:
            _log.warning("jwt: reporting an unchecked token failed: %s", type(failure).__name__)
        return access


def _check_families(tokens: Any, since: Any, *, may_forget: bool) -> int:
    for given, what, types in ((tokens, "keys.revoked", (str, int)), (since, "keys.since", (int,))):
        is_value = isinstance(given, Bound) and isinstance(given.family, Value) and given.family.codec.type in types
        if not is_value or len(given.family.pattern.names) != 1 or given.family.has_relations:
            raise BadDeclaration(
                "revoked tokens need two families with one placeholder each: Value(…, str, …) for each token and "
                f"Value(…, int, …) for each user; {what} is not one"
            )
    if tokens.store is not since.store:
        raise BadDeclaration(f"{tokens.family.place} and {since.family.place} are read together; give both one role")
    lifetime = since.family.lifetime
    if not isinstance(tokens.family.lifetime, Until):
        raise BadDeclaration(
            f"{tokens.family.place}: a revocation lasts until the token would have expired; write "
            'lifetime=until("expires_at")'
        )
    if not isinstance(lifetime, After):
        raise BadDeclaration(f'{since.family.place}: it must live longer than any token, as in after("2h")')
    if since.family.member_text is not None:
        raise BadDeclaration(
            f"{since.family.place} belongs to {since.family.member_text}: erasing it would make revoked tokens valid "
            "again; leave member_of out, it expires"
        )
    for one in (tokens, since):
        if one.family.role == CACHE:
            raise BadDeclaration(f"{one.family.place}: a cache may lose revocations; give it another role")
        if one.store.guarantees.durability == "memory" and not may_forget:
            raise DoesNotFit(
                f"{one.family.place} does not fit {one.store.url}: it loses its data when it stops, and revoked tokens "
                "would be valid again; use a persistent store, or pass may_forget=True"
            )
    return lifetime.ms


def _until(bound: Bound[Any]) -> Until:
    lifetime = bound.family.lifetime
    if not isinstance(lifetime, Until):  # pragma: no cover - checked at the start
        raise BadValue(f"{bound.family.place} needs lifetime=until(…)")
    return lifetime
