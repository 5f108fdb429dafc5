"""What Memcached keeps for a key: a name that it takes, and a value with its exact deadline.

An item is `<deadline in ms since 1970, 8 bytes, 0 for none><value>`, with MARK as its flags. Memcached counts seconds
by a clock that ticks once a second, so its own expiry only clears up: it comes a little after the deadline, never
before.
"""

from __future__ import annotations

import hashlib
import struct
from typing import NamedTuple

from keystead.errors import BadArgument, WrongKind
from keystead.stores.sql.key_tables import STRING, KeyRow, StringKeys

KEY_BYTES = 250  # the longest key of Memcached
HASHED = b"sha256:"
MARK = 0x4B_53_30_31  # "KS01", the flags of what Keystead wrote
_HEADER = struct.Struct(">Q")
HEADER_BYTES = _HEADER.size
CLEARED_AFTER_S = 2  # how long after its deadline the server may let go of it
LATEST_S = 2**31 - 1  # the last second that the server can be told
_PLAIN = bytes(range(0x21, 0x7F)) + bytes(range(0x80, 0x100))


def name_of(prefix: bytes, key: bytes) -> bytes:
    """The key as Memcached knows it; no two keys share one.

    A key goes as it is. One that Memcached does not take (spaces, control characters, too long) goes as its SHA-256
    digest, and so does one that looks like such a digest, so that nothing can be taken for another.
    """
    if len(prefix) + len(key) > KEY_BYTES or key.startswith(HASHED) or key.translate(None, _PLAIN):
        return prefix + HASHED + hashlib.sha256(key).hexdigest().encode()
    return prefix + key


class Item(NamedTuple):
    value: bytes
    expires_at: int | None


def packed(item: Item) -> bytes:
    return _HEADER.pack(item.expires_at or 0) + item.value


def unpacked(data: bytes, flags: int) -> Item:
    """Raises WrongKind where this is nothing that Keystead wrote."""
    if flags != MARK or len(data) < HEADER_BYTES:
        raise WrongKind("the key holds what Keystead did not write; give the URL a prefix that nobody else uses")
    [expires_at] = _HEADER.unpack_from(data)
    return Item(data[HEADER_BYTES:], expires_at or None)


def cleared_at_s(expires_at: int | None) -> int:
    """When the server may let go of an item: seconds since 1970, which is never taken for a duration; 0 for never."""
    if expires_at is None:
        return 0
    second = -(-expires_at // 1000) + CLEARED_AFTER_S
    return second if second <= LATEST_S else 0


class Slot(StringKeys):
    """One key while commands run on it. `item` is what it holds, and what it is to hold when they have run."""

    def __init__(self, item: Item | None, largest: int) -> None:
        self.item = item
        self._largest = largest
        self._before: Item | None = None

    def live(self, key: bytes) -> KeyRow | None:
        item = self.item
        if item is None or (item.expires_at is not None and item.expires_at <= self.now_ms):
            return None
        return KeyRow(0, STRING, item.expires_at, 0)

    def value(self, key: bytes, row: KeyRow) -> bytes:
        return b"" if self.item is None else self.item.value

    def string(self, key: bytes) -> bytes | None:
        row = self.live(key)
        return None if row is None else self.value(key, row)

    def put(self, key: bytes, value: bytes, expires_at: int | None) -> None:
        # Told to keep more than it can, Memcached would drop what it has.
        if len(value) > self._largest:
            raise BadArgument(f"the value has {len(value)} bytes, and the store keeps at most {self._largest}")
        self.item = Item(value, expires_at)

    def delete(self, key: bytes) -> bool:
        was_there = self.live(key) is not None
        self.item = None
        return was_there

    def set_deadline(self, key: bytes, row: KeyRow, expires_at: int | None) -> None:
        self.item = Item(self.value(key, row), expires_at)

    def set_value(self, key: bytes, row: KeyRow, value: bytes) -> None:
        self.put(key, value, row.expires_at)

    def begin_step(self, calls: object) -> None:
        self._before = self.item

    def keep_step(self) -> None:
        self._before = None

    def undo_step(self) -> None:
        self.item = self._before
