"""From a store to records: the value of a key and its deadline, read in one step, so that they belong together."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Final, cast

from keystead.errors import Contended, DoesNotFit, StoreError, WrongKind, shown
from keystead.stores.backup.records import Record, parts_of
from keystead.stores.base import Step, Store
from keystead.stores.commands import TABLE, Call, Command, Reply

_KEYS_AT_ONCE: Final = 64  # of one atomic step: Redis serves nobody else meanwhile
_BYTES_AT_ONCE: Final = 256 << 10
_ENTRIES_AT_ONCE: Final = 500
PIECE: Final = 5_000  # entries of one key that are read in one step, where the rest can be read later
_TRIES: Final = 3
_FLIPS: Final = 10

_SIZES: Final = {"hash": "HLEN", "set": "SCARD", "zset": "ZCARD", "list": "LLEN", "stream": "XLEN"}
_WHOLE: Final[dict[str, tuple[str | int, ...]]] = {
    "hash": ("HGETALL",),
    "set": ("SMEMBERS",),
    "zset": ("ZRANGE", 0, -1, "WITHSCORES"),
    "list": ("LRANGE", 0, -1),
    "stream": ("XRANGE", "-", "+"),
}
_GONE: Final = -2
_NEVER: Final = -1


class Reading:
    """Reads keys of one store. Several pages may be read at once."""

    def __init__(self, store: Store) -> None:
        """Raises DoesNotFit where the store has no step in which a value and its deadline can be read."""
        if store.guarantees.atomic == "nothing":
            raise DoesNotFit(
                f"{store.url} has no atomic step: a value and its expiry could belong to different moments"
            )
        self._store = store
        self._keys_at_once = _KEYS_AT_ONCE if store.guarantees.atomic == "any keys" else 1
        self._strings_at_once = min(self._keys_at_once, 16)

    async def records(self, keys: Sequence[bytes]) -> list[Record]:
        """These keys, in no order; those that are gone are left out.

        Raises Contended where a key became another kind each time that it was read.
        """
        found: list[Record] = []
        for _ in range(_FLIPS):
            keys = await self._read(keys, found)
            if not keys:
                return found
        raise Contended(f"{shown(keys[0])} became another kind of key each of the {_FLIPS} times that it was read")

    async def _read(self, keys: Sequence[bytes], found: list[Record]) -> list[bytes]:
        """Read what is there; returns the keys that became another kind meanwhile."""
        kinds = await self._store.run([_call("TYPE", key) for key in keys])
        strings: list[bytes] = []
        others: list[tuple[bytes, str]] = []
        for key, kind in zip(keys, kinds, strict=True):
            if kind == b"string":
                strings.append(key)
            elif kind != b"none":
                others.append((key, kind.decode()))
        changed: list[bytes] = []
        await asyncio.gather(self._strings(strings, found, changed), self._collections(others, found, changed))
        return changed

    async def _strings(self, keys: list[bytes], found: list[Record], changed: list[bytes]) -> None:
        at = 0
        while at < len(keys):
            # Where a step has room for one key only, so many steps are under way at once.
            steps = 1 if self._keys_at_once > 1 else _KEYS_AT_ONCE
            some = keys[at : at + steps * self._strings_at_once]
            at += len(some)
            size = len(found)
            await self._groups([[(key, "string") for key in group] for group in self._split(some)], found, changed)
            held = sum(len(record.parts[0]) for record in found[size:] if record.kind == "string")
            # As many as fit, going by those that were read last. Large ones are met one by one.
            fitting = _BYTES_AT_ONCE * len(some) // max(held, 1)
            self._strings_at_once = max(1, min(self._keys_at_once, fitting, 2 * self._strings_at_once))

    def _split(self, keys: list[bytes]) -> Iterator[list[bytes]]:
        for at in range(0, len(keys), self._strings_at_once):
            yield keys[at : at + self._strings_at_once]

    async def _collections(self, keys: list[tuple[bytes, str]], found: list[Record], changed: list[bytes]) -> None:
        sizes = await _replies(self._store, [(_SIZES[kind], key) for key, kind in keys])
        groups: list[list[tuple[bytes, str]]] = []
        room = 0
        large: list[tuple[bytes, str]] = []
        for one, size in zip(keys, sizes, strict=True):
            if isinstance(size, WrongKind):
                changed.append(one[0])
            elif size > _ENTRIES_AT_ONCE:
                large.append(one)
            else:
                if not groups or size + 1 > room or len(groups[-1]) >= self._keys_at_once:
                    groups.append([])
                    room = _ENTRIES_AT_ONCE + 1
                groups[-1].append(one)
                room -= size + 1
        await self._groups(groups, found, changed)
        for key, kind in large:  # one after the other: each may take much memory
            try:
                record = await self._large(key, kind)
            except WrongKind:
                changed.append(key)
                continue
            if record is not None:
                found.append(record)

    async def _groups(self, groups: list[list[tuple[bytes, str]]], found: list[Record], changed: list[bytes]) -> None:
        if len(groups) == 1:
            await self._group(groups[0], found, changed)
        elif groups:
            await asyncio.gather(*(self._group(group, found, changed) for group in groups))

    async def _group(self, group: list[tuple[bytes, str]], found: list[Record], changed: list[bytes]) -> None:
        """Some keys in one step. Where one of them is of another kind by now, each is read in a step of its own."""
        steps: list[Step] = []
        for key, kind in group:
            steps += (_call("PEXPIRETIME", key), _call("GET", key) if kind == "string" else _whole(kind, key))
        try:
            replies = (await self._store.atomically(steps)).replies
        except WrongKind:
            if len(group) == 1:
                changed.append(group[0][0])
            else:
                await self._groups([[one] for one in group], found, changed)
            return
        for (key, kind), at_ms, reply in zip(group, replies[::2], replies[1::2], strict=True):
            if at_ms != _GONE:
                found.append(Record(key, kind, None if at_ms == _NEVER else at_ms, parts_of(kind, reply)))

    # --- large collections ---------------------------------------------------------------------------------

    async def _large(self, key: bytes, kind: str) -> Record | None:
        """In pieces where the kind has an order to go by. None: it is gone. Raises WrongKind.

        A list or a sorted set that changes while it is read is read again; one that never keeps still is read in one
        step, as a hash and a set always are.
        """
        if kind in ("zset", "list"):
            for _ in range(_TRIES):
                record = await self._by_index(key, kind)
                if record is not None:
                    return record
        elif kind == "stream":
            return await self._by_id(key)
        found: list[Record] = []
        changed: list[bytes] = []
        await self._group([(key, kind)], found, changed)
        if changed:
            raise WrongKind("it is of another kind by now")
        return found[0] if found else None

    async def _by_index(self, key: bytes, kind: str) -> Record | None:
        """None: it changed meanwhile."""
        name, words = ("ZRANGE", ("WITHSCORES",)) if kind == "zset" else ("LRANGE", ())
        entries: list[Reply] = []
        first: tuple[int, int] | None = None
        while first is None or len(entries) < first[1]:
            # Each piece begins with the last entry of the one before: where it is another one, entries have moved.
            begins = max(0, len(entries) - 1)
            replies = await self._step(
                ("PEXPIRETIME", key), (_SIZES[kind], key), (name, key, begins, begins + PIECE - 1, *words)
            )
            at_ms, size, piece = replies
            if at_ms == _GONE or (first is not None and first != (at_ms, size)) or not piece:
                return None
            if first is not None and piece[0] != entries[-1]:
                return None
            entries += piece if first is None else piece[1:]
            first = (at_ms, size)
        if kind == "zset" and len({member for member, _ in entries}) != first[1]:
            return None
        return Record(key, kind, None if first[0] == _NEVER else first[0], parts_of(kind, entries))

    async def _by_id(self, key: bytes) -> Record | None:
        """The entries of a stream up to the last of this moment. None: it is gone."""
        [newest] = await self._step(("XREVRANGE", key, "+", "-", "COUNT", 1))
        until = newest[0][0] if newest else "0-0"
        parts: list[bytes] = []
        begins: str | bytes = "-"
        while True:
            at_ms, piece = await self._step(("PEXPIRETIME", key), ("XRANGE", key, begins, until, "COUNT", PIECE))
            if at_ms == _GONE:
                return None
            parts += parts_of("stream", piece)
            if len(piece) < PIECE:
                return Record(key, "stream", None if at_ms == _NEVER else at_ms, parts)
            begins = b"(" + piece[-1][0]

    async def _step(self, *commands: Command) -> list[Reply]:
        return (await self._store.atomically(commands)).replies


def _call(name: str, key: bytes) -> Command:
    """A command that has no argument but a key, read already: there are as many of these as there are keys."""
    return cast("Command", Call(TABLE[name], [key], None))


def _whole(kind: str, key: bytes) -> Command:
    name, *rest = _WHOLE[kind]
    return (cast("str", name), key, *rest)


async def _replies(store: Store, commands: list[Command]) -> list[Reply]:
    """As `store.run`, but with a WrongKind in the place of each command that met another kind of key."""
    try:
        return await store.run(commands)
    except WrongKind as error:
        replies = error.replies or []
    for reply in replies:
        if isinstance(reply, StoreError) and not isinstance(reply, WrongKind):
            raise reply
    return replies
