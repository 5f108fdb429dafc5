"""A whole key: its kind, its deadline, and its value as the arguments that write it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Final, NamedTuple, cast

from keystead.stores.commands import LATEST_MS, TABLE, Call, Command, Deadline, Reply, SetOptions
from keystead.stores.store_contract import ATOMIC_ARGUMENTS

KINDS: Final = ("string", "hash", "set", "zset", "list", "stream")  # the positions are their numbers in files
NUMBERS: Final = {kind: number for number, kind in enumerate(KINDS)}
EXAMPLES: Final = 10  # keys that a report names
PART_BYTES: Final = 64  # memory per part besides its bytes

_ARGUMENTS: Final = ATOMIC_ARGUMENTS - 1_000  # of one command that writes; even, for pairs
_WIDEST: Final = ATOMIC_ARGUMENTS - 10  # fields and values of one entry, besides the key and the id
_WRITERS: Final = {"hash": "HSET", "set": "SADD", "zset": "ZADD", "list": "RPUSH"}


class Record(NamedTuple):
    """One key. `parts` are, by kind: the value; fields and values; members; scores and members; items; for each entry
    of a stream its id, how many arguments follow, and these.

    The parts of a hash, a set and a sorted set are in no order. A record without parts is an empty stream.
    """

    key: bytes
    kind: str
    expires_at_ms: int | None
    parts: Sequence[bytes]

    @property
    def content(self) -> Any:
        """The value in a form in which `==` means that readers see no difference."""
        if self.kind in ("hash", "set"):
            return reply_of(self)
        return dict(reply_of(self)) if self.kind == "zset" else list(self.parts)

    def is_expired(self, now_ms: int) -> bool:
        return self.expires_at_ms is not None and self.expires_at_ms <= now_ms


def size_bytes(records: Sequence[Record]) -> int:
    """Their approximate size in memory, without a loop over the records, which are many."""
    sizes = list(map(len, chain.from_iterable([record.parts for record in records])))
    return sum(sizes) + PART_BYTES * (len(sizes) + len(records))


@dataclass(slots=True)
class LeftOut:
    """Keys that cannot be saved or copied: their number, and a sentence about each of the first."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, sentence: str) -> None:
        self.count += 1
        if len(self.examples) < EXAMPLES:
            self.examples.append(sentence)


def why_unwritable(record: Record) -> str:
    """Why this key cannot be written with our commands, or empty: other programs may write such keys."""
    at_ms = record.expires_at_ms
    if at_ms is not None and not 0 < at_ms <= LATEST_MS:
        return "has a deadline before 1970 or after the year 9999"
    if record.kind == "stream":
        widest = max((len(fields) for _, fields in entries_of(record.parts)), default=0)
        if widest > _WIDEST:
            return f"has an entry of {widest // 2:,} fields; at most {_WIDEST // 2:,} can be written in one step"
    return ""


# --- from replies, and to commands -------------------------------------------------------------------------


def parts_of(kind: str, reply: Reply) -> list[bytes]:
    """The parts from the reply to a read of a whole value, or of a piece of it."""
    match kind:
        case "string":
            return [reply]
        case "hash":
            return [part for pair in reply.items() for part in pair]
        case "zset":
            return [part for member, number in reply for part in (repr(number).encode(), member)]
        case "stream":
            return [part for name, fields in reply for part in (name, b"%d" % len(fields), *fields)]
        case _:
            return list(reply)


def reply_of(record: Record) -> Reply:
    """The reply to a read of this collection, in the order of the parts."""
    parts = record.parts
    match record.kind:
        case "hash":
            return dict(zip(parts[::2], parts[1::2], strict=True))
        case "set":
            return set(parts)
        case "zset":
            return [[member, float(text)] for text, member in zip(parts[::2], parts[1::2], strict=True)]
        case "stream":
            return [[name, list(fields)] for name, fields in entries_of(parts)]
        case _:
            return list(parts)


def commands_of(record: Record) -> list[Command]:
    """The commands that write this key and its deadline if it does not exist. Run them in one step."""
    key, kind, expires_at_ms, parts = record
    if kind == "string":
        return [set_command(record)]
    commands: list[Command]
    if kind == "stream":
        commands = [("XADD", key, name, *fields) for name, fields in entries_of(parts)]
        # An empty stream is still a key, and can only be created like this.
        commands = commands or [("XADD", key, "MAXLEN", 0, "0-1", "empty", "")]
    else:
        starts = range(0, len(parts), _ARGUMENTS)
        commands = [(_WRITERS[kind], key, *parts[at : at + _ARGUMENTS]) for at in starts]
    if expires_at_ms is not None:
        commands.append(("PEXPIREAT", key, expires_at_ms))
    return commands


def set_command(record: Record, only_if: bytes = b"") -> Command:
    """The parsed SET of a string. `only_if`: NX, or nothing."""
    key, _, at_ms, [value] = record
    args = [key, value] if at_ms is None else [key, value, b"PXAT", b"%d" % at_ms]
    if only_if:
        args.append(only_if)
    deadline = None if at_ms is None else Deadline(at_ms, absolute=True)
    return cast("Command", Call(TABLE["SET"], args, SetOptions(deadline, only_if=only_if)))


def entries_of(parts: Sequence[bytes]) -> Iterator[tuple[bytes, Sequence[bytes]]]:
    """The entries of a stream: id, fields and values."""
    at = 0
    while at < len(parts):
        end = at + 2 + int(parts[at + 1])
        yield parts[at], parts[at + 2 : end]
        at = end
