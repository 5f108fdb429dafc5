"""The store on Memcached: strings only, for what may be forgotten."""

from __future__ import annotations

from keystead.stores.memcached.memcached_store import MemcachedStore

__all__ = ["MemcachedStore"]
