"""Feeds: ordered messages for many readers, with replay of missed ones."""

from keystead.parts.feed.feed import Feed, FeedItem, Missed, Pause
from keystead.parts.feed.feed_events import event, heartbeat, place_in

__all__ = ["Feed", "FeedItem", "Missed", "Pause", "event", "heartbeat", "place_in"]
