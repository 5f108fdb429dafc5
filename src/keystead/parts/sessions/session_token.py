"""Session tokens: the secret in the browser's cookie, and the digest of it in the store."""

from __future__ import annotations

import binascii
import re
from binascii import a2b_base64

from keystead.errors import BadValue
from keystead.parts.digest import base64url, digest

SECRET_BYTES = 32
USER_MAX_BYTES = 512  # a cookie with the token stays far below the 4096 bytes that browsers allow
TOKEN_MAX_LENGTH = 43 + 1 + 684  # the secret and the user, in base64url

_FROM_URL = bytes.maketrans(b"-_", b"+/")
_TOKEN = re.compile(r"[\w-]{43}\.([\w-]{2,684})", re.ASCII)


def new_token(secret: bytes, user: str) -> str:
    """`{secret}.{user}`, both in base64url.

    The token contains the user so that one round trip reads both the session and the user's list. The user cannot be
    swapped for another: the id is the digest of the whole token.
    """
    if len(secret) < SECRET_BYTES:
        raise BadValue(f"the secret of a token needs at least {SECRET_BYTES} bytes, not {len(secret)}")
    try:
        name = user.encode()
    except UnicodeEncodeError:
        raise BadValue("the id of a user contains half a character (a lone surrogate)") from None
    if not 0 < len(name) <= USER_MAX_BYTES:
        raise BadValue(f"the id of a user must have 1 to {USER_MAX_BYTES} bytes, not {len(name)}")
    return f"{base64url(secret[:SECRET_BYTES])}.{base64url(name)}"


def id_of(token: str) -> str:
    """The session id in the store: the SHA-256 of the token. It is not a credential."""
    return digest(token)


def parse_token(token: str) -> tuple[str, str] | None:
    """Parse a token into the session id and the user. None: this is not a token."""
    found = _TOKEN.fullmatch(token)
    if found is None:
        return None
    try:
        user = a2b_base64(found[1].encode().translate(_FROM_URL) + b"==").decode()  # surplus padding is ignored
    except (binascii.Error, UnicodeDecodeError):
        return None
    return id_of(token), user
