"""Index names of limited length, for texts of any length.

Servers refuse index entries of more than about 2,700 bytes. A key, field or member of up to `LONGEST` bytes is stored
as it is. A longer one is stored as its beginning and its SHA-256 digest, one byte longer than any short name can be,
and the rest of it in another column.
"""

from __future__ import annotations

from hashlib import sha256

LONGEST = 1_024
KEPT = LONGEST + 1 - 32  # of a long text, before the digest


def name_of(text: bytes) -> bytes:
    return text if len(text) <= LONGEST else text[:KEPT] + sha256(text).digest()


def rest_of(text: bytes) -> bytes | None:
    """The part of the text that is not in its name."""
    return None if len(text) <= LONGEST else text[KEPT:]


def text_of(name: bytes, rest: bytes | None) -> bytes:
    return name if rest is None else name[:KEPT] + rest
