"""Log: entries in time order, each with an id to resume from. Events that can be replayed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar, Unpack, overload

from keystead.errors import BadValue, Unreadable
from keystead.schema.codec import Codec, codec_for
from keystead.schema.family import Family, Options
from keystead.schema.key import Moment, number
from keystead.schema.kinds.growing import GrownKey, refuse_wrong_keep
from keystead.schema.operation import Operation
from keystead.stores import Command, Reply

T = TypeVar("T")

_FIELD = b"data"


class LogEntry(NamedTuple, Generic[T]):
    """An entry of a log. Ids grow; they are text such as `1767225600000-0`."""

    id: str
    item: T


class LogKey(GrownKey, Generic[T]):
    """One key that holds a log of items of type T."""

    __slots__ = ()

    def append(self, item: T, *, entry_id: str | None = None, **until: Moment) -> Operation[str]:
        """Append an item; returns its id. Entries beyond the family's `keep` are dropped. Atomic.

        An explicit id, such as `17-0`, must be greater than all earlier ones, including removed entries; otherwise
        BadArgument. So an item that is appended twice with one id is in the log once.
        """
        return self._write("append", [self._append_command(entry_id or "*", item)], _id, until)

    def append_all(self, items: Mapping[str, T], **until: Moment) -> Operation[int]:
        """Append several items, each with its own id, in the order of the ids; returns how many. Atomic.

        Raises BadArgument, and appends nothing, if an id is not greater than all before it.
        """
        if not items:
            raise BadValue(f"{self.key}: name at least one item")
        additions = [self._append_command(entry_id, item) for entry_id, item in items.items()]
        return self._write("append_all", additions, lambda _: len(additions), until)

    def _append_command(self, entry_id: str, item: T) -> Command:
        keep = self.bound.family.keep
        data = self.bound.family.item.encode(item, self.key, self.bound.ring)
        cap = () if keep is None else ("MAXLEN", keep)
        return ("XADD", self.key, *cap, entry_id, _FIELD, data)

    def entries(self, *, after: str | None = None, limit: int | None = None) -> Operation[list[LogEntry[T]]]:
        """The entries from the oldest on, or those after an id."""
        return self._read("entries", self._forwards(after, limit), self._entries)

    def latest(self, limit: int) -> Operation[list[LogEntry[T]]]:
        """The newest entries, newest first."""
        return self._read("latest", self._backwards(limit, None), self._entries)

    def count(self) -> Operation[int]:
        """How many entries there are."""
        return self._read("count", ("XLEN", self.key), number)

    def remove(self, *ids: str) -> Operation[int]:
        """Remove entries; returns how many there were. Atomic."""
        if not ids:
            raise BadValue(f"{self.key}: name at least one id")
        return self._read("remove", ("XDEL", self.key, *ids), number)

    def newest(self, limit: int) -> Operation[list[T]]:
        """The newest items, newest first: `latest` without the ids."""
        return self._read("newest", self._backwards(limit, None), self._items)

    def see(self, *, after: str | None = None, limit: int | None = None) -> Operation[list[LogEntry[T | None]]]:
        """As `entries`. Unreadable entries have the item None."""
        return self._read("see", self._forwards(after, limit), self._read_seen)

    def see_latest(self, limit: int, *, before: str | None = None) -> Operation[list[LogEntry[T | None]]]:
        """As `latest`, or those before an id. Unreadable entries have the item None."""
        return self._read("see_latest", self._backwards(limit, before), self._read_seen)

    def _forwards(self, after: str | None, limit: int | None) -> Command:
        return ("XRANGE", self.key, "-" if after is None else f"({after}", "+", *_count(limit, self.key))

    def _backwards(self, limit: int, before: str | None) -> Command:
        return ("XREVRANGE", self.key, "+" if before is None else f"({before}", "-", *_count(limit, self.key))

    def _items(self, replies: list[Reply]) -> list[T]:
        return [entry.item for entry in self._entries(replies)]

    def _read_seen(self, replies: list[Reply]) -> list[LogEntry[T | None]]:
        return [LogEntry(raw_id.decode(), self._item_or_none(fields)) for raw_id, fields in replies[0]]

    def _item_or_none(self, fields: Any) -> T | None:
        try:
            item: T = self.bound.family.item_of(fields, self.key, self.bound.ring)
        except Unreadable:
            return None
        return item

    def _entries(self, replies: list[Reply]) -> list[LogEntry[T]]:
        return [LogEntry(raw_id.decode(), self.bound.family.item_of(fields, self.key, self.bound.ring))
                for raw_id, fields in replies[0]]  # fmt: skip


class Log(Family[LogKey[T]], Generic[T]):
    """A family of logs: `Log("events:{id}", Event, keep=1000, lifetime=sliding("7d", touch_every="1h"))`."""

    kind: ClassVar[str] = "stream"
    kind_name: ClassVar[str] = "Log"
    verbs: ClassVar[type[Any]] = LogKey

    @overload
    def __init__(self, pattern: str, item: type[T], *, keep: int | None = None, **options: Unpack[Options]) -> None: ...
    @overload  # Literal, Annotated and unions are not classes to a type checker
    def __init__(
        self: Log[Any], pattern: str, item: object, *, keep: int | None = None, **options: Unpack[Options]
    ) -> None: ...
    def __init__(self, pattern: str, item: Any, *, keep: int | None = None, **options: Unpack[Options]) -> None:
        super().__init__(pattern, **options)
        refuse_wrong_keep(pattern, keep)
        self.item: Codec[T] = codec_for(item, where=pattern)
        self.keep = keep

    @property
    def codecs(self) -> Mapping[str, Codec[Any]]:
        return {"item": self.item}

    @property
    def value_shape(self) -> str:
        return f"entries: {self.item.describe()}" + (f"; the last {self.keep}" if self.keep else "")

    def item_of(self, fields: Any, key: str, ring: Any) -> T:
        """Decode the item of a stored entry. Raises Unreadable."""
        pairs = fields if isinstance(fields, dict) else dict(zip(fields[::2], fields[1::2], strict=True))
        if set(pairs) != {_FIELD}:
            raise Unreadable("an entry of this log has fields other than `data`", key)
        return self.item.decode(pairs[_FIELD], key, ring)


def _id(replies: list[Reply]) -> str:
    return str(replies[0].decode())


def _count(limit: int | None, key: str) -> tuple[str | int, ...]:
    if limit is None:
        return ()
    if type(limit) is not int or limit < 1:
        raise BadValue(f"{key}: a limit must be a whole number from 1")
    return ("COUNT", limit)
