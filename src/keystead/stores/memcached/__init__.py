"""The store on Memcached: strings only, for data that may be lost."""

from __future__ import annotations

from keystead.stores.memcached.memcached_store import MemcachedStore

__all__ = ["MemcachedStore"]
