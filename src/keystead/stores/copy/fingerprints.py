"""Fingerprints of keys: 16 bytes that differ if a reader could see a difference."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from keystead.stores.store_contract import Step, holds, still
from keystead.stores.transfer.reader import NEVER, read_command
from keystead.stores.transfer.records import NUMBERS, Record, reply_of

_HEAD: Final = struct.Struct("<BqI")  # kind, deadline, how many parts


def fingerprint(record: Record) -> bytes:
    """A digest of kind, deadline and value. The order of members and fields is ignored."""
    _, kind, at_ms, parts = record
    deadline = NEVER if at_ms is None else at_ms
    if kind == "string":
        return blake2b(_HEAD.pack(0, deadline, 1) + parts[0], digest_size=16).digest()
    parts = _sort(kind, parts)
    digest = blake2b(_HEAD.pack(NUMBERS[kind], deadline, len(parts)), digest_size=16)
    digest.update(struct.pack(f"<{len(parts)}I", *map(len, parts)))
    digest.update(b"".join(parts))
    return digest.digest()


def _sort(kind: str, parts: Sequence[bytes]) -> Sequence[bytes]:
    match kind:
        case "set":
            return sorted(parts)
        case "hash":
            pairs = sorted(zip(parts[::2], parts[1::2], strict=True))
        case "zset":
            # Some stores keep the sign of zero; it is ignored.
            scores = (repr(float(text) + 0.0).encode() for text in parts[::2])
            pairs = sorted(zip(parts[1::2], scores, strict=True))
        case _:
            return parts
    return [part for pair in pairs for part in pair]


def unchanged_guards(record: Record) -> list[Step]:
    """Guards that hold only if value and deadline of the key are unchanged since they were read."""
    key, kind, at_ms, parts = record
    value = holds(key, parts[0]) if kind == "string" else still(read_command(kind, key), reply_of(record))
    return [still(("PEXPIRETIME", key), NEVER if at_ms is None else at_ms), value]
