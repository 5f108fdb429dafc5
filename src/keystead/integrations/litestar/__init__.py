"""Litestar: a store for its sessions, response cache and rate limits."""

from keystead.extras import from_extra

with from_extra("litestar", "the store for Litestar"):
    from keystead.integrations.litestar.litestar_store import KeysteadStore

__all__ = ["KeysteadStore"]
