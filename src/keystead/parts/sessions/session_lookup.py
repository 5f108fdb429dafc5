"""What is asked of the store for a token."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from hashlib import sha256
from typing import Any, TypeAlias

from keystead.errors import BadKey
from keystead.parts.sessions.session_token import TOKEN_MAX_LENGTH, named_by

KEPT_MAX = 4096

# The user, the id of the session, and what asks for its record and whether the user's list names it.
Question: TypeAlias = tuple[str, str, Callable[[], Awaitable[Any]]]


class Questions:
    """Makes questions, and keeps the last ones: a browser comes with its token many times in a row.

    They are kept by the digest of the token, so that no secret stays in memory. Nothing of a session is in a question;
    whether it is alive, the store is asked each time.
    """

    def __init__(self, asking: Callable[[str, str], Callable[[], Awaitable[Any]]]) -> None:
        self._asking = asking  # for the session of a user
        self._kept: dict[bytes, Question] = {}

    def of(self, token: str) -> Question | None:
        """The question for a token; None: this was never one, whatever it is, or no user can have this name."""
        if len(token) > TOKEN_MAX_LENGTH:
            return None
        try:
            digest = sha256(token.encode()).digest()
        except UnicodeEncodeError:
            return None
        return self._kept.get(digest) or self._made(token, digest)

    def _made(self, token: str, digest: bytes) -> Question | None:
        named = named_by(token)
        if named is None:
            return None
        sid, user = named
        try:
            question = self.named(user, sid)
        except BadKey:
            return None
        if len(self._kept) >= KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        self._kept[digest] = question
        return question

    def named(self, user: str, sid: str) -> Question:
        """The question for a session by its id. Raises BadKey where no key can name it."""
        return user, sid, self._asking(user, sid)
