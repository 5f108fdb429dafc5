"""Tokens of data sessions: the id of a session, which stays, and a secret, which each rotation replaces."""

from __future__ import annotations

import re
from typing import Final

from keystead.parts.digest import base64url
from keystead.parts.limit.client_address import client_of
from keystead.parts.sessions.session_token import TOKEN_MAX_LENGTH, new_token, parse_token

_ID_LENGTH: Final = 43
DATA_TOKEN_MAX_LENGTH: Final = _ID_LENGTH + 1 + TOKEN_MAX_LENGTH
_ID: Final = re.compile(r"[\w-]{43}", re.ASCII)
_VISITOR: Final = "@"


def new_data_token(id: str, secret: bytes, owner: str) -> str:
    """`{id}.{secret}.{owner}`. The owner is in it so that one round trip reads the session and the owner's list."""
    return f"{id}.{new_token(secret, owner)}"


def parse_data_token(token: str) -> tuple[str, str] | None:
    """The id and the owner. None: this is not a token. Neither is proven before the digest was compared."""
    if len(token) > DATA_TOKEN_MAX_LENGTH:
        return None
    id, separator, rest = token[:_ID_LENGTH], token[_ID_LENGTH : _ID_LENGTH + 1], token[_ID_LENGTH + 1 :]
    named = parse_token(rest) if separator == "." and _ID.fullmatch(id) else None
    return None if named is None else (id, named[1])


def new_data_id(random_bytes: bytes) -> str:
    return base64url(random_bytes)


def visitor_of(client: str) -> str:
    """The owner of the anonymous sessions of a client address, in IPv6 of its /64. The address itself is not stored."""
    return _VISITOR + client_of(client)


def owner_of(user: str) -> str:
    """The owner of the sessions of a user. A user whose id begins with `@` is never taken for a visitor."""
    return _VISITOR + user if user.startswith(_VISITOR) else user


def user_of(owner: str) -> str | None:
    """The user of these sessions. None: they are anonymous."""
    if not owner.startswith(_VISITOR):
        return owner
    return owner[1:] if owner.startswith(_VISITOR * 2) else None
