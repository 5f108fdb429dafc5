"""The strings of one atomic step: each is read once, and changes are written at the end.

Most atomic steps read a few strings and change some of them. On the tables themselves, every command would search for
its row again, and need a savepoint in case a guard stops after a write. Here nothing is written before all guards have
held and no command can fail any more, so there is nothing to roll back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from keystead.stores.commands import Call
from keystead.stores.sql.key_commands import OF_ANY_KIND
from keystead.stores.sql.key_tables import STRING, KeyRow, StringKeys, wrong_kind
from keystead.stores.sql.string_commands import HANDLERS as OF_STRINGS
from keystead.stores.sqlite.sqlite_tables import SqliteTables

COMMANDS: Final = frozenset({*OF_ANY_KIND, *OF_STRINGS})

# Longer values are read on demand. SQLite knows the length without reading the value.
_COLUMNS: Final = "id, kind, expires_at, size, iif(length(value) <= 2000, value, NULL)"
# The plus keeps SQLite from searching by key: the id finds the row, and the rest verifies it.
_BY_ID: Final = f"SELECT {_COLUMNS} FROM keys WHERE id = ? AND +key = ? AND kind = 1"  # noqa: S608 - a constant
_BY_KEY: Final = f"SELECT {_COLUMNS} FROM keys WHERE key = ?"  # noqa: S608 - a constant


class _Held:
    """The state of a key after the commands so far. `found` is its row in the table, which may have expired."""

    __slots__ = ("found", "is_changed", "row", "value")

    def __init__(self, found: KeyRow | None, row: KeyRow | None, value: bytes | None) -> None:
        self.found = found
        self.row = row
        self.value = value  # None: not read yet
        self.is_changed = False


class BufferedStrings(StringKeys):
    """Begin with `begin_step`; then `keep_step` writes the changes, and `undo_step` discards them."""

    def __init__(self, tables: SqliteTables) -> None:
        self._tables = tables
        self._held: dict[bytes, _Held] = {}

    def begin_step(self, calls: Sequence[Call]) -> None:
        self._held.clear()

    def undo_step(self) -> None:
        self._held.clear()

    def keep_step(self) -> None:
        for key, held in self._held.items():
            if held.is_changed:
                self._write(key, held)
        self._held.clear()

    def _write(self, key: bytes, held: _Held) -> None:
        tables, found, row = self._tables, held.found, held.row
        if row is None:
            if found is not None:
                tables.delete(key)
        elif found is None:
            tables.add_string(key, self.value(key, row), row.expires_at)
        elif row is found:
            tables.set_value(key, row, self.value(key, row))
        elif row.kind != STRING or held.value is None:
            tables.set_deadline(key, row, row.expires_at)
        elif found.kind == STRING:
            tables.change_string(found.id, held.value, row.expires_at)
        else:
            tables.put(key, held.value, row.expires_at)

    def _hold(self, key: bytes) -> _Held:
        tables, found = self._tables, None
        known = tables.string_ids.get(key)
        if known is not None:
            found = tables.execute(_BY_ID, (known, key)).fetchone()
        if found is None:
            found = tables.execute(_BY_KEY, (key,)).fetchone()
        if found is None:
            held = _Held(None, None, None)
        else:
            row_id, kind, expires_at, size, value = found
            row = KeyRow(row_id, kind, expires_at, size)
            if kind == STRING and known is None:
                tables.remember(key, row_id)
            is_live = expires_at is None or expires_at > self.now_ms
            held = _Held(row, row if is_live else None, value)
        self._held[key] = held
        return held

    # --- as of every store's keys ----------------------------------------------------------------------------

    def live(self, key: bytes) -> KeyRow | None:
        held = self._held.get(key)
        return (self._hold(key) if held is None else held).row

    def value(self, key: bytes, row: KeyRow) -> bytes:
        held = self._held[key]
        if held.value is None:
            held.value = self._tables.value(key, row)
        return held.value

    def string(self, key: bytes) -> bytes | None:
        held = self._held.get(key)
        if held is None:
            held = self._hold(key)
        row = held.row
        if row is None:
            return None
        if row.kind != STRING:
            raise wrong_kind(row.kind, STRING)
        return self.value(key, row) if held.value is None else held.value

    def put(self, key: bytes, value: bytes, expires_at: int | None) -> None:
        held = self._held.get(key)
        if held is None:
            held = self._hold(key)
        is_live = expires_at is None or expires_at > self.now_ms
        held.row, held.value, held.is_changed = KeyRow(0, STRING, expires_at, 0) if is_live else None, value, True

    def delete(self, key: bytes) -> bool:
        held = self._held.get(key)
        if held is None:
            held = self._hold(key)
        was_live = held.row is not None
        held.row, held.value, held.is_changed = None, None, True
        return was_live

    def set_deadline(self, key: bytes, row: KeyRow, expires_at: int | None) -> None:
        held = self._held[key]
        is_live = expires_at is None or expires_at > self.now_ms
        held.row, held.is_changed = KeyRow(row.id, row.kind, expires_at, row.size) if is_live else None, True

    def set_value(self, key: bytes, row: KeyRow, value: bytes) -> None:
        held = self._held[key]
        held.value, held.is_changed = value, True
