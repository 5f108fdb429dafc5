"""Admission: check an access token, its revocation and its user in one round trip."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Literal, TypeVar, overload

from keystead.errors import BadDeclaration, BadKey, StoreError
from keystead.parts.cache import Cache, CacheLookup
from keystead.parts.jwt import Access, AccessTokens, Denied
from keystead.schema.kinds import HashKey, ValueKey

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True)
class Admitted(Generic[T_co]):
    """A request with a valid token. It is truthy; `Denied` is falsy.

    access   the verified token: subject, id, expiry and claims
    user     the user from the cache or the loader; None if there is no cache of users
    """

    access: Access
    user: T_co

    @property
    def sub(self) -> str:
        return self.access.sub

    @property
    def claims(self) -> Mapping[str, Any]:
        return self.access.claims

    def __bool__(self) -> Literal[True]:
        return True


class Admission(Generic[T]):
    """Admits requests with a valid token.

        admission = Admission(
            tokens, users, key=lambda access: keys.user_session(int(access.sub)), load=lambda access: find(access.sub)
        )
        who = await admission.admitted(token)     # Admitted(access, user) or Denied(reason)

    tokens   verifies tokens, and has the denylist
    users    a cache of users. Its lookup shares the round trip of the revocation check
    key      the cache key of a user. BadKey or ValueError means that the token names none of our users
    load     loads a user for the cache; None: there is no such user (any more), and the token is denied

    A valid token of a cached user costs one round trip to each store in use, concurrently, and with a sliding cache one
    more each `touch_every`. A revoked token does not touch the cache: nothing is loaded or touched for it. A malformed,
    forged or expired token costs none.

    During a store outage `when_down` of the denylist applies, then `store_down` of the cache.
    """

    @overload
    def __init__(self: Admission[None], tokens: AccessTokens) -> None: ...
    @overload
    def __init__(
        self,
        tokens: AccessTokens,
        users: Cache[T],
        *,
        key: Callable[[Access], ValueKey[T] | HashKey[T, Any, Any]],
        load: Callable[[Access], Awaitable[T | None]],
    ) -> None: ...
    def __init__(self, tokens: AccessTokens, users: Any = None, *, key: Any = None, load: Any = None) -> None:
        if [users is None, key is None, load is None] not in ([True] * 3, [False] * 3):
            raise BadDeclaration("a cache of users needs key= and load=; pass all three, or none of them")
        self.tokens = tokens
        self._users: Cache[T] | None = users
        self._key = key
        self._load = load

    async def admitted(self, token: str) -> Admitted[T] | Denied:
        """The user of this token, or why it is refused.

        Raises LoadFailed if the user cannot be loaded, and the store's error if the cache is declared to raise it.
        """
        access = self.tokens.check(token)
        if isinstance(access, Denied):
            return access
        users = self._users
        if users is None:
            found, _ = await self.tokens.check_revocation(access)
            no_user: Any = None
            return found if isinstance(found, Denied) else Admitted(found, no_user)
        try:
            key = self._key(access)
        except (BadKey, ValueError):
            return Denied("claims")
        found, looks = await self.tokens.check_revocation(access, users.look(key))
        if isinstance(found, Denied):
            return found
        [look] = looks
        if isinstance(look, StoreError):
            look = CacheLookup(key, error=look)
        answer = await users.answer_to(look, lambda: self._load(access))
        return Denied("user") if answer.value is None else Admitted(found, answer.value)
