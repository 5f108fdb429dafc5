"""Feeds: ordered messages for many readers, with replay of missed ones."""

from keystead.parts.feed.feed import Feed, FeedItem, Missed, Pause

__all__ = ["Feed", "FeedItem", "Missed", "Pause"]
