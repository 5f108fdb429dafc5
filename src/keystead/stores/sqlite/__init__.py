"""The embedded store: one SQLite file, or memory."""

from keystead.stores.sqlite.sqlite_store import SqliteStore

__all__ = ["SqliteStore"]
