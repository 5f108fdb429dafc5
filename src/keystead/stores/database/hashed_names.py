"""Names of limited length, for an index, of texts of any length.

A page of an index holds some entries at least, so a server refuses one of more than about 2,700 bytes. A key, field or
member up to `LONGEST` bytes stands there as it is. A longer one stands there with its beginning and its SHA-256
digest, one byte longer than any short one can be, and the rest of it in a column beside it.
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
