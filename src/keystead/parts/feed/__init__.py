"""Feed, as a part: messages to many readers, each in an order of its own, and what was missed is replayed."""

from keystead.parts.feed.feed import Feed, FeedItem, Missed, Pause

__all__ = ["Feed", "FeedItem", "Missed", "Pause"]
