"""First contents: what many keys of any kind hold, in few round trips; of large ones, the beginning."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final, NamedTuple

from keystead.errors import EngineError, WrongKind
from keystead.schema.chunked_reading import SIZES, entries_of, whole
from keystead.schema.pace import Pace
from keystead.stores import Command, Store

_ENTRIES: Final = 100  # read of each key that has entries
_LARGE: Final = 500  # entries of a set or a hash, which cannot be read in part
_AT_ONCE: Final = 4_000_000  # bytes that replies of one round trip should not exceed
_FIRST: Final = 16  # keys of a round trip, while their sizes are unknown
_MOST: Final = 1_000
_BEGINNING: Final = 1_000  # bytes that are kept of a long string


class Beginning(bytes):
    """The first bytes of a value that is too long to be read."""

    __slots__ = ()


class Content(NamedTuple):
    """What a key holds: the number of its entries, and the first ones; of a string None, and its value.

    The content of a large set or hash is None, as is that of a key which was deleted or replaced meanwhile.
    """

    number: int  # which of the keys
    size: int | None
    content: Any


class FirstContents:
    """Reads what keys hold in round trips of few megabytes. Of a string of more than `most_bytes`, a Beginning.

    The size of what comes next is estimated from what came last, so keys of one store should be read by one of these.
    """

    def __init__(self, store: Store, pace: Pace, most_bytes: int | None = None) -> None:
        self._store = store
        self._pace = pace
        self._most_bytes = most_bytes
        self._fitting = _FIRST  # keys in the next round trip

    async def read(self, keys: Sequence[tuple[str | bytes, str]]) -> AsyncIterator[Content]:
        """The content of each key and its kind, in any order. Only a few are held at a time."""
        strings = [number for number, (_, kind) in enumerate(keys) if kind == "string"]
        async for at, value in self._strings([keys[number][0] for number in strings]):
            yield Content(strings[at], None, value)
        others = [number for number, (_, kind) in enumerate(keys) if kind != "string"]
        sizes = await self._pace.run(self._store, [(SIZES[keys[one][1]], keys[one][0]) for one in others], len(others))
        to_read: list[tuple[int, int, Command]] = []
        for number, size in zip(others, sizes, strict=True):
            key, kind = keys[number]
            if isinstance(size, WrongKind) or size is None:
                yield Content(number, None, None)
            elif kind in ("set", "hash") and size > _LARGE:
                yield Content(number, size, None)
            else:
                to_read.append((number, size, _command(kind, key)))
        async for place, reply in self._replies([command for _, _, command in to_read]):
            number, size, _ = to_read[place]
            yield Content(number, size, None if isinstance(reply, WrongKind) else entries_of(keys[number][1], reply))

    async def _strings(self, keys: Sequence[str | bytes]) -> AsyncIterator[tuple[int, Any]]:
        long = await self._too_long(keys)
        short = [place for place in range(len(keys)) if place not in long]
        async for at, value in self._replies([("GET", keys[place]) for place in short]):
            yield short[at], None if isinstance(value, WrongKind) else self._begin(value)
        for place in long:
            [value] = await self._store.run_foreign([("GETRANGE", keys[place], "0", str(_BEGINNING - 1))])
            yield place, None if isinstance(value, EngineError) else Beginning(value)

    async def _too_long(self, keys: Sequence[str | bytes]) -> frozenset[int]:
        """The places of the strings that are too long to be read, where the store tells before it sends them."""
        if self._most_bytes is None or not self._store.takes_foreign or not keys:
            return frozenset()
        lengths = await self._store.run_foreign([("STRLEN", key) for key in keys])
        most = self._most_bytes
        return frozenset(place for place, length in enumerate(lengths) if isinstance(length, int) and length > most)

    def _begin(self, value: Any) -> Any:
        if value is None or self._most_bytes is None or len(value) <= self._most_bytes:
            return value
        return Beginning(value[:_BEGINNING])

    async def _replies(self, commands: list[Command]) -> AsyncIterator[tuple[int, Any]]:
        at = 0
        while at < len(commands):
            some = commands[at : at + self._fitting]
            replies = await self._pace.run(self._store, some, len(some))
            fitting = _AT_ONCE * len(some) // max(1, sum(map(_bytes_in, replies)))
            self._fitting = max(1, min(fitting, 4 * self._fitting, _MOST))
            for place, reply in enumerate(replies, at):
                yield place, reply
            at += len(some)


def _bytes_in(reply: Any) -> int:
    """All bytes of a reply, however deep; a number counts as 8."""
    if isinstance(reply, bytes):
        return len(reply)
    if isinstance(reply, dict):
        return sum(len(name) + len(data) for name, data in reply.items())
    return sum(map(_bytes_in, reply)) if isinstance(reply, list | tuple | set | frozenset) else 8


def _command(kind: str, key: str | bytes) -> Command:
    match kind:
        case "zset":
            return ("ZRANGE", key, 0, _ENTRIES - 1, "WITHSCORES")
        case "list":
            return ("LRANGE", key, 0, _ENTRIES - 1)
        case "stream":
            return ("XRANGE", key, "-", "+", "COUNT", _ENTRIES)
        case _:
            return whole(kind, key)
