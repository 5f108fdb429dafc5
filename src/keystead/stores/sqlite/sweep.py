"""Removing what has expired, in steps so small that nobody waits for them.

Expired keys are invisible at once; this only gives their room back. It runs by itself while a store is open.
"""

from __future__ import annotations

from keystead.stores.sql.tables import ENTRY_TABLES, Tables

MESSAGES_KEPT_MS = 60_000
FEWEST, MOST = 16, 2_048
# What one step may take, its commit included, before the next is made smaller, or larger.
LONG_S, SHORT_S = 0.008, 0.003

_ENTRY_KEYS = {"fields": "field", "scored": "member", "items": "place", "entries": "entry"}


def is_due(tables: Tables, now_ms: int) -> bool:
    """Whether there is anything to remove: two looks into indexes."""
    found = tables.execute(
        "SELECT EXISTS (SELECT 1 FROM keys WHERE expires_at <= ?) OR EXISTS (SELECT 1 FROM garbage)"
        " OR EXISTS (SELECT 1 FROM messages WHERE sent_at < ?)",
        (now_ms, tables.wall_ms() - MESSAGES_KEPT_MS),
    ).fetchone()
    return bool(found[0])


def sweep(tables: Tables, now_ms: int, limit: int) -> bool:
    """Remove up to `limit` expired keys and entries, inside a transaction. True where there may be more."""
    dead = tables.execute(
        "DELETE FROM keys WHERE id IN (SELECT id FROM keys WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)"
        " RETURNING id, kind, size",
        (now_ms, limit),
    ).fetchall()
    for owner, kind, size in dead:
        tables.discard(owner, kind, size)
    more = len(dead) == limit
    garbage = tables.execute("SELECT owner, kind FROM garbage LIMIT 1").fetchone()
    if garbage is not None:
        more = True
        owner, kind = garbage
        table = ENTRY_TABLES[kind]
        key = _ENTRY_KEYS[table]
        gone = tables.execute(
            f"DELETE FROM {table} WHERE owner = ?1 AND {key} IN (SELECT {key} FROM {table} WHERE owner = ?1 LIMIT ?2)",  # noqa: S608 - constants
            (owner, limit),
        ).rowcount
        if gone < limit:
            tables.execute("DELETE FROM garbage WHERE owner = ?", (owner,))
    wall_ms = tables.wall_ms()
    tables.execute(
        "DELETE FROM messages WHERE id IN (SELECT id FROM messages WHERE sent_at < ? LIMIT ?)",
        (wall_ms - MESSAGES_KEPT_MS, limit),
    )
    tables.execute("DELETE FROM subscribers WHERE expires_at < ?", (wall_ms,))
    return more


def next_limit(limit: int, took_s: float) -> int:
    """More at once while that is quick, less when somebody might have had to wait."""
    if took_s > LONG_S:
        return max(FEWEST, limit // 2)
    return min(MOST, limit * 2) if took_s < SHORT_S else limit
