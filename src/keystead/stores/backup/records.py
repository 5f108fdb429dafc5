"""A key as a backup holds it: its kind, its deadline, and its value as the arguments that write it again."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, pairwise
from typing import Any, Final, NamedTuple, cast

from keystead.errors import CommandError, shown
from keystead.stores.backup.errors import BackupDamaged, KeyTooLarge
from keystead.stores.commands import (
    LATEST_MS,
    TABLE,
    Call,
    Command,
    Deadline,
    Reply,
    SetOptions,
    entry_id,
    score,
)
from keystead.stores.store_contract import ATOMIC_ARGUMENTS

KINDS: Final = ("string", "hash", "set", "zset", "list", "stream")  # their places are their numbers in the file
_NUMBERS: Final = {kind: number for number, kind in enumerate(KINDS)}

# A key is restored in one step, which is held in memory, here and in the store. So one limit for all of it.
LARGEST_BYTES: Final = 1 << 30
_PART_BYTES: Final = 64  # what a part costs in memory beside its bytes

ARGUMENTS: Final = ATOMIC_ARGUMENTS - 1_000  # of one command that writes; even, for pairs
_WIDEST: Final = ATOMIC_ARGUMENTS - 10  # fields and values of one entry, beside the key and the id

_HEAD: Final = struct.Struct("<BqI")  # kind, deadline, how many parts
_STRING: Final = struct.Struct("<BqIII")  # the same of a string, with the lengths of key and value
_LENGTH: Final = 4
_EXAMPLES: Final = 10
_FOREVER: Final = -1


class Record(NamedTuple):
    """One key. `parts` are, by kind: the value; fields and values; members; scores and members; items; for each entry
    of a stream its id, how many arguments follow, and these.

    The parts of a hash, a set and a sorted set stand in no order. A record with no parts is an empty stream.
    """

    key: bytes
    kind: str
    expires_at_ms: int | None
    parts: Sequence[bytes]

    @property
    def content(self) -> Any:
        """The value in a form in which `==` means that a reader of the store can see no difference."""
        parts = self.parts
        match self.kind:
            case "hash":
                return dict(zip(parts[::2], parts[1::2], strict=True))
            case "set":
                return set(parts)
            case "zset":
                return {member: float(text) for text, member in zip(parts[::2], parts[1::2], strict=True)}
            case _:
                return list(parts)


def size_bytes(records: Sequence[Record]) -> int:
    """About what they take in memory. There are as many records as keys, so none is looked at one by one."""
    sizes = list(map(len, chain.from_iterable([record.parts for record in records])))
    return sum(sizes) + _PART_BYTES * (len(sizes) + len(records))


@dataclass(slots=True)
class LeftOut:
    """Keys that a backup does not hold: how many, and a sentence about each of the first."""

    count: int = 0
    examples: list[str] = field(default_factory=list)

    def add(self, sentence: str) -> None:
        self.count += 1
        if len(self.examples) < _EXAMPLES:
            self.examples.append(sentence)


def unwritable(record: Record) -> str:
    """Why no store of ours can be given this key, or nothing. A server may hold what other programs wrote."""
    _, kind, at_ms, parts = record
    if at_ms is not None and not 0 < at_ms <= LATEST_MS:
        return "has a deadline before 1970 or after the year 9999"
    if kind == "stream" and (widest := max((len(fields) for _, fields in entries_of(parts)), default=0)) > _WIDEST:
        return f"has an entry of {widest // 2:,} fields; at most {_WIDEST // 2:,} can be written in one step"
    return ""


# --- between replies and records ---------------------------------------------------------------------------


def parts_of(kind: str, reply: Reply) -> list[bytes]:
    """What a store replied when it was asked for a whole value, or for a piece of one."""
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
    """What a store replied when this collection was read: the parts are in the order in which it told them."""
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


_WRITERS: Final = {"hash": "HSET", "set": "SADD", "zset": "ZADD", "list": "RPUSH"}


def commands_of(record: Record) -> list[Command]:
    """What writes this key, its deadline included, where there is none of its name. To be run as one step."""
    key, kind, expires_at_ms, parts = record
    if kind == "string":
        return [("SET", key, parts[0], *deadline_of(record))]
    commands: list[Command]
    if kind == "stream":
        commands = [("XADD", key, name, *fields) for name, fields in entries_of(parts)]
        # A log whose entries are all gone is still a key. There is no other way to make one.
        commands = commands or [("XADD", key, "MAXLEN", 0, "0-1", "empty", "")]
    else:
        commands = [
            (_WRITERS[kind], key, *parts[at : at + ARGUMENTS]) for at in range(0, len(parts), ARGUMENTS)
        ]  # fmt: skip
    if expires_at_ms is not None:
        commands.append(("PEXPIREAT", key, expires_at_ms))
    return commands


def set_of(record: Record, only_if: bytes) -> Command:
    """The SET of a string, read already: there are as many of these as there are strings. `only_if`: NX, or nothing."""
    key, _, at_ms, [value] = record
    args = [key, value] if at_ms is None else [key, value, b"PXAT", b"%d" % at_ms]
    if only_if:
        args.append(only_if)
    deadline = None if at_ms is None else Deadline(at_ms, absolute=True)
    return cast("Command", Call(TABLE["SET"], args, SetOptions(deadline, only_if=only_if)))


def deadline_of(record: Record) -> tuple[str | int, ...]:
    """The words of a SET that give a string its deadline."""
    return () if record.expires_at_ms is None else ("PXAT", record.expires_at_ms)


def entries_of(parts: Sequence[bytes]) -> Iterator[tuple[bytes, Sequence[bytes]]]:
    """The entries of a stream: id, fields and values."""
    at = 0
    while at < len(parts):
        end = at + 2 + int(parts[at + 1])
        yield parts[at], parts[at + 2 : end]
        at = end


# --- between records and bytes -----------------------------------------------------------------------------


def encode(record: Record) -> bytes:
    """Raises KeyTooLarge."""
    key, kind, expires_at_ms, parts = record
    at_ms = _FOREVER if expires_at_ms is None else expires_at_ms
    if kind == "string":
        value = parts[0]
        data = b"".join((_STRING.pack(0, at_ms, 1, len(key), len(value)), key, value))
    else:
        lengths = struct.pack(f"<{len(parts) + 1}I", len(key), *map(len, parts))
        data = b"".join((_HEAD.pack(_NUMBERS[kind], at_ms, len(parts)), lengths, key, *parts))
    if len(data) + _PART_BYTES * len(parts) > LARGEST_BYTES:
        raise KeyTooLarge(
            f"{shown(key)} holds {len(data):,} bytes in {len(parts):,} parts: more than the {LARGEST_BYTES >> 30} GiB "
            "of memory that one key of a backup may need"
        )
    return data


def decode(data: bytes) -> list[Record]:
    """The records that stand in these bytes, one after the other. Raises BackupDamaged where they are none."""
    records: list[Record] = []
    append, new = records.append, Record._make
    at, end = 0, len(data)
    try:
        while at < end:
            number, at_ms, count = _HEAD.unpack_from(data, at)
            expires_at_ms = None if at_ms == _FOREVER else at_ms
            if number == 0:
                _, _, _, key_length, length = _STRING.unpack_from(data, at)
                begins = at + _STRING.size + key_length
                at = begins + length
                if count != 1 or at > end or at_ms < _FOREVER:
                    raise BackupDamaged("a string in it is none")
                append(new((data[begins - key_length : begins], "string", expires_at_ms, (data[begins:at],))))
                continue
            record, at = _collection(data, at + _HEAD.size, KINDS[number], expires_at_ms, count)
            append(record)
    except (struct.error, IndexError, ValueError, CommandError):
        raise BackupDamaged("a record in it is none") from None
    return records


def _collection(data: bytes, at: int, kind: str, expires_at_ms: int | None, count: int) -> tuple[Record, int]:
    """The record whose lengths begin here, and where it ends."""
    begins = at + _LENGTH * (count + 1)
    if begins > len(data) or len(data) + _PART_BYTES * count > LARGEST_BYTES + _LENGTH:
        raise ValueError
    lengths = array("I", data[at:begins])
    if lengths.itemsize != _LENGTH:
        raise AssertionError("an unsigned int of C has four bytes on all systems that Python runs on")
    if _BIG_ENDIAN:
        lengths.byteswap()
    places = list(accumulate(lengths, initial=begins))
    end = places[-1]
    if end > len(data) or (expires_at_ms is not None and expires_at_ms < 0):
        raise ValueError
    key, *parts = [data[first:last] for first, last in pairwise(places)]
    _check(kind, parts)
    return Record(key, kind, expires_at_ms, parts), end


_BIG_ENDIAN: Final = struct.pack("=I", 1) != struct.pack("<I", 1)


def _check(kind: str, parts: Sequence[bytes]) -> None:
    """Raises a ValueError, an IndexError or a CommandError where these parts are none of this kind."""
    count = len(parts)
    if kind == "stream":
        _check_stream(parts)
    elif not count or (count % 2 and kind in ("hash", "zset")):
        raise ValueError
    elif kind == "zset":
        _all_scores(parts[::2])


def _all_scores(texts: Iterable[bytes]) -> None:
    for text in texts:
        score(text)


def _check_stream(parts: Sequence[bytes]) -> None:
    at, last = 0, 0
    while at < len(parts):
        name, count = entry_id(parts[at], 0), int(parts[at + 1])
        if name <= last or count < 2 or count % 2 or at + 2 + count > len(parts):
            raise ValueError
        at, last = at + 2 + count, name
