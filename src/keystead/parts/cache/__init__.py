"""Cache, as a part: what a provider said, for a while, and one question to it at a time."""

from keystead.deprecation import renamed
from keystead.parts.cache.cache import Cache
from keystead.parts.cache.load_markers import LoadMarker, LoadMarkers
from keystead.parts.cache.load_results import CacheCounts, CacheLookup, CacheResult, LoadFailed, TryLater

__all__ = ["Cache", "CacheCounts", "CacheLookup", "CacheResult", "LoadFailed", "LoadMarker", "LoadMarkers", "TryLater"]

__getattr__ = renamed(
    __name__,
    {
        "Answer": "CacheResult",
        "Counts": "CacheCounts",
        "Look": "CacheLookup",
        "Mark": "LoadMarker",
        "Marks": "LoadMarkers",
    },
)
