"""Removes expired keys, in steps so small that they delay no caller.

Expired keys are already invisible; this only frees their space. It runs in the background while a store is open, in
one process at a time.
"""

from __future__ import annotations

from keystead.stores.database.cached_tables import CachedTables
from keystead.stores.database.dialect import Dialect
from keystead.stores.database.hashed_names import text_of
from keystead.stores.sql import Interpreter
from keystead.stores.sql.key_tables import ENTRY_TABLES

MESSAGES_KEPT_MS = 60_000
KEYS_AT_ONCE, ENTRIES_AT_ONCE = 200, 1_000

_ENTRY_KEYS = {"fields": "field", "scored": "member", "items": "place", "entries": "entry"}


def dead_keys(interpreter: Interpreter[CachedTables], dialect: Dialect) -> tuple[list[bytes], bool]:
    """Some expired keys, the oldest first, and whether there is anything else to remove. Reads only."""
    tables = interpreter.tables
    dead = tables.execute(
        f"SELECT {dialect.key}, rest FROM keys WHERE expires_at <= ? ORDER BY expires_at LIMIT ?",  # noqa: S608
        (tables.now_ms, KEYS_AT_ONCE),
    ).fetchall()
    wall_ms = tables.wall_ms()
    others = (
        tables.execute("SELECT owner FROM garbage LIMIT 1").fetchall()
        + tables.execute("SELECT id FROM subscribers WHERE expires_at < ? LIMIT 1", (wall_ms,)).fetchall()
        + tables.execute("SELECT id FROM messages WHERE sent_at < ? LIMIT 1", (wall_ms - MESSAGES_KEPT_MS,)).fetchall()
    )
    return [text_of(name, rest) for name, rest in dead], bool(others)


def bury(interpreter: Interpreter[CachedTables], keys: list[bytes]) -> int:
    """Remove those of these keys that have expired. They are locked; a key whose lifetime was extended before stays."""
    return sum(interpreter.tables.bury(key) >= 0 for key in keys)


def remove_others(interpreter: Interpreter[CachedTables], dialect: Dialect) -> bool:
    """Remove some orphaned rows; True if there may be more. Ids are never reused."""
    tables = interpreter.tables
    if not tables.ask(dialect.lock_sweep()).rows:
        return False
    wall_ms = tables.wall_ms()
    left = ENTRIES_AT_ONCE
    while left > 0 and (garbage := tables.execute("SELECT owner, kind FROM garbage LIMIT 1").fetchone()):
        owner, kind = garbage
        table = ENTRY_TABLES[kind]
        gone = tables.ask(dialect.remove_oldest(table, _ENTRY_KEYS[table], "owner = ?", left, (owner,))).rowcount
        if gone < left:
            tables.execute("DELETE FROM garbage WHERE owner = ?", (owner,))
        left -= gone + 1
    messages = tables.ask(
        dialect.remove_oldest("messages", "id", "sent_at < ?", ENTRIES_AT_ONCE, (wall_ms - MESSAGES_KEPT_MS,))
    ).rowcount
    tables.execute("DELETE FROM subscribers WHERE expires_at < ?", (wall_ms,))
    return left <= 0 or messages == ENTRIES_AT_ONCE
