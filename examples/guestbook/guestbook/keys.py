"""The keys of the guestbook."""

from pydantic import BaseModel

from keystead import Keyspace, SortedSet, Value, after, never


class Entry(BaseModel):
    name: str
    text: str


class GuestbookKeys(Keyspace):
    """What visitors wrote, for 30 days."""

    index = SortedSet("guestbook:entries", str, lifetime=never("entries leave it when they expire"), doc="ids by time")
    entry = Value("guestbook:entry:{id}", Entry, lifetime=after("30d"), listed_in=index, doc="one entry")
