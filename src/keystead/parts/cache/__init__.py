"""Cache, as a part: what a provider said, for a while, and one question to it at a time."""

from keystead.parts.cache.load_results import Answer, Counts, LoadFailed, Look, TryLater
from keystead.parts.cache.cache import Cache
from keystead.parts.cache.load_markers import Mark, Marks

__all__ = ["Answer", "Cache", "Counts", "LoadFailed", "Look", "Mark", "Marks", "TryLater"]
