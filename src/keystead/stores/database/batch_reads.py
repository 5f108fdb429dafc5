"""The reads of a batch, known from the arguments of its commands before they run."""

from __future__ import annotations

import math
from collections.abc import Iterable

from keystead.stores.commands import TABLE, Call
from keystead.stores.database.dialect import Wanted
from keystead.stores.database.hashed_names import name_of

# Which arguments of a command name fields or members, and in which table.
_FIELDS: dict[str, slice] = {
    **dict.fromkeys(("HGET", "HMGET", "HDEL", "HEXISTS", "SADD", "SREM", "SISMEMBER"), slice(1, None)),
    **dict.fromkeys(("HSETNX", "HINCRBY"), slice(1, 2)),
    "HSET": slice(1, None, 2),
}
_MEMBERS: dict[str, slice] = dict.fromkeys(("ZREM", "ZSCORE", "ZMSCORE", "ZRANK", "ZREVRANK"), slice(1, None))
_WHOLE = frozenset({"HGETALL", "SMEMBERS"})
_VALUES = frozenset({"GET", "MGET", "GETDEL", "GETEX", "INCRBY", "DECRBY", "XADD"})
# Commands that need no further reads, whatever they find.
LOADED = frozenset(
    {spec.name for spec in TABLE.values() if spec.kind in ("string", "hash", "set") or (spec.keys and not spec.kind)}
    | {"ZADD", "ZREM", "ZSCORE", "ZMSCORE", "ZCARD", "LLEN", "XLEN", "TIME", "PUBLISH"}
)


class BatchReads:
    """Keys, fields and members that a batch reads. Dicts serve as ordered sets.

    with_value          keys whose value is read, too
    wholes              hashes and sets that are read as a whole
    writes              how many of the commands write
    one_read_is_enough  whether the commands need no further reads, whatever they find
    """

    def __init__(self, calls: Iterable[Call], keys: Iterable[bytes] = ()) -> None:
        self.with_value: dict[bytes, None] = {}
        self.fields: dict[tuple[bytes, bytes], None] = {}
        self.members: dict[tuple[bytes, bytes], None] = {}
        self.wholes: dict[bytes, None] = {}
        self.publishes, self.writes, self.one_read_is_enough = False, 0, True
        self._others: dict[bytes, None] = dict.fromkeys(keys)
        for call in calls:
            self._add(call)

    def _add(self, call: Call) -> None:
        name, args = call.spec.name, call.args
        reads_value = name in _VALUES or (name == "SET" and call.options.get)
        (self.with_value if reads_value else self._others).update(dict.fromkeys(call.keys))
        if name in _FIELDS:
            self.fields.update(((args[0], text), None) for text in args[_FIELDS[name]])
        elif name in _MEMBERS:
            self.members.update(((args[0], text), None) for text in args[_MEMBERS[name]])
        elif name == "ZADD":
            self.members.update(((args[0], text), None) for text, _ in call.options.pairs)
        elif name in _WHOLE:
            self.wholes[args[0]] = None
        self.publishes = self.publishes or name == "PUBLISH"
        self.writes += call.spec.writes
        self.one_read_is_enough = self.one_read_is_enough and name in LOADED

    @property
    def rows_max(self) -> float:
        """How many rows are found at most."""
        if self.wholes:
            return math.inf
        return len(self.with_value) + len(self._others) + len(self.fields) + len(self.members)

    def without_value(self) -> list[bytes]:
        return [key for key in self._others if key not in self.with_value]

    def sorted_keys(self) -> list[bytes]:
        """All keys, in the order in which they are locked."""
        return sorted({*self.with_value, *self._others})

    def wanted(self, *, timeless: bool) -> Wanted:
        return Wanted(
            [name_of(key) for key in self.with_value],
            [name_of(key) for key in self.without_value()],
            [(name_of(key), name_of(text)) for key, text in self.fields],
            [(name_of(key), name_of(text)) for key, text in self.members],
            [name_of(key) for key in self.wholes],
            timeless,
        )
