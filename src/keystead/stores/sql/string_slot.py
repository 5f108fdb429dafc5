"""One key that holds a string, while commands run on it: for stores that read and write whole values."""

from __future__ import annotations

from typing import NamedTuple

from keystead.errors import BadArgument
from keystead.stores.sql.key_tables import STRING, KeyRow, StringKeys


class Item(NamedTuple):
    value: bytes
    expires_at: int | None


class Slot(StringKeys):
    """One key while commands run on it. `item` is its value, which the commands change."""

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
        # Refused here: Memcached would drop the old value.
        if len(value) > self._largest:
            raise BadArgument(f"the value has {len(value)} bytes; the store takes at most {self._largest}")
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
