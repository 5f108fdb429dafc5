"""The strings of the atomic steps in one transaction: each is read once, and changes are written at the end.

Most atomic steps read a few strings and change some of them. On the tables themselves, every command would search for
its row again, and need a savepoint in case a guard stops after a write. Here a step that stops is undone in memory, and
steps that share a commit share rows: a counter that all of them increment is read once and written once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, TypeAlias

from keystead.stores.commands import Call
from keystead.stores.sql.key_commands import OF_ANY_KIND
from keystead.stores.sql.key_tables import STRING, KeyRow, StringKeys, wrong_kind
from keystead.stores.sql.string_commands import HANDLERS as OF_STRINGS
from keystead.stores.sqlite.sqlite_tables import ADD_STRING, SET_BOTH, SET_DEADLINE, SET_VALUE, VALUE, SqliteTables

_Found: TypeAlias = tuple[int, int, int | None, int, bytes | None]

COMMANDS: Final = frozenset({*OF_ANY_KIND, *OF_STRINGS})

# Longer values are read on demand. SQLite knows the length without reading the value.
_COLUMNS: Final = "id, kind, expires_at, size, iif(length(value) <= 2000, value, NULL)"
# The plus keeps SQLite from searching by key: the id finds the row, and the rest verifies it.
_BY_ID: Final = f"SELECT {_COLUMNS} FROM keys WHERE id = ? AND +key = ? AND kind = 1"  # noqa: S608 - a constant
_BY_KEY: Final = f"SELECT {_COLUMNS} FROM keys WHERE key = ?"  # noqa: S608 - a constant


class Held:
    """The state of a key after the commands so far.

    found  its row in the table, which may have expired: id, kind, deadline, size, value
    kind   0: the key does not exist, or has expired
    value  None: not read yet
    step   the last step that changed it; 0: none
    """

    __slots__ = ("expires_at", "found", "kind", "step", "value")

    def __init__(self, found: _Found | None) -> None:
        self.found = found
        self.step = 0
        self.value: bytes | None
        if found is None:
            self.kind, self.expires_at, self.value = 0, None, None
        else:
            _, self.kind, self.expires_at, _, self.value = found


class BufferedStrings(StringKeys):
    """After any number of steps, `flush` writes their changes to the tables, before anything else uses these.

    A step starts with `begin_step`, and ends with `keep_step` or `undo_step`. After a rollback, call `forget`.
    """

    def __init__(self, tables: SqliteTables) -> None:
        self._tables = tables
        self._held: dict[bytes, Held] = {}
        self._step = 0
        self._before: list[tuple[Held, int, int | None, bytes | None, int]] = []  # what this step has changed

    def begin_step(self, calls: Sequence[Call] = ()) -> None:
        self._step += 1

    def keep_step(self) -> None:
        self._before.clear()

    def undo_step(self) -> None:
        for held, kind, expires_at, value, step in reversed(self._before):
            held.kind, held.expires_at, held.value, held.step = kind, expires_at, value, step
        self._before.clear()

    def forget(self) -> None:
        self._held.clear()
        self._before.clear()

    def flush(self) -> None:
        if not self._held:
            return
        added: list[tuple[bytes, bytes, int | None]] = []
        changed: list[tuple[bytes, int]] = []
        for key, held in self._held.items():
            found, value = held.found, held.value
            if not held.step or (found is None and not held.kind):
                continue
            if found is None:
                added.append((key, value or b"", held.expires_at))
            elif held.kind == found[1] == STRING and found[2] == held.expires_at and value is not None:
                changed.append((value, found[0]))
            else:
                self._write(key, held, found)
        self._held.clear()
        if len(added) == 1:
            self._tables.add_string(*added[0])
        elif added:
            self._tables.executemany(ADD_STRING, added)
        if len(changed) == 1:
            self._tables.execute(SET_VALUE, changed[0])
        elif changed:
            self._tables.executemany(SET_VALUE, changed)

    def _write(self, key: bytes, held: Held, found: _Found) -> None:
        tables = self._tables
        if not held.kind:
            tables.delete(key)
        elif held.kind != STRING or held.value is None:
            tables.execute(SET_DEADLINE, (held.expires_at, found[0]))
        elif found[1] != STRING:
            tables.put(key, held.value, held.expires_at)
        else:
            tables.execute(SET_BOTH, (held.value, held.expires_at, found[0]))

    def hold(self, key: bytes) -> Held:
        """The state of this key. It is read at its first use."""
        held = self._held.get(key)
        if held is None:
            tables, found = self._tables, None
            known = tables.string_ids.get(key)
            if known is not None:
                found = tables.execute(_BY_ID, (known, key)).fetchone()
            if found is None:
                found = tables.execute(_BY_KEY, (key,)).fetchone()
                if found is not None and found[1] == STRING:
                    tables.remember(key, found[0])
            held = self._held[key] = Held(found)
        if held.expires_at is not None and held.expires_at <= self.now_ms:
            held.kind = 0
        return held

    def change(self, held: Held, kind: int, expires_at: int | None, value: bytes | None) -> None:
        """Change a key. One whose deadline has passed does not exist."""
        self._before.append((held, held.kind, held.expires_at, held.value, held.step))
        held.kind = kind if expires_at is None or expires_at > self.now_ms else 0
        held.expires_at, held.value, held.step = expires_at, value, self._step

    # --- as of every store's keys ----------------------------------------------------------------------------

    def live(self, key: bytes) -> KeyRow | None:
        held = self.hold(key)
        if not held.kind:
            return None
        row_id, size = (0, 0) if held.found is None else (held.found[0], held.found[3])
        return KeyRow(row_id, held.kind, held.expires_at, size)

    def value(self, key: bytes, row: KeyRow) -> bytes:
        return self._value(self._held[key])

    def _value(self, held: Held) -> bytes:
        if held.value is None and held.found is not None:
            [held.value] = self._tables.execute(VALUE, (held.found[0],)).fetchone()
        return held.value or b""

    def string(self, key: bytes) -> bytes | None:
        held = self.hold(key)
        if not held.kind:
            return None
        if held.kind != STRING:
            raise wrong_kind(held.kind, STRING)
        return self._value(held) if held.value is None else held.value

    def put(self, key: bytes, value: bytes, expires_at: int | None) -> None:
        self.change(self.hold(key), STRING, expires_at, value)

    def delete(self, key: bytes) -> bool:
        held = self.hold(key)
        was_live = held.kind > 0
        self.change(held, 0, None, None)
        return was_live

    def set_deadline(self, key: bytes, row: KeyRow, expires_at: int | None) -> None:
        held = self._held[key]
        self.change(held, held.kind, expires_at, held.value)

    def set_value(self, key: bytes, row: KeyRow, value: bytes) -> None:
        held = self._held[key]
        self.change(held, held.kind, held.expires_at, value)
