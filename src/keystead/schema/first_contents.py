"""First contents: what many keys of any kind hold, in few round trips; of large ones, the first entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from keystead.errors import WrongKind
from keystead.schema.chunked_reading import SIZES, entries_of, whole
from keystead.schema.pace import Pace
from keystead.stores import Command, Store

_ENTRIES: Final = 100  # read of each key that has entries
_LARGE: Final = 500  # entries of a set or a hash, which cannot be read in part


async def first_contents(
    store: Store, keys: Sequence[tuple[str | bytes, str]], pace: Pace
) -> list[tuple[int | None, Any]]:
    """For each key and its kind: the number of its entries, and the first ones; of a string None, and its value.

    The content of a large set or hash is None, as is that of a key which was deleted or replaced meanwhile.
    """
    sizes = await pace.run(store, [(SIZES[kind], key) for key, kind in keys], len(keys))
    found: list[tuple[int | None, Any]] = []
    to_read: list[tuple[int, str, Command]] = []
    for number, ((key, kind), size) in enumerate(zip(keys, sizes, strict=True)):
        if size is None or isinstance(size, WrongKind):
            found.append((None, None))
        elif kind == "string":
            found.append((None, size))
        else:
            found.append((size, None))
            if kind not in ("set", "hash") or size <= _LARGE:
                to_read.append((number, kind, _command(kind, key)))
    replies = await pace.run(store, [command for _, _, command in to_read], len(to_read))
    for (number, kind, _), reply in zip(to_read, replies, strict=True):
        if not isinstance(reply, WrongKind):
            found[number] = found[number][0], entries_of(kind, reply)
    return found


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
