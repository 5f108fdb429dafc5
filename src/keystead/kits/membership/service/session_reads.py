"""What every request of a member needs: the session, the user's row and the cached membership, in one round trip."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Any, Final

from keystead.errors import BadKey, KeysteadError, StoreError, Unreadable
from keystead.kits.membership.keys import MembershipKeys
from keystead.kits.membership.models import CachedMembership
from keystead.kits.membership.service.devices import Devices
from keystead.kits.membership.service.outcomes import SessionRef, session_invalid
from keystead.parts.sessions.session_token import TOKEN_MAX_LENGTH
from keystead.schema.kinds.value import stored_bytes
from keystead.schema.repeated_reads import Repeated

_CACHED_MAX: Final = 4096
_MISSING, _FOREVER = -2, -1  # replies of PTTL


@dataclass(slots=True)
class _Decoded:
    """What the stored rows of a user meant when they were last decoded. It holds no token of the provider."""

    user_row: bytes
    cached: bytes | None
    is_current: bool
    membership: CachedMembership | None


@dataclass(slots=True)
class _Query:
    """The reads for one session. `decoded` is valid while the stored rows are the same."""

    session: SessionRef
    read: Repeated
    decoded: _Decoded | None = None


class SessionReads:
    """Reads sessions by their tokens.

    A browser sends the same token many times in a row, so keys are rendered once and rows are decoded when they have
    changed. The store is read each time. The cache key is the digest of the token: no secret stays in memory.
    """

    def __init__(self, keys: MembershipKeys, devices: Devices) -> None:
        self._keys = keys
        self._devices = devices
        self._queries: OrderedDict[bytes, _Query] = OrderedDict()

    async def read(self, token: str) -> tuple[SessionRef, timedelta, CachedMembership | None]:
        """A current session, its remaining lifetime, and the cached membership. Raises MembershipRefused."""
        query = self._query_of(token)
        session = query.session
        if self._keys.membership.store is not self._keys.session.store:
            return await self._read_tolerantly(session)
        try:
            left, user_row, cached = await query.read()
            decoded = query.decoded
            if user_row is None:
                decoded = None
            elif decoded is None or decoded.user_row != user_row or decoded.cached != cached:
                decoded = query.decoded = self._decode(session, user_row, cached)
        except Unreadable:  # not an outage: the store would be asked twice, and the caller wait twice
            return await self._read_tolerantly(session)
        if left == _MISSING or decoded is None:
            raise session_invalid()
        if not decoded.is_current:
            # Another session is current: this one has ended, but its row was not deleted.
            await self._devices.drop(session.id)
            raise session_invalid()
        return session, timedelta.max if left == _FOREVER else timedelta(milliseconds=left), decoded.membership

    async def _read_tolerantly(self, session: SessionRef) -> tuple[SessionRef, timedelta, CachedMembership | None]:
        """The same if a row is unreadable, or the cache is another store, which may be down."""
        keys = self._keys
        left, held, found = await read_tolerantly(
            keys,
            keys.session(session.id).remaining(),
            keys.user_token(session.user).get(),
            keys.membership(session.user).get(),
        )
        if left is None or held is None or session.id not in held.session_tokens:
            # An unreadable user row, for example if the key ring lacks a key, must not end the session.
            if left is not None and held is not None:
                await self._devices.drop(session.id)
            raise session_invalid()
        return session, left, found

    def _query_of(self, token: str) -> _Query:
        try:
            digest = sha256(token[: TOKEN_MAX_LENGTH + 1].encode()).digest()
        except UnicodeEncodeError:
            raise session_invalid() from None
        return self._queries.get(digest) or self._make_query(token, digest)

    def _make_query(self, token: str, digest: bytes) -> _Query:
        session, keys = self._devices.parse_token(token), self._keys
        if session is None:
            raise session_invalid()
        try:
            user_row, cached = stored_bytes(keys.user_token(session.user)), stored_bytes(keys.membership(session.user))
        except BadKey:
            raise session_invalid() from None
        query = _Query(session, Repeated(keys.session(session.id).left_ms(), user_row, cached))
        self._queries[digest] = query
        if len(self._queries) > _CACHED_MAX:
            self._queries.popitem(last=False)
        return query

    def _decode(self, session: SessionRef, user_row: bytes, cached: bytes | None) -> _Decoded:
        keys, user = self._keys, session.user
        held = keys.user_token.family.value_of(user_row, keys.user_token(user).key, keys.user_token.ring)
        found = keys.membership.family.value_of(cached, keys.membership(user).key, keys.membership.ring)
        return _Decoded(user_row, cached, session.id in held.session_tokens, found)


async def read_tolerantly(keys: MembershipKeys, *operations: Any) -> list[Any]:
    """Results of reads; the last one reads a cache. None for an unreadable value, and for a cache that is down.

    Raises the store's error if another read fails.
    """
    try:
        return list(await keys.run(*operations))
    except KeysteadError as error:
        results = list(error.results or ())
        if len(results) != len(operations):
            raise
        for result in results[:-1]:
            if isinstance(result, StoreError) and not isinstance(result, Unreadable):
                raise result from None
        if any(isinstance(one, Exception) and not isinstance(one, Unreadable | StoreError) for one in results):
            raise
        return [None if isinstance(one, Exception) else one for one in results]
