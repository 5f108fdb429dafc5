"""Session lookups: from a token to the prepared read of its record and its user's list."""

from __future__ import annotations

from collections.abc import Callable
from hashlib import blake2s
from typing import Generic, TypeAlias, TypeVar

from keystead.errors import BadKey
from keystead.parts.sessions.session_token import TOKEN_MAX_LENGTH, parse_token
from keystead.schema.repeated_reads import Repeated

MAX_CACHED = 4096
REMEMBERED_MAX_BYTES = 4096  # larger records are decoded each time they are read

# The user, the session id, and a call that reads the record and whether the user's list has the id.
SessionQuery: TypeAlias = tuple[str, str, Repeated]
Q = TypeVar("Q")


class SessionQueries(Generic[Q]):
    """Builds queries and caches the latest: a browser sends the same token many times in a row.

    The cache key is the digest of the token, so no secret stays in memory. The store is read each time.
    """

    def __init__(
        self,
        build: Callable[[str, str], Q],
        parse: Callable[[str], tuple[str, str] | None] = parse_token,
        token_max_length: int = TOKEN_MAX_LENGTH,
    ) -> None:
        self._build = build  # takes the user and the session id
        self._parse, self._token_max_length = parse, token_max_length
        self._cached: dict[bytes, tuple[str, str, Q]] = {}

    def for_token(self, token: str) -> tuple[str, str, Q] | None:
        """The query for a token. None: this is not a token, or no key can name its user."""
        if len(token) > self._token_max_length:
            return None
        try:
            digest = blake2s(token.encode()).digest()  # half the time of SHA-256
        except UnicodeEncodeError:
            return None
        return self._cached.get(digest) or self._build_and_cache(token, digest)

    def _build_and_cache(self, token: str, digest: bytes) -> tuple[str, str, Q] | None:
        named = self._parse(token)
        if named is None:
            return None
        sid, user = named
        try:
            query = self.for_id(user, sid)
        except BadKey:
            return None
        if len(self._cached) >= MAX_CACHED:
            del self._cached[next(iter(self._cached))]
        self._cached[digest] = query
        return query

    def for_id(self, user: str, sid: str) -> tuple[str, str, Q]:
        """The query for a session by its id. Raises BadKey if no key can name it."""
        return user, sid, self._build(user, sid)
