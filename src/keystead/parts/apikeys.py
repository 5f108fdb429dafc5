"""API keys for programs: issue, list, revoke. The store has only their digest."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ConfigDict

from keystead.errors import BadDeclaration, BadValue
from keystead.parts.digest import digest, same
from keystead.parts.sanitize import visible
from keystead.schema import Bound
from keystead.schema.kinds import SortedSetKey, Value, ValueKey

__all__ = ["ApiKey", "ApiKeys", "IssuedApiKey", "IssuedSecret", "ListedApiKey", "SecretKeys", "id_of"]

_TOKEN = re.compile(r"ks_([0-9a-f]{16})_[\w-]{43}", re.ASCII)
_LONGEST_NAME: Final = 100


class IssuedSecret(BaseModel):
    """The record of a secret that was issued: with a digest of the secret, not the secret."""

    model_config = ConfigDict(use_attribute_docstrings=True, frozen=True)

    name: str
    """the purpose, for people"""
    made_ms: int
    digest: str
    """of the whole token"""


class ApiKey(IssuedSecret):
    """An API key, as it is stored: with a digest of the secret, not the secret."""

    user_id: int
    """the user it acts for"""


Record = TypeVar("Record", bound=IssuedSecret)


class IssuedApiKey(NamedTuple):
    """A new API key. The token is shown once, and cannot be read again."""

    id: str
    token: str


@dataclass(frozen=True)
class ListedApiKey:
    """An API key without its secret. The id is not a secret: it names the key for `revoke`."""

    id: str
    user_id: int
    name: str
    made_ms: int


class SecretKeys(Generic[Record]):
    """Secrets of one purpose, in a family `Value("…:{id:alnum}", Record, listed_in=…)`, listed in a `SortedSet` of ids.

    A record lives until it is revoked, and is never changed: so no write under way resurrects it. During a store outage
    every method raises the store's error; no secret is accepted.
    """

    def __init__(self, keys: Bound[ValueKey[Record]], index: SortedSetKey[str], record: type[Record]) -> None:
        family: Any = keys.family
        if not isinstance(family, Value) or family.codec.type is not record:
            raise BadDeclaration(f"{type(self).__name__} needs a family Value(…, {record.__name__}, …)")
        self._keys = keys
        self._index = index

    async def issue_record(self, name: str, make: Callable[[str, int, str], Record]) -> IssuedApiKey:
        """Issue a secret for the record that `make` returns for a name, the time in ms and the digest of the secret.

        The secret is not stored. One round trip. Raises BadValue without a name.
        """
        if not name.strip():
            raise BadValue("an API key needs a name that says what it is for")
        while True:
            key_id = secrets.token_hex(8)
            token = f"ks_{key_id}_{secrets.token_urlsafe(32)}"
            made = make(visible(name, _LONGEST_NAME), self._keys.now_ms(), digest(token))
            if await self._keys(key_id).add(made):
                return IssuedApiKey(key_id, token)

    async def find(self, token: str) -> tuple[str, Record] | None:
        """The id and the record of this token; None: it was never issued, or was revoked. At most one round trip.

        A malformed token costs no round trip. A token with an unreadable record is refused.
        """
        found = _TOKEN.fullmatch(token)
        if found is None:
            return None
        record = await self._keys(found[1]).get().if_readable()
        if record is None or not same(record.digest, digest(token)):
            return None
        return found[1], record

    async def records(self) -> list[tuple[str, Record]]:
        """All ids and records, oldest first, without revoked and unreadable ones. Three round trips, or four."""
        ids = await self._index.live()
        found = await self._keys.keyspace.run(*(self._keys(key_id).get().if_readable() for key_id in ids))
        return [(key_id, record) for key_id, record in zip(ids, found, strict=True) if record is not None]

    async def revoke(self, key_id: str) -> bool:
        """Revoke a secret: the next request with it is refused. False: there is none with this id. One round trip."""
        return await self._keys(key_id).delete() if re.fullmatch("[0-9a-f]{16}", key_id) else False


class ApiKeys(SecretKeys[ApiKey]):
    """API keys in a family `Value("apikey:{id:alnum}", ApiKey, listed_in=…)`, listed in a `SortedSet` of ids.

    token = (await api_keys.issue(42, "nightly import")).token    # ks_{id}_{secret}
    user_id = await api_keys.user_of(token)                       # 42, or None
    """

    def __init__(self, keys: Bound[ValueKey[ApiKey]], index: SortedSetKey[str]) -> None:
        super().__init__(keys, index, ApiKey)

    async def issue(self, user_id: int, name: str) -> IssuedApiKey:
        """Issue a key for a user. The token is not stored. One round trip. Raises BadValue without a name."""
        return await self.issue_record(
            name, lambda name, made_ms, digest: ApiKey(user_id=user_id, name=name, made_ms=made_ms, digest=digest)
        )

    async def of(self, token: str) -> ListedApiKey | None:
        """The key of this token; None as in `find`."""
        found = await self.find(token)
        return None if found is None else _listed(*found)

    async def user_of(self, token: str) -> int | None:
        """The user of this token; None as in `find`."""
        found = await self.find(token)
        return None if found is None else found[1].user_id

    async def list(self) -> list[ListedApiKey]:
        """All keys, as in `records`."""
        return [_listed(*one) for one in await self.records()]


def _listed(key_id: str, key: ApiKey) -> ListedApiKey:
    return ListedApiKey(key_id, key.user_id, key.name, key.made_ms)


def id_of(given: str) -> str:
    """The id in a token, by its format alone; any other text is returned unchanged. For people who name a key."""
    found = _TOKEN.fullmatch(given.strip())
    return given if found is None else found[1]
