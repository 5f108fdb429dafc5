"""Who comes with a token: whether it counts and who that is, asked in one round trip."""

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
    """Somebody whose token counts. It is true where `Denied` is false.

    access   the token, checked: whom it is for, its id, until when, and its claims
    user     who that is, as the cache or the loader says; None where no users were given
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
    """Lets in who comes with a token that counts.

        admission = Admission(
            tokens, users, key=lambda access: keys.user_session(int(access.sub)), load=lambda access: find(access.sub)
        )
        who = await admission.admitted(token)     # Admitted(access, user) or Denied(reason)

    tokens   checks tokens, and says where revoked ones are kept
    users    a cache of users. The look at it leaves in the round trip that asks whether the token was revoked
    key      the key of a user in it. What it raises as BadKey or ValueError is a token of no user of ours
    load     who a user is, for the cache to keep; None: there is no such user (any more), and the token is denied

    A good token of a user who is in the cache costs one round trip to each store in use, all at the same moment, and
    where the cache slides one more each `touch_every`. A token that was revoked is no use of the cache: nothing is
    loaded or touched for it. A token that is malformed, forged or expired costs none.

    While the store is away: what `when_down` of the revoked tokens says, then what `store_down` of the cache says.
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
            raise BadDeclaration("users come from a cache, by key= and load=; pass all three, or none of them")
        self.tokens = tokens
        self._users: Cache[T] | None = users
        self._key = key
        self._load = load

    async def admitted(self, token: str) -> Admitted[T] | Denied:
        """Who comes with this token, or why it does not count.

        Raises LoadFailed where nobody can say who the user is, and the error of the store where the cache says so.
        """
        access = self.tokens.check(token)
        if isinstance(access, Denied):
            return access
        users = self._users
        if users is None:
            found, _ = await self.tokens.decided(access)
            nobody: Any = None
            return found if isinstance(found, Denied) else Admitted(found, nobody)
        try:
            key = self._key(access)
        except (BadKey, ValueError):
            return Denied("claims")
        found, looks = await self.tokens.decided(access, users.look(key))
        if isinstance(found, Denied):
            return found
        [look] = looks
        if isinstance(look, StoreError):
            look = CacheLookup(key, error=look)
        answer = await users.answer_to(look, lambda: self._load(access))
        return Denied("user") if answer.value is None else Admitted(found, answer.value)
