"""The keys of the guestbook."""

from pydantic import BaseModel

from keystead import Keyspace, SortedSet, Value, after, never


class Entry(BaseModel):
    name: str
    text: str


class GuestbookKeys(Keyspace):
    """Guestbook entries of the last 30 days."""

    index = SortedSet("guestbook:entries", str, lifetime=never("expired entries are pruned"), doc="ids by time")
    entry = Value("guestbook:entry:{id}", Entry, lifetime=after("30d"), listed_in=index, doc="one entry")
