"""Chunked reading: the content of a key, read in small pieces, and whether it fits its family."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any, Final

from keystead.errors import NotANumber, Unreadable, printable
from keystead.schema.codec import Codec
from keystead.schema.family import Bound
from keystead.schema.kinds import Counter
from keystead.stores import Command
from keystead.stores.commands import integer

# The command that returns the size of a key; for a string, the value itself.
SIZES: Final = {
    "string": "GET",
    "hash": "HLEN",
    "set": "SCARD",
    "zset": "ZCARD",
    "list": "LLEN",
    "stream": "XLEN",
}
AT_ONCE: Final = 10_000  # members of a set or fields of a hash, which cannot be read in pages
PAGE: Final = 500
SMALL: Final = 200  # entries that are read together with those of other keys


class NotOpened(str):
    """Why something cannot be read: it is sealed, and no key of the ring opens it."""

    __slots__ = ()


UNKNOWN: Final = object()  # the value of unreadable content, or of sealed content without a key ring


def whole(kind: str, key: str | bytes) -> Command:
    """The command that reads the whole content of a small key."""
    match kind:
        case "string":
            return ("GET", key)
        case "hash":
            return ("HGETALL", key)
        case "set":
            return ("SMEMBERS", key)
        case "zset":
            return ("ZRANGE", key, 0, -1, "WITHSCORES")
        case "list":
            return ("LRANGE", key, 0, -1)
        case _:
            return ("XRANGE", key, "-", "+")


def entries_of(kind: str, reply: Any) -> list[Any]:
    """The reply of `whole` as a list: pairs for a hash or a sorted set, ids with their fields for a log."""
    return list(reply.items()) if kind == "hash" else list(reply)


def can_be_read(kind: str, size: int) -> bool:
    """Whether a key of this size can be read without blocking the store."""
    return kind not in ("set", "hash") or size <= AT_ONCE


class Pages:
    """The entries of one key, page by page. Removals are reported to it, so that no entry is skipped."""

    def __init__(self, bound: Bound[Any], key: str, page: int = PAGE) -> None:
        self.removed = 0  # to be set when entries of the last page are removed
        self._bound = bound
        self._key = key
        self._page = page

    async def __aiter__(self) -> AsyncIterator[list[Any]]:
        kind, store = self._bound.family.kind, self._bound.store
        start, after = 0, "-"
        while True:
            [reply] = await store.run([self._command(kind, start, after)])
            found = entries_of(kind, reply)
            if found:
                self.removed = 0
                yield found
            if len(found) < self._page or kind in ("set", "hash"):
                return
            start += len(found) - self.removed
            if kind == "stream":
                after = f"({found[-1][0].decode()}"

    def _command(self, kind: str, start: int, after: str) -> Command:
        match kind:
            case "zset":
                return ("ZRANGE", self._key, start, start + self._page - 1, "WITHSCORES")
            case "list":
                return ("LRANGE", self._key, start, start + self._page - 1)
            case "stream":
                return ("XRANGE", self._key, after, "+", "COUNT", self._page)
            case _:
                return whole(kind, self._key)


def read(codec: Codec[Any], data: bytes, bound: Bound[Any], key: str, name: str = "") -> tuple[Any, str | None]:
    """The value, and why it cannot be read. Without a key ring, sealed values are checked but not opened."""
    if codec.sealed and bound.ring is None:
        picture = codec.shown(data, key)
        is_bad = isinstance(picture, dict) and picture.keys() == {"unreadable"}
        return UNKNOWN, str(picture["unreadable"]) if is_bad else None
    try:
        value = codec.decode(data, key, bound.ring, name)
        if isinstance(bound.family, Counter):
            integer(data)
    except NotANumber:  # first: its message contains the value
        return UNKNOWN, "the value is not an integer of 64 bits"
    except Unreadable as error:
        return UNKNOWN, reason(error, key)
    return value, None


def read_hash(bound: Bound[Any], key: str, fields: dict[bytes, bytes]) -> tuple[Any, str | None]:
    """The record of a hash of a model. Without a key ring each field is checked alone."""
    family = bound.family
    if bound.ring is None and family.needs_ring:
        for stored, codec in family.fields.items():
            data = fields.get(stored.encode())
            problem = None if data is None else read(codec, data, bound, key, stored)[1]
            if problem is not None:
                return UNKNOWN, problem
        return UNKNOWN, None
    try:
        return family.record_of(fields, key, bound.ring), None
    except Unreadable as error:
        return UNKNOWN, reason(error, key)


def read_entry(bound: Bound[Any], key: str, entry: Any) -> tuple[Any, str | None]:
    """Decode one entry of a key: the value of a field, the item of a log; and why it cannot be read."""
    family, kind = bound.family, bound.family.kind
    if kind == "hash":
        field, data = entry
        problem = read(family.codecs["field"], field, bound, key)[1]
        if problem is not None:
            return UNKNOWN, problem
        return read(family.codecs["value"], data, bound, key, field.decode("utf-8", "replace"))
    if kind == "stream" and list(entry[1])[::2] != [b"data"]:
        return UNKNOWN, "an entry of this log has fields other than `data`"
    codec, data = value_of(family, entry)
    return read(codec, data, bound, key)


def value_of(family: Any, entry: Any) -> tuple[Codec[Any], bytes]:
    """The content of an entry: the value of a field, the item of a list or a log, the member of a set."""
    match family.kind:
        case "hash":
            return family.codecs["value"], entry[1]
        case "stream":
            return family.item, entry[1][1]
        case "list":
            return family.item, entry
        case _:
            return family.member, entry[0] if family.kind == "zset" else entry


def reason(error: Unreadable, key: str) -> str:
    """The message without the key, which is shown beside it."""
    sentence = str(error).removeprefix(f"{printable(key)}: ")
    return NotOpened(sentence) if error.unopened else sentence
