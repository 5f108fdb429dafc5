"""Encode and decode the records of a backup file: version 2, all numbers little-endian.

The file begins with 18 bytes, `keystead backup 2` and a newline. Then come blocks, each of

- 1 byte, its type: `H` header, `K` keys, `L` a long key, `F` footer;
- 4 bytes, the length of its stored content;
- 16 bytes, BLAKE2b over the checksum of the previous block (for the first one: the line above), the type
  and the content;
- the content, compressed with zlib, level 1.

`H` is first: JSON with `made_at`, `keystead` (the version), `store` (the URL without secrets) and `match`. `K` has
consecutive records of at most 2 MiB; a record longer than 1 MiB is a separate block `L`. `F` is last: JSON
with `keys` and `kinds` (the number of each). Its checksum identifies the backup. A record is

- 1 byte, its kind: 0 string, 1 hash, 2 set, 3 zset, 4 list, 5 stream;
- 8 bytes, its deadline in milliseconds since 1970, signed; -1: none;
- 4 bytes, the number of parts;
- 4 bytes each, the lengths of the key and of each part;
- the key and the parts: the value; fields and values; members; scores (as text) and members; items; for each entry of a
  stream its id, the number of arguments that follow (as text), and the arguments.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Final

from keystead.errors import CommandError, printable
from keystead.stores.commands import entry_id, score
from keystead.stores.transfer.records import KINDS, NUMBERS, PART_BYTES, Record
from keystead.stores.transfer.transfer_errors import BackupDamaged, KeyTooLarge

# A key is restored in one step, so all of it is in memory, here and in the store. Hence one limit for every store.
LARGEST_BYTES: Final = 1 << 30

_HEAD: Final = struct.Struct("<BqI")  # kind, deadline, how many parts
_STRING: Final = struct.Struct("<BqIII")  # the same for a string, with the lengths of key and value
_LENGTH: Final = 4
_FOREVER: Final = -1


def encode(record: Record) -> bytes:
    """Raises KeyTooLarge."""
    key, kind, expires_at_ms, parts = record
    at_ms = _FOREVER if expires_at_ms is None else expires_at_ms
    if kind == "string":
        value = parts[0]
        data = b"".join((_STRING.pack(0, at_ms, 1, len(key), len(value)), key, value))
    else:
        lengths = struct.pack(f"<{len(parts) + 1}I", len(key), *map(len, parts))
        data = b"".join((_HEAD.pack(NUMBERS[kind], at_ms, len(parts)), lengths, key, *parts))
    if len(data) + PART_BYTES * len(parts) > LARGEST_BYTES:
        raise KeyTooLarge(
            f"{printable(key)} holds {len(data):,} bytes in {len(parts):,} parts: more than the "
            f"{LARGEST_BYTES >> 30} GiB "
            "of memory allowed for one key of a backup"
        )
    return data


def decode(data: bytes, *, is_one: bool = False) -> list[Record]:
    """Decode records. Raises BackupDamaged for invalid ones, and with `is_one` for more or fewer than one."""
    records: list[Record] = []
    append, new = records.append, Record._make
    at, end = 0, len(data)
    try:
        while at < end:
            if is_one and records:
                raise ValueError
            number, at_ms, count = _HEAD.unpack_from(data, at)
            expires_at_ms = None if at_ms == _FOREVER else at_ms
            if at_ms < _FOREVER:
                raise ValueError
            if number == 0:  # a fast path: most keys are strings
                _, _, _, key_length, length = _STRING.unpack_from(data, at)
                begins = at + _STRING.size + key_length
                at = begins + length
                if count != 1 or at > end:
                    raise ValueError
                append(new((data[begins - key_length : begins], "string", expires_at_ms, (data[begins:at],))))
                continue
            record, at = _decode_collection(data, at + _HEAD.size, KINDS[number], expires_at_ms, count)
            append(record)
    except (struct.error, IndexError, ValueError, CommandError):
        raise BackupDamaged("it contains an invalid record") from None
    return records


def _decode_collection(data: bytes, at: int, kind: str, expires_at_ms: int | None, count: int) -> tuple[Record, int]:
    """The record whose lengths start here, and its end."""
    begins = at + _LENGTH * (count + 1)
    if begins > len(data) or len(data) + PART_BYTES * count > LARGEST_BYTES + _LENGTH:
        raise ValueError
    lengths = array("I", data[at:begins])  # four bytes on all systems that Python runs on
    if sys.byteorder == "big":
        lengths.byteswap()
    places = list(accumulate(lengths, initial=begins))
    end = places[-1]
    if end > len(data):
        raise ValueError
    key, *parts = [data[first:last] for first, last in pairwise(places)]
    _check(kind, parts)
    return Record(key, kind, expires_at_ms, parts), end


def _check(kind: str, parts: Sequence[bytes]) -> None:
    """Raise ValueError, IndexError or CommandError if these are not valid parts of this kind."""
    if kind == "stream":
        _check_stream(parts)
        return
    if not parts or (len(parts) % 2 and kind in ("hash", "zset")):
        raise ValueError
    if kind == "zset":
        for text in parts[::2]:
            score(text)


def _check_stream(parts: Sequence[bytes]) -> None:
    at, last = 0, 0
    while at < len(parts):
        name, count = entry_id(parts[at], 0), int(parts[at + 1])
        if name <= last or count < 2 or count % 2 or at + 2 + count > len(parts):
            raise ValueError
        at, last = at + 2 + count, name
