"""Removing what has expired, in steps so small that nobody waits for them.

Expired keys are invisible at once; this only gives their room back. It runs by itself while a store is open.
"""

from __future__ import annotations

from keystead.stores.sql.key_tables import ENTRY_TABLES
from keystead.stores.sqlite.sqlite_tables import SqliteTables

MESSAGES_KEPT_MS = 60_000
FEWEST, MOST = 16, 2_048
# What one step may take, its commit included, before the next is made smaller, or larger.
LONG_S, SHORT_S = 0.008, 0.003

_ENTRY_KEYS = {"fields": "field", "scored": "member", "items": "place", "entries": "entry"}


def is_due(tables: SqliteTables, now_ms: int) -> bool:
    """Whether there is anything to remove: a look at the end of each index, however much there is."""
    wall_ms = tables.wall_ms()
    found = tables.execute(
        "SELECT EXISTS (SELECT 1 FROM keys WHERE expires_at <= ?) OR EXISTS (SELECT 1 FROM garbage)"
        " OR EXISTS (SELECT 1 FROM subscribers WHERE expires_at < ?)"
        " OR EXISTS (SELECT 1 FROM (SELECT sent_at FROM messages ORDER BY id LIMIT 1)"
        " WHERE sent_at NOT BETWEEN ? AND ?)",
        (now_ms, wall_ms, *_kept(wall_ms)),
    ).fetchone()
    return bool(found[0])


def _kept(wall_ms: int) -> tuple[int, int]:
    """When a message was sent that is kept. One from the future was sent before the clock was set back."""
    return wall_ms - MESSAGES_KEPT_MS, wall_ms + MESSAGES_KEPT_MS


def sweep(tables: SqliteTables, now_ms: int, limit: int) -> bool:
    """Remove up to `limit` expired keys, as many entries and as many messages, inside a transaction.

    True where there may be more.
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
        (limit, *_kept(wall_ms)),
    ).rowcount
    tables.execute("DELETE FROM subscribers WHERE expires_at < ?", (wall_ms,))
    return len(dead) == limit or entries == 0 or messages == limit


def _remove_entries(tables: SqliteTables, owner: int, kind: int, limit: int) -> int:
    """Remove up to `limit` entries of a key that is gone; how many steps of the limit that took."""
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
    """More at once while that is quick, less when somebody might have had to wait."""
    if took_s > LONG_S:
        return max(FEWEST, limit // 2)
    return min(MOST, limit * 2) if took_s < SHORT_S else limit
