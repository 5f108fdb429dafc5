"""The kinds of families, one module each."""

from keystead.schema.kinds.channel import Channel, ChannelKey
from keystead.schema.kinds.counter import Counter, CounterKey
from keystead.schema.kinds.hash import Hash, HashKey
from keystead.schema.kinds.lists import List, ListKey
from keystead.schema.kinds.log import Log, LogEntry, LogKey
from keystead.schema.kinds.sets import Set, SetKey
from keystead.schema.kinds.sorted_set import SortedSet, SortedSetKey
from keystead.schema.kinds.value import Seen, Value, ValueKey

__all__ = [
    "Channel",
    "ChannelKey",
    "Counter",
    "CounterKey",
    "Hash",
    "HashKey",
    "List",
    "ListKey",
    "Log",
    "LogEntry",
    "LogKey",
    "Seen",
    "Set",
    "SetKey",
    "SortedSet",
    "SortedSetKey",
    "Value",
    "ValueKey",
]
