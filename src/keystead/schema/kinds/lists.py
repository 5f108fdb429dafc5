"""List: items in insertion order, added at either end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, TypeVar, Unpack, overload

from keystead.errors import BadValue
from keystead.schema.codec import Codec, codec_for
from keystead.schema.family import Family, Options
from keystead.schema.key import Moment, nothing, number
from keystead.schema.kinds.growing import GrownKey, refuse_wrong_keep
from keystead.schema.kinds.value import Seen, seen_or_none
from keystead.schema.operation import Operation, taking
from keystead.stores import Command, Reply

T = TypeVar("T")


class ListKey(GrownKey, Generic[T]):
    """One key that holds items of type T in order."""

    __slots__ = ()

    def prepend(self, *items: T, keep: int | None = None, **until: Moment) -> Operation[int]:
        """Add items at the front, so that the last of them is first; returns the new length. Atomic.

        `keep` (by default that of the family): items beyond this many are dropped from the end in the same step.
        """
        return self._push("prepend", "LPUSH", items, keep, until, lambda most: ("LTRIM", self.key, 0, most - 1))

    def append(self, *items: T, keep: int | None = None, **until: Moment) -> Operation[int]:
        """Add items at the end; returns the new length. Atomic. `keep`: the oldest are dropped at the front."""
        return self._push("append", "RPUSH", items, keep, until, lambda most: ("LTRIM", self.key, -most, -1))

    def items(self, start: int = 0, stop: int = -1) -> Operation[list[T]]:
        """The items from `start` to `stop`, both included, counted from 0; negative numbers count from the end."""
        return self._read("items", ("LRANGE", self.key, start, stop), self._items)

    def get(self, place: int) -> Operation[T | None]:
        """The item at a position; None: there is none."""
        return self._read("get", ("LINDEX", self.key, place), self._item)

    def count(self) -> Operation[int]:
        """How many items there are."""
        return self._read("count", ("LLEN", self.key), number)

    def replace(self, place: int, item: T) -> Operation[None]:
        """Replace the item at a position. Raises an error if there is none. Atomic."""
        return self._update_until("replace", [("LSET", self.key, place, self._encode(item))], nothing, None)

    def trim(self, keep: int) -> Operation[None]:
        """Drop all but the first `keep` items. Does not extend the lifetime. Atomic."""
        if type(keep) is not int or keep < 1:
            raise BadValue(f"{self.key}: keep must be a whole number from 1")
        return self._read("trim", ("LTRIM", self.key, 0, keep - 1), nothing)

    def remove(self, item: T | Seen[T | None], count: int = 0) -> Operation[int]:
        """Remove equal items: the first `count`, or all (0); returns how many. Atomic.

        A `Seen` item is removed by its stored form, even if it is unreadable.
        """
        return self._read("remove", ("LREM", self.key, count, self._encode(item)), number)

    def pop_first(self) -> Operation[T | None]:
        """Pop the first item: concurrent callers never get the same one. None: there is none. Atomic."""
        return self._read("pop_first", ("LPOP", self.key), taking(self._item))

    def pop_last(self) -> Operation[T | None]:
        """Pop the last item: concurrent callers never get the same one. None: there is none. Atomic."""
        return self._read("pop_last", ("RPOP", self.key), taking(self._item))

    def see(self, start: int = 0, stop: int = -1) -> Operation[list[Seen[T | None]]]:
        """As `items`, each for a later `remove`. Unreadable items have the value None."""
        return self._read("see", ("LRANGE", self.key, start, stop), self._read_seen)

    def _push(
        self,
        verb: str,
        command: str,
        items: tuple[T, ...],
        keep: int | None,
        until: dict[str, Moment],
        trim: Callable[[int], Command],
    ) -> Operation[int]:
        if not items:
            raise BadValue(f"{self.key}: name at least one item")
        most = keep if keep is not None else self.bound.family.keep
        if most is not None and (type(most) is not int or most < 1):
            raise BadValue(f"{self.key}: keep must be a whole number from 1")
        commands: list[Any] = [(command, self.key, *map(self._encode, items))]
        if most is not None:
            commands += [trim(most), ("LLEN", self.key)]
        return self._write(verb, commands, _length_of_three if most is not None else number, until)

    def _encode(self, item: T | Seen[T | None]) -> bytes:
        if isinstance(item, Seen):
            return item.stored
        data: bytes = self.bound.family.item.encode(item, self.key, self.bound.ring)
        return data

    def _items(self, replies: list[Reply]) -> list[T]:
        decode = self.bound.family.item.decode
        return [decode(data, self.key, self.bound.ring) for data in replies[0]]

    def _read_seen(self, replies: list[Reply]) -> list[Seen[T | None]]:
        codec, key, ring = self.bound.family.item, self.key, self.bound.ring
        return [seen_or_none(codec, raw, key, ring) for raw in replies[0]]

    def _item(self, replies: list[Reply]) -> T | None:
        raw = replies[0]
        item: T | None = None if raw is None else self.bound.family.item.decode(raw, self.key, self.bound.ring)
        return item


class List(Family[ListKey[T]], Generic[T]):
    """A family of lists: `List("bbs:{id}:messages", Message, keep=100, lifetime=never("deleted with its board"))`."""

    kind: ClassVar[str] = "list"
    kind_name: ClassVar[str] = "List"
    verbs: ClassVar[type[Any]] = ListKey

    @overload
    def __init__(self, pattern: str, item: type[T], *, keep: int | None = None, **options: Unpack[Options]) -> None: ...
    @overload  # Literal, Annotated and unions are not classes to a type checker
    def __init__(
        self: List[Any], pattern: str, item: object, *, keep: int | None = None, **options: Unpack[Options]
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
        return f"items: {self.item.describe()}" + (f"; at most {self.keep}" if self.keep else "")


def _length_of_three(replies: list[Reply]) -> int:
    return int(replies[2])
