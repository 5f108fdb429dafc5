"""Cache with single flight (no cache stampede), stale copies, negative caching and immediate invalidation."""

from typing import TYPE_CHECKING

from keystead.deprecation import forward_old_names
from keystead.parts.cache.cache import Cache
from keystead.parts.cache.cached import Cached
from keystead.parts.cache.load_markers import LoadMarker, LoadMarkers
from keystead.parts.cache.load_results import CacheCounts, CacheLookup, CacheResult, LoadFailed, TryLater

__all__ = [
    "Cache",
    "CacheCounts",
    "CacheLookup",
    "CacheResult",
    "Cached",
    "LoadFailed",
    "LoadMarker",
    "LoadMarkers",
    "TryLater",
]

if not TYPE_CHECKING:  # type checkers still report misspelt names
    __getattr__ = forward_old_names(
        __name__,
        {
            "Answer": "CacheResult",
            "Counts": "CacheCounts",
            "Look": "CacheLookup",
            "Mark": "LoadMarker",
            "Marks": "LoadMarkers",
        },
    )
