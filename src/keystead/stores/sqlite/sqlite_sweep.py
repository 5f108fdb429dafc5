"""Removes expired keys, in steps so small that they delay no caller.

Expired keys are already invisible; this only frees their space. It runs in the background while a store is open.
"""

from __future__ import annotations

from keystead.stores.sql.key_tables import ENTRY_TABLES
from keystead.stores.sqlite.sqlite_tables import SqliteTables

MESSAGES_KEPT_MS = 60_000
FEWEST, MOST = 16, 2_048
# If a step, with its commit, takes longer than the first, the next is smaller; if less than the second, larger.
LONG_S, SHORT_S = 0.008, 0.003

_ENTRY_KEYS = {"fields": "field", "scored": "member", "items": "place", "entries": "entry"}


def is_due(tables: SqliteTables, now_ms: int) -> bool:
    """Whether there is anything to remove. Only looks at the end of each index, so the cost is constant."""
    wall_ms = tables.wall_ms()
    found = tables.execute(
        "SELECT EXISTS (SELECT 1 FROM keys WHERE expires_at <= ?) OR EXISTS (SELECT 1 FROM garbage)"
        " OR EXISTS (SELECT 1 FROM subscribers WHERE expires_at < ?)"
        " OR EXISTS (SELECT 1 FROM (SELECT sent_at FROM messages ORDER BY id LIMIT 1)"
        " WHERE sent_at NOT BETWEEN ? AND ?)",
        (now_ms, wall_ms, *_retention_ms(wall_ms)),
    ).fetchone()
    return bool(found[0])


def _retention_ms(wall_ms: int) -> tuple[int, int]:
    """The range of times whose messages are kept. A message from the future was sent before the clock was set back."""
    return wall_ms - MESSAGES_KEPT_MS, wall_ms + MESSAGES_KEPT_MS


def sweep(tables: SqliteTables, now_ms: int, limit: int) -> bool:
    """Remove up to `limit` expired keys, as many entries and as many messages, inside a transaction.

    True if there may be more.
    """
    dead = tables.execute(
        "DELETE FROM keys WHERE id IN (SELECT id FROM keys WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)"
        " RETURNING id, kind, size",
        (now_ms, limit),
    ).fetchall()
    entries = limit
    for owner, kind, size in dead:
        if size <= entries:
            tables.discard(owner, kind, size)
        else:
            tables.postpone(owner, kind)
        entries = max(entries - size, 0)
    while entries and (garbage := tables.execute("SELECT owner, kind FROM garbage LIMIT 1").fetchone()):
        owner, kind = garbage
        entries = max(entries - _remove_entries(tables, owner, kind, entries), 0)
    wall_ms = tables.wall_ms()
    messages = tables.execute(
        "DELETE FROM messages WHERE id IN (SELECT id FROM messages ORDER BY id LIMIT ?)"
        " AND sent_at NOT BETWEEN ? AND ?",
        (limit, *_retention_ms(wall_ms)),
    ).rowcount
    tables.execute("DELETE FROM subscribers WHERE expires_at < ?", (wall_ms,))
    return len(dead) == limit or entries == 0 or messages == limit


def _remove_entries(tables: SqliteTables, owner: int, kind: int, limit: int) -> int:
    """Remove up to `limit` entries of a deleted key; returns how much of the limit that took."""
    table = ENTRY_TABLES[kind]
    key = _ENTRY_KEYS[table]
    gone = tables.execute(
        f"DELETE FROM {table} WHERE owner = ? AND {key} IN (SELECT {key} FROM {table} WHERE owner = ? LIMIT ?)",  # noqa: S608 - constants
        (owner, owner, limit),
    ).rowcount
    if gone == limit:
        return limit
    tables.execute("DELETE FROM garbage WHERE owner = ?", (owner,))
    return gone + 1


def next_limit(limit: int, took_s: float) -> int:
    """Larger steps while they are quick, smaller ones when they may have delayed a caller."""
    if took_s > LONG_S:
        return max(FEWEST, limit // 2)
    return min(MOST, limit * 2) if took_s < SHORT_S else limit
