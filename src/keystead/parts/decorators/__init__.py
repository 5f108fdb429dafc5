"""Decorators: `@cache`, `@rate_limit`, `@once`, and `lock` for a block; each with a one-line declaration."""

from keystead.parts.cache import Cached
from keystead.parts.decorators.cache_decorator import AsyncCachedCall, CachedCall, cache
from keystead.parts.decorators.limit_decorator import rate_limit
from keystead.parts.decorators.lock_block import LockBlock, lock
from keystead.parts.decorators.once import AlreadyRunning, Once, OnceResult, once
from keystead.parts.limit import Limited
from keystead.parts.lock import Locked

__all__ = [
    "AlreadyRunning",
    "AsyncCachedCall",
    "Cached",
    "CachedCall",
    "Limited",
    "LockBlock",
    "Locked",
    "Once",
    "OnceResult",
    "cache",
    "lock",
    "once",
    "rate_limit",
]
