"""The store on PostgreSQL."""

from __future__ import annotations

from keystead.stores.postgres.postgres_store import PostgresStore

__all__ = ["PostgresStore"]
