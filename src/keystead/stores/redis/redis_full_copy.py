"""Whole keys on one server, many per script: with commands, each key would take several, and a separate script."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Any, Final

from keystead.stores.commands import TABLE, Call
from keystead.stores.redis.reply_errors import ReplyError
from keystead.stores.store_contract import WholeKey

KEYS_AT_ONCE: Final = 128  # per script, which blocks the server
ENTRIES_AT_ONCE: Final = 1_000
BYTES_AT_ONCE: Final = 256 << 10
_NEVER: Final = -1
_KINDS: Final = {kind.encode(): kind for kind in ("string", "hash", "set", "zset", "list", "stream")}


class _Text:
    """A script and its digest, its name on the server."""

    def __init__(self, name: str) -> None:
        self.text = files(__package__).joinpath(name).read_bytes()
        self.digest = hashlib.sha1(self.text, usedforsecurity=False).hexdigest().encode()


_READ: Final = _Text("whole.lua")
_ADD: Final = _Text("add.lua")


class WholeKeys:
    """A script with its keys and arguments, for `run_script`. Its outcome is the raw reply."""

    otherwise = None

    def __init__(self, script: _Text, keys: Sequence[bytes], arguments: Sequence[bytes], *, reads_only: bool) -> None:
        self.text, self.digest = script.text, script.digest
        self.rest = (b"%d" % len(keys), *keys, *arguments)
        self.reads_only = reads_only
        self.error_call = Call(TABLE["TYPE" if reads_only else "SET"], [keys[0]], None)

    @classmethod
    def read(cls, keys: Sequence[bytes]) -> WholeKeys:
        return cls(_READ, keys, (b"%d" % ENTRIES_AT_ONCE, b"%d" % BYTES_AT_ONCE), reads_only=True)

    @classmethod
    def add(cls, keys: Sequence[WholeKey]) -> WholeKeys:
        arguments: list[bytes] = []
        for _, kind, at_ms, parts in keys:
            arguments += (kind.encode(), b"" if at_ms is None else b"%d" % at_ms, b"%d" % len(parts), *parts)
        return cls(_ADD, [key[0] for key in keys], arguments, reads_only=False)

    def failure(self, reply: Any) -> ReplyError | None:
        return None

    def outcome(self, reply: list[Any], address: object) -> list[Any]:
        return reply


def in_batches(keys: Sequence[WholeKey], max_bytes: int | None = None) -> Iterator[list[WholeKey]]:
    """Split into batches small enough for one short script each, and of this many bytes if there is a limit."""
    some: list[WholeKey] = []
    room, bytes_left = ENTRIES_AT_ONCE, max_bytes or 0
    for key in keys:
        size = 0 if max_bytes is None else len(key[0]) + sum(len(part) + 4 for part in key[3])
        room, bytes_left = room - len(key[3]), bytes_left - size
        if some and (room < 0 or bytes_left < 0 or len(some) == KEYS_AT_ONCE):
            yield some
            some, room, bytes_left = [], ENTRIES_AT_ONCE - len(key[3]), (max_bytes or 0) - size
        some.append(key)
    if some:
        yield some


def sort_replies(keys: Sequence[bytes], replies: list[Any], found: list[WholeKey], left: list[bytes]) -> None:
    """Sort the replies of the script: keys in the form of `Store.whole_keys` to `found`, all others to `left`."""
    for key, reply in zip(keys, replies, strict=False):
        if type(reply) is list:
            name, at_ms, value = reply
            kind = _KINDS[name]
            found.append((key, kind, None if at_ms == _NEVER else at_ms, _parts_of(kind, value)))
        elif reply:
            left.append(key)


def _parts_of(kind: str, value: Any) -> Sequence[bytes]:
    if kind == "string":
        return (value,)
    if kind == "zset":
        # Scores in Python's format, before their members: as commands take them.
        value[::2], value[1::2] = [repr(float(text)).encode() for text in value[1::2]], value[::2]
    elif kind == "stream":
        return [part for entry, fields in value for part in (entry, b"%d" % len(fields), *fields)]
    parts: Sequence[bytes] = value
    return parts
