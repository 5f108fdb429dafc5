"""The token of a session: what the browser has, and what of it the store has."""

from __future__ import annotations

import binascii
import re
from binascii import a2b_base64
from typing import NamedTuple

from keystead.errors import BadValue
from keystead.parts.digest import base64url, digest

SECRET_BYTES = 32
USER_MAX_BYTES = 512  # so that a cookie with the token stays far below the 4096 bytes that browsers keep

_FROM_URL = bytes.maketrans(b"-_", b"+/")
_TOKEN = re.compile(r"[A-Za-z0-9_-]{43}\.([A-Za-z0-9_-]{2,684})")


class Named(NamedTuple):
    """What a token says: the id of its session, which is no secret, and the user it is for."""

    id: str
    user: str


def new_token(secret: bytes, user: str) -> str:
    """`{secret}.{user}`, both in base64url.

    The user is in it so that one round trip can read the session and whether the user's list still has it. Nobody
    can exchange the user for another: the id is the digest of the whole token.
    """
    if len(secret) < SECRET_BYTES:
        raise BadValue(f"the secret of a token has {SECRET_BYTES} bytes or more, not {len(secret)}")
    try:
        name = user.encode()
    except UnicodeEncodeError:
        raise BadValue("the id of a user is text, and this one has half a character in it") from None
    if not 0 < len(name) <= USER_MAX_BYTES:
        raise BadValue(f"the id of a user has 1 to {USER_MAX_BYTES} bytes, not {len(name)}")
    return f"{base64url(secret[:SECRET_BYTES])}.{base64url(name)}"


def id_of(token: str) -> str:
    """The id under which the store knows the session: the SHA-256 of the token. It opens nothing."""
    return digest(token)


def named_by(token: str) -> Named | None:
    """What a token says; None: this was never one, whatever it is."""
    found = _TOKEN.fullmatch(token)
    if found is None:
        return None
    text = found[1]
    try:
        user = a2b_base64(text.encode().translate(_FROM_URL) + b"=" * (-len(text) % 4)).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    return Named(id_of(token), user)
