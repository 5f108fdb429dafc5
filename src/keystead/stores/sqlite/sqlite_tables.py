"""The tables in a SQLite file. Commands query and change them directly."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence

from keystead.stores.commands import Call
from keystead.stores.sql.key_tables import DELETE_AT_ONCE, ENTRY_TABLES, STRING, KeyRow, KeyTables

SCHEMA_VERSION = 1
SCHEMA = """
CREATE TABLE keys (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    key BLOB NOT NULL UNIQUE,
    kind INTEGER NOT NULL,
    expires_at INTEGER,
    size INTEGER NOT NULL DEFAULT 0,
    value BLOB
);
CREATE INDEX keys_by_deadline ON keys (expires_at) WHERE expires_at IS NOT NULL;
CREATE TABLE fields (owner INTEGER, field BLOB, value BLOB, PRIMARY KEY (owner, field)) WITHOUT ROWID;
CREATE TABLE scored (owner INTEGER, member BLOB, score REAL, PRIMARY KEY (owner, member)) WITHOUT ROWID;
CREATE INDEX scored_in_order ON scored (owner, score, member);
CREATE TABLE items (owner INTEGER, place INTEGER, item BLOB, PRIMARY KEY (owner, place)) WITHOUT ROWID;
CREATE TABLE entries (owner INTEGER, entry BLOB, body BLOB, PRIMARY KEY (owner, entry)) WITHOUT ROWID;
CREATE TABLE garbage (owner INTEGER PRIMARY KEY, kind INTEGER NOT NULL);
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, channel BLOB NOT NULL, data BLOB NOT NULL, sent_at INTEGER NOT NULL
);
CREATE TABLE subscribers (id TEXT, channel BLOB, expires_at INTEGER NOT NULL, PRIMARY KEY (id, channel)) WITHOUT ROWID;
"""

REMEMBERED = 50_000  # ids of strings, a few megabytes

# The plus keeps SQLite from searching by key: the id finds the row, and the rest verifies it.
_KNOWN = "SELECT expires_at, value FROM keys WHERE id = ? AND +key = ? AND kind = 1"
# For a key without a deadline, before and after: SQLite need not touch the index of deadlines.
_CHANGE_LASTING = "UPDATE keys SET value = ? WHERE id = ? AND +key = ? AND kind = 1 AND expires_at IS NULL"
_CHANGE_KNOWN = "UPDATE keys SET value = ?, expires_at = ? WHERE id = ? AND +key = ? AND kind = 1"
_PUT = (
    "INSERT INTO keys (key, kind, value, expires_at) VALUES (?, 1, ?, ?) ON CONFLICT (key) DO UPDATE"
    " SET value = excluded.value, expires_at = excluded.expires_at WHERE kind = 1 RETURNING id"
)
ADD_STRING = "INSERT INTO keys (key, kind, value, expires_at) VALUES (?, 1, ?, ?)"
VALUE = "SELECT value FROM keys WHERE id = ?"
SET_VALUE = "UPDATE keys SET value = ? WHERE id = ?"
SET_DEADLINE = "UPDATE keys SET expires_at = ? WHERE id = ?"
SET_BOTH = "UPDATE keys SET value = ?, expires_at = ? WHERE id = ?"
_FIELD = "SELECT value FROM fields WHERE owner = ? AND field = ?"
_CHANGE_FIELD = "UPDATE fields SET value = ? WHERE owner = ? AND field = ?"
_PUT_FIELD = (
    "INSERT INTO fields (owner, field, value) VALUES (?, ?, ?)"
    " ON CONFLICT (owner, field) DO UPDATE SET value = excluded.value"
)
_ADD_FIELD = "INSERT INTO fields (owner, field, value) VALUES (?, ?, ?) ON CONFLICT (owner, field) DO NOTHING"


class TooWide(Exception):
    """The command would touch too many entries for this thread; it has done nothing."""


class SqliteTables(KeyTables):
    """`width` limits what a read may touch."""

    def __init__(self, connection: sqlite3.Connection, wall_ms: Callable[[], int]) -> None:
        self.execute: Callable[..., sqlite3.Cursor] = connection.execute
        self.later = connection.execute
        self.executemany = connection.executemany
        self.wall_ms = wall_ms
        self.now_ms = 0
        self.string_ids: dict[bytes, int] = {}
        self.width: int | None = None
        self.published = False
        self._published_before = False

    def remember(self, key: bytes, row_id: int) -> None:
        """Cache the id of a string's row: with it, the row is found in one search instead of two.

        The cached row may be stale: it may be deleted, or its id may belong to another key after a rollback. So queries
        also check the key and the kind.
        """
        if len(self.string_ids) >= REMEMBERED:
            self.string_ids.clear()
        self.string_ids[key] = row_id

    # --- whole keys ----------------------------------------------------------------------------------------

    def live(self, key: bytes) -> KeyRow | None:
        found = self.execute("SELECT id, kind, expires_at, size FROM keys WHERE key = ?", (key,)).fetchone()
        if found is None or (found[2] is not None and found[2] <= self.now_ms):
            return None
        if self.width is not None and found[3] > self.width:
            raise TooWide
        return KeyRow._make(found)

    def value(self, key: bytes, row: KeyRow) -> bytes:
        [value] = self.execute(VALUE, (row.id,)).fetchone()
        return value or b""

    def string(self, key: bytes) -> bytes | None:
        # The hottest read: `holding` is inlined.
        known = self.string_ids.get(key)
        if known is not None:
            found = self.execute(_KNOWN, (known, key)).fetchone()
            if found is not None:
                expires_at, value = found
                return value if expires_at is None or expires_at > self.now_ms else None
        row = self.holding(key, STRING)
        if row is None:
            return None
        self.remember(key, row.id)
        return self.value(key, row)

    def put(self, key: bytes, value: bytes, expires_at: int | None) -> None:
        known = self.string_ids.get(key)
        if known is not None:
            if expires_at is None and self.execute(_CHANGE_LASTING, (value, known, key)).rowcount:
                return
            if self.execute(_CHANGE_KNOWN, (value, expires_at, known, key)).rowcount:
                return
        found = self.execute(_PUT, (key, value, expires_at)).fetchone()
        # Finds nothing if the key holds a collection.
        self.remember(key, self._insert(key, STRING, value, expires_at) if found is None else found[0])

    def change_lasting(self, changes: Sequence[tuple[bytes, int, bytes]]) -> int:
        """Change the values of strings that do not expire (each with its id and key); returns how many were found."""
        return self.executemany(_CHANGE_LASTING, changes).rowcount

    def add_string(self, key: bytes, value: bytes, expires_at: int | None) -> None:
        """Insert a string that has no row."""
        self.remember(key, self.execute(ADD_STRING, (key, value, expires_at)).lastrowid or 0)

    def create(self, key: bytes, kind: int) -> int:
        return self._insert(key, kind, None, None)

    def _insert(self, key: bytes, kind: int, value: bytes | None, expires_at: int | None) -> int:
        self.delete(key)
        cursor = self.execute(
            "INSERT INTO keys (key, kind, expires_at, value) VALUES (?, ?, ?, ?)", (key, kind, expires_at, value)
        )
        return cursor.lastrowid or 0

    def delete(self, key: bytes) -> bool:
        self.string_ids.pop(key, None)
        found = self.execute("DELETE FROM keys WHERE key = ? RETURNING id, kind, size, expires_at", (key,)).fetchone()
        if found is None:
            return False
        owner, kind, size, expires_at = found
        self.discard(owner, kind, size)
        return expires_at is None or expires_at > self.now_ms

    def discard(self, owner: int, kind: int, size: int) -> None:
        """Delete the entries of a key whose row was deleted."""
        if kind == STRING:
            return
        if size <= DELETE_AT_ONCE:
            self.execute(f"DELETE FROM {ENTRY_TABLES[kind]} WHERE owner = ?", (owner,))  # noqa: S608 - a constant
        else:
            self.postpone(owner, kind)

    def postpone(self, owner: int, kind: int) -> None:
        """Leave the entries of a deleted key to the sweep."""
        self.execute("INSERT INTO garbage (owner, kind) VALUES (?, ?)", (owner, kind))

    def set_deadline(self, key: bytes, row: KeyRow, expires_at: int | None) -> None:
        self.execute(SET_DEADLINE, (expires_at, row.id))

    def set_value(self, key: bytes, row: KeyRow, value: bytes) -> None:
        self.execute(SET_VALUE, (value, row.id))

    def set_size(self, key: bytes, owner: int, size: int, last: bytes | None = None) -> None:
        if last is None:
            self.execute("UPDATE keys SET size = ? WHERE id = ?", (size, owner))
        else:
            self.execute("UPDATE keys SET value = ?, size = ? WHERE id = ?", (last, size, owner))

    def page(self, after: int, limit: int) -> list[tuple[int, bytes, int, int | None]]:
        return self.execute(
            "SELECT id, key, kind, expires_at FROM keys WHERE id > ? ORDER BY id LIMIT ?", (after, limit)
        ).fetchall()

    def count(self) -> int:
        every: int = self.execute("SELECT count(*) FROM keys").fetchone()[0]
        dead: int = self.execute("SELECT count(*) FROM keys WHERE expires_at <= ?", (self.now_ms,)).fetchone()[0]
        return every - dead

    # --- fields of hashes, members of sets -----------------------------------------------------------------

    def field(self, owner: int, field: bytes) -> tuple[bytes] | None:
        found: tuple[bytes] | None = self.execute(_FIELD, (owner, field)).fetchone()
        return found

    def fields(self, owner: int) -> list[tuple[bytes, bytes]]:
        return self.execute("SELECT field, value FROM fields WHERE owner = ?", (owner,)).fetchall()

    def put_field(self, owner: int, field: bytes, value: bytes, *, new: bool | None = None) -> bool:
        if not new and self.execute(_CHANGE_FIELD, (value, owner, field)).rowcount:
            return False
        self.execute(_PUT_FIELD, (owner, field, value))
        return True

    def add_field(self, owner: int, field: bytes, value: bytes | None = None) -> bool:
        return self.execute(_ADD_FIELD, (owner, field, value)).rowcount == 1

    def drop_field(self, owner: int, field: bytes) -> bool:
        return self.execute("DELETE FROM fields WHERE owner = ? AND field = ?", (owner, field)).rowcount == 1

    # --- members of sorted sets ----------------------------------------------------------------------------

    def score(self, owner: int, member: bytes) -> float | None:
        found = self.execute("SELECT score FROM scored WHERE owner = ? AND member = ?", (owner, member)).fetchone()
        return None if found is None else found[0]

    def put_score(self, key: bytes, owner: int, member: bytes, score: float, *, new: bool) -> None:
        if new:
            self.execute("INSERT INTO scored (owner, member, score) VALUES (?, ?, ?)", (owner, member, score))
        else:
            self.execute("UPDATE scored SET score = ? WHERE owner = ? AND member = ?", (score, owner, member))

    def drop_score(self, owner: int, member: bytes) -> bool:
        return self.execute("DELETE FROM scored WHERE owner = ? AND member = ?", (owner, member)).rowcount == 1

    # --- one atomic step -----------------------------------------------------------------------------------

    def begin_step(self, calls: Sequence[Call]) -> None:
        self._published_before = self.published
        self.execute("SAVEPOINT step")

    def keep_step(self) -> None:
        self.execute("RELEASE step")

    def undo_step(self) -> None:
        self.published = self._published_before
        self.execute("ROLLBACK TO step")
        self.execute("RELEASE step")

    # --- messages ------------------------------------------------------------------------------------------

    def publish(self, channel: bytes, data: bytes) -> int:
        """Store the message if the channel has subscribers; they read it after the commit."""
        now_ms = self.wall_ms()
        listening: int = self.execute(
            "SELECT count(*) FROM subscribers WHERE channel = ? AND expires_at > ?", (channel, now_ms)
        ).fetchone()[0]
        if listening:
            self.execute("INSERT INTO messages (channel, data, sent_at) VALUES (?, ?, ?)", (channel, data, now_ms))
            self.published = True
        return listening
