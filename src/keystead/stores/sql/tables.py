"""The tables a SQL store keeps its keys in, and the few statements on whole keys.

`keys` has a row for each key, with its kind, deadline and size; a string's value stands in it. What a
collection holds stands in a table of its kind, under the id of the key. An id is never given twice, so
a large collection is deleted by deleting its row, and its entries go later, in small steps.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import NamedTuple

from keystead.errors import WrongKind

STRING, HASH, SET, ZSET, LIST, STREAM = range(1, 7)
KIND_NAMES = {STRING: "string", HASH: "hash", SET: "set", ZSET: "zset", LIST: "list", STREAM: "stream"}
KIND_NUMBERS = {name: number for number, name in KIND_NAMES.items()}
ENTRY_TABLES = {HASH: "fields", SET: "fields", ZSET: "scored", LIST: "items", STREAM: "entries"}

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

# Up to this many entries are deleted with their key; more are left to the sweep.
DELETE_AT_ONCE = 64


class TooWide(Exception):
    """The command would touch more entries than may be read here; it has done nothing."""


class Row(NamedTuple):
    id: int
    kind: int
    expires_at: int | None
    size: int


class Tables:
    """One connection's view of the tables. `now_ms` is set for each batch; `width` limits what a read may touch."""

    def __init__(self, connection: sqlite3.Connection, wall_ms: Callable[[], int]) -> None:
        self.execute = connection.execute
        self.executemany = connection.executemany
        self.wall_ms = wall_ms
        self.now_ms = 0
        self.string_ids: dict[bytes, int] = {}
        self.width: int | None = None
        self.published = False

    def remember(self, key: bytes, row_id: int) -> None:
        """Keep the id of a string's row: found by it, the row costs one search instead of two.

        What is remembered may be wrong: the row may be gone, or its id, given in a transaction that was rolled
        back, may belong to another by now. Whoever uses it asks for the key and the kind as well.
        """
        if len(self.string_ids) >= REMEMBERED:
            self.string_ids.clear()
        self.string_ids[key] = row_id

    # --- whole keys ----------------------------------------------------------------------------------------

    def live(self, key: bytes) -> Row | None:
        """The row of a key that is there and has not expired."""
        found = self.execute("SELECT id, kind, expires_at, size FROM keys WHERE key = ?", (key,)).fetchone()
        if found is None or (found[2] is not None and found[2] <= self.now_ms):
            return None
        if self.width is not None and found[3] > self.width:
            raise TooWide
        return Row._make(found)

    def holding(self, key: bytes, kind: int) -> Row | None:
        """The row of a live key of this kind; WrongKind if it is of another."""
        row = self.live(key)
        if row is not None and row.kind != kind:
            raise wrong_kind(row.kind, kind)
        return row

    def value(self, row: Row) -> bytes:
        """What stands in the row itself: a string, or the last id of a stream. It may be large, so it is asked for."""
        [value] = self.execute("SELECT value FROM keys WHERE id = ?", (row.id,)).fetchone()
        return value or b""

    def create(self, key: bytes, kind: int, value: bytes | None = None, expires_at: int | None = None) -> int:
        """A new row for a key that has none, or only an expired one."""
        self.delete(key)
        cursor = self.execute(
            "INSERT INTO keys (key, kind, expires_at, value) VALUES (?, ?, ?, ?)",
            (key, kind, expires_at, value),
        )
        return cursor.lastrowid or 0

    def delete(self, key: bytes) -> bool:
        """Remove a key, expired or not; True where it was there and had not expired."""
        self.string_ids.pop(key, None)
        found = self.execute("DELETE FROM keys WHERE key = ? RETURNING id, kind, size, expires_at", (key,)).fetchone()
        if found is None:
            return False
        owner, kind, size, expires_at = found
        self.discard(owner, kind, size)
        return expires_at is None or expires_at > self.now_ms

    def discard(self, owner: int, kind: int, size: int) -> None:
        """Let go of the entries of a key whose row is gone."""
        if kind == STRING:
            return
        if size <= DELETE_AT_ONCE:
            self.execute(f"DELETE FROM {ENTRY_TABLES[kind]} WHERE owner = ?", (owner,))  # noqa: S608 - a constant
        else:
            self.postpone(owner, kind)

    def postpone(self, owner: int, kind: int) -> None:
        """Leave the entries of a key whose row is gone to the sweep."""
        self.execute("INSERT INTO garbage (owner, kind) VALUES (?, ?)", (owner, kind))

    def resize(self, row_id: int, key: bytes, size: int) -> None:
        """Write down how many entries there are now. A collection without entries is no key (a stream is)."""
        if size:
            self.execute("UPDATE keys SET size = ? WHERE id = ?", (size, row_id))
        else:
            self.delete(key)

    def set_deadline(self, row_id: int, expires_at: int | None) -> None:
        self.execute("UPDATE keys SET expires_at = ? WHERE id = ?", (expires_at, row_id))


def wrong_kind(held: int, wanted: int) -> WrongKind:
    return WrongKind(f"the key holds a {KIND_NAMES[held]}, not a {KIND_NAMES[wanted]}")


def span(indexes: tuple[int, int], size: int) -> tuple[int, int]:
    """An index range as Redis counts it (negative: from the end), as the first place and how many."""
    start, stop = indexes
    first = max(start + size if start < 0 else start, 0)
    last = min(stop + size if stop < 0 else stop, size - 1)
    return (first, last - first + 1) if first <= last else (0, 0)
