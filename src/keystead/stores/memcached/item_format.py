"""The format of items in Memcached: a valid name, and a value with its exact deadline.

An item is `<deadline in ms since 1970, 8 bytes, 0 for none><value>`, with MARK as its flags. Memcached's own
clock ticks once a second, so its expiry only frees memory: a little after the deadline, never before.
"""

from __future__ import annotations

import hashlib
import struct

from keystead.errors import WrongKind
from keystead.stores.sql.string_slot import Item

KEY_BYTES = 250  # the longest key of Memcached
HASHED = b"sha256:"
MARK = 0x4B_53_30_31  # "KS01", the flags of what Keystead wrote
_HEADER = struct.Struct(">Q")
HEADER_BYTES = _HEADER.size
CLEARED_AFTER_S = 2  # how long after its deadline the server may drop it
LATEST_S = 2**31 - 1  # the last second that the server supports
_PLAIN = bytes(range(0x21, 0x7F)) + bytes(range(0x80, 0x100))


def name_of(prefix: bytes, key: bytes) -> bytes:
    """The name of a key on the server; no two keys share one.

    A key is its own name. A key that Memcached does not accept (spaces, control characters, too long) is replaced by
    its SHA-256 digest, and so is one that looks like such a digest, so that names cannot collide.
    """
    if len(prefix) + len(key) > KEY_BYTES or key.startswith(HASHED) or key.translate(None, _PLAIN):
        return prefix + HASHED + hashlib.sha256(key).hexdigest().encode()
    return prefix + key


def pack_item(item: Item) -> bytes:
    return _HEADER.pack(item.expires_at or 0) + item.value


def unpack_item(data: bytes, flags: int) -> Item:
    """Raises WrongKind if Keystead did not write it."""
    if flags != MARK or len(data) < HEADER_BYTES:
        raise WrongKind("the key was not written by Keystead; give the URL a prefix that no other program uses")
    [expires_at] = _HEADER.unpack_from(data)
    return Item(data[HEADER_BYTES:], expires_at or None)


def cleared_at_s(expires_at: int | None) -> int:
    """When the server may drop an item: in seconds since 1970, which are never mistaken for a duration; 0 for never."""
    if expires_at is None:
        return 0
    second = -(-expires_at // 1000) + CLEARED_AFTER_S
    return second if second <= LATEST_S else 0
