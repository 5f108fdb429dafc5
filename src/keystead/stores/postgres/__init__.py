"""The store on PostgreSQL."""

from __future__ import annotations

from keystead.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
