"""Evidence: what was seen of the keys of one shape, in bounded memory."""

from __future__ import annotations

from collections import Counter
from itertools import islice
from typing import Any, Final, NamedTuple

from keystead.schema.infer.usual_durations import usual_ms
from keystead.schema.infer.value_profile import Profile, decode_value

_WATCHED: Final = 64  # keys whose deadline is read again in the second pass
_KEPT: Final = 40  # values and entries, to find relations
_FIELDS: Final = 40
_LONGEST: Final = 100  # characters of a text that may be an id
_FIRST: Final = 100  # keys of a shape that are all read
_SKEW_MS: Final = 1_500
_RARE: Final = 50  # of so many TTLs, a longer one is an exception
_NO_COUNTER: Final = 1_000_000_000


class Watched(NamedTuple):
    """A key that was read: the reply of PTTL, when, what may be an id or a time in its value, and its first entries."""

    key: str
    left_ms: int
    at_ms: int
    value: Any
    entries: tuple[str, ...]

    @property
    def deadline_ms(self) -> int:
        return self.at_ms + self.left_ms


class Evidence:
    """What is known of the keys of one shape."""

    __slots__ = (
        "count",
        "entries",
        "expiring",
        "foreign_entries",
        "kinds",
        "longest_ms",
        "moved",
        "profile",
        "read",
        "ttls",
        "watched",
    )

    def __init__(self) -> None:
        self.count = 0
        self.read = 0
        self.kinds: Counter[str] = Counter()
        self.expiring = 0  # of those read
        self.longest_ms = 0
        self.ttls: Counter[int] = Counter()  # the shortest usual duration that is not shorter, and how many keys
        self.moved = 0  # keys whose deadline moved between the passes
        self.watched: list[Watched] = []
        self.profile = Profile()  # of values, of hashes as objects
        self.entries = Profile()  # of members and items
        self.foreign_entries = 0  # of streams that Keystead does not write

    @property
    def wants_more(self) -> bool:
        """Whether to read this key: the first ones, then ever fewer."""
        return self.count <= _FIRST or self.count % (self.count // _FIRST) == 0

    @property
    def kind(self) -> str:
        return self.kinds.most_common(1)[0][0] if self.kinds else ""

    def add(self, key: str, kind: str, left_ms: int, at_ms: int, content: Any) -> None:
        """A key that was read. `content` is a value, the fields of a hash, or the first entries; None: not read."""
        self.read += 1
        self.kinds[kind] += 1
        if left_ms >= 0:
            self.expiring += 1
            self.longest_ms = max(self.longest_ms, left_ms)
            self.ttls[usual_ms(left_ms)] += 1
        value, entries = self._read_content(kind, content)
        if len(self.watched) < _WATCHED:
            self.watched.append(Watched(key, left_ms, at_ms, _kept(value), entries))

    def _read_content(self, kind: str, content: Any) -> tuple[Any, tuple[str, ...]]:
        if content is None:
            return None, ()
        if kind == "string":
            value = decode_value(content)
            self.profile.add(value)
            return value, ()
        if kind == "hash":
            record = {name.decode("utf-8", "replace"): decode_value(data) for name, data in content}
            self.profile.add(record)
            return record, ()
        texts: list[str] = []
        for entry in content:
            data = _data_of(kind, entry)
            if data is None:
                self.foreign_entries += 1
                continue
            self.entries.add(decode_value(data))
            if len(texts) < _KEPT:
                texts.append(data[:_LONGEST].decode("utf-8", "replace"))
        return None, tuple(texts)

    def merge(self, other: Evidence) -> None:
        self.count += other.count
        self.read += other.read
        self.kinds += other.kinds
        self.expiring += other.expiring
        self.moved += other.moved
        self.foreign_entries += other.foreign_entries
        self.longest_ms = max(self.longest_ms, other.longest_ms)
        self.ttls += other.ttls
        self.watched += other.watched[: _WATCHED - len(self.watched)]
        self.profile.merge(other.profile)
        self.entries.merge(other.entries)

    def see_again(self, watched: Watched, left_ms: int, at_ms: int) -> None:
        """The second pass: whether the deadline of a key moved, because it was used in between.

        A key whose deadline has passed was written anew, which says nothing.
        """
        is_same = watched.left_ms >= 0 and at_ms < watched.deadline_ms
        if is_same and left_ms >= 0 and at_ms + left_ms > watched.deadline_ms + _SKEW_MS:
            self.moved += 1
            self.longest_ms = max(self.longest_ms, left_ms)
            self.ttls[usual_ms(left_ms)] += 1

    def usual_ttl(self) -> tuple[int, int]:
        """The duration that TTLs begin with, and how many keys have a much longer one, if that are few exceptions."""
        longest_ms, longer = max(self.ttls, default=0), 0
        for duration_ms in sorted(self.ttls, reverse=True):
            if (longer + self.ttls[duration_ms]) * _RARE > self.expiring:
                return (duration_ms, longer) if longest_ms >= 2 * duration_ms else (longest_ms, 0)
            longer += self.ttls[duration_ms]
        return longest_ms, 0

    @property
    def is_counter(self) -> bool:
        """Whether its strings are small integers."""
        profile = self.profile
        return profile.kinds == {"int"} and profile.smallest > -_NO_COUNTER and profile.largest < _NO_COUNTER

    @property
    def signature(self) -> tuple[Any, ...]:
        """What keys of one family have in common: the kind, the lifetime, and last the names of their fields."""
        fields = frozenset(self.profile.fields) if not self.profile.looks_like_map else frozenset()
        return self.kind, self.is_counter, self.expiring * 2 > self.read, self.moved > 0, fields


def _kept(value: Any) -> Any:
    """What is kept of a value to find relations and deadlines: short texts and numbers, and those of its fields."""
    if isinstance(value, dict):
        short = ((name, one) for name, one in value.items() if _is_short(one))
        return dict(islice(short, _FIELDS))
    return value if _is_short(value) else None


def _is_short(value: Any) -> bool:
    return len(value) <= _LONGEST if isinstance(value, str) else isinstance(value, int | float)


def _data_of(kind: str, entry: Any) -> bytes | None:
    """The data of an entry; None: of a stream with other fields than those of a Log."""
    if kind == "stream" and list(entry[1])[::2] != [b"data"]:
        return None
    data: bytes = entry[1][1] if kind == "stream" else entry[0] if kind == "zset" else entry
    return data
