"""Fields and scores as one transaction holds them in memory."""

from __future__ import annotations

from typing import Any


class CachedEntries:
    """Fields, or scores, by owner and by name. None: known to be absent."""

    def __init__(self, table: str) -> None:
        self.table = table
        self.stored: dict[int, dict[bytes, Any]] = {}
        self.held: dict[int, dict[bytes, Any]] = {}
        self.dirty: dict[tuple[int, bytes], None] = {}

    def know(self, owner: int, text: bytes, value: Any) -> None:
        """Record a value of the database, unless a newer one is in memory."""
        held = self.held.setdefault(owner, {})
        if text not in held:
            held[text] = value
            self.stored.setdefault(owner, {})[text] = value

    def clear(self) -> None:
        self.stored.clear()
        self.held.clear()
