"""From a store to records: the value of a key and its deadline, read in one step, so that they belong together."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Any, Final, NamedTuple, TypeVar, cast

from keystead.errors import Contended, DoesNotFit, StoreError, StoreUnavailable, WrongKind, shown
from keystead.stores.backup.records import LeftOut, Record, parts_of, size_bytes
from keystead.stores.commands import TABLE, Call, Command, Reply
from keystead.stores.store_contract import Step, Store

PAGE: Final = 512  # keys that are asked for at once
_PAGES_AT_ONCE: Final = 4
_PAGE_BYTES: Final = 2 << 20
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
_PIECES: Final = {"zset": ("ZRANGE", "WITHSCORES"), "list": ("LRANGE",), "stream": ("XRANGE",)}
_KINDS: Final = {kind.encode(): kind for kind in ("string", *_SIZES)}
_LONG_STEP: Final = 100_000  # parts of a key; more of them in one step may take longer than the store is waited for
_GONE: Final = -2
NEVER: Final = -1  # what PEXPIRETIME replies of a key that has no deadline


T = TypeVar("T")


class _End(NamedTuple):
    """When a key expires, and its size, or the id of its last entry."""

    at_ms: int
    last: int | bytes


class _Changed(Exception):
    """A key is not as it was when its first piece was read."""


class Reading:
    """Reads keys of one store. Several pages may be read at once.

    How many bytes a key holds cannot be asked for, so it goes by those that were read last: `page` says how many keys
    to ask for next, and `left_out` gets a sentence about each key of a kind that has no commands here.
    """

    def __init__(self, store: Store) -> None:
        """Raises DoesNotFit where the store has no step in which a value and its deadline can be read."""
        self._store = store
        if store.guarantees.atomic == "nothing":
            raise DoesNotFit(
                f"{store.url} has no atomic step: a value and its expiry could belong to different moments"
            )
        self._keys_at_once = _KEYS_AT_ONCE if store.guarantees.atomic == "any keys" else 1
        self._strings_at_once = 1
        self._key_bytes = _PAGE_BYTES // 4  # what a key is expected to take; at first more than most do
        self.left_out = LeftOut()

    @property
    def page(self) -> int:
        """How many keys take little memory, as far as can be told."""
        return max(1, min(PAGE, _PAGE_BYTES // max(1, self._key_bytes)))

    async def ahead(self, pages: AsyncIterator[list[bytes]]) -> AsyncGenerator[list[Record], None]:
        """The records of these keys, some after the other, while the next ones are being read."""

        async def reads() -> AsyncIterator[Coroutine[Any, Any, list[Record]]]:
            async for keys in pages:
                while keys:
                    some, keys = keys[: self.page], keys[self.page :]
                    yield self.records(some)

        async with aclosing(overlapped(reads(), _PAGES_AT_ONCE)) as found:
            async for records in found:
                yield records

    async def records(self, keys: Sequence[bytes]) -> list[Record]:
        """These keys, in no order; those that are gone, or of a kind that has no commands here, are not among them.

        Raises Contended where a key became another kind each time that it was read.
        """
        found: list[Record] = []
        if (shortcut := await self._store.whole_keys(keys)) is not None:
            whole_keys, keys = shortcut
            found = [Record._make(one) for one in whole_keys]
        for _ in range(_FLIPS):
            if not keys:
                break
            keys = await self._read(keys, found)
        if not keys:
            self._learn(found)
            return found
        raise Contended(f"{shown(keys[0])} became another kind of key each of the {_FLIPS} times that it was read")

    def _learn(self, found: list[Record]) -> None:
        """Large values are expected at once, and small ones again after some pages."""
        if found:
            each = size_bytes(found) // len(found)
            self._key_bytes = max(each, self._key_bytes // 2)

    async def _read(self, keys: Sequence[bytes], found: list[Record]) -> list[bytes]:
        """Read what is there; returns the keys that became another kind meanwhile."""
        kinds = await self._store.run([_call("TYPE", key) for key in keys])
        strings: list[bytes] = []
        others: list[tuple[bytes, str]] = []
        for key, named in zip(keys, kinds, strict=True):
            kind = _KINDS.get(named)
            if kind == "string":
                strings.append(key)
            elif kind is not None:
                others.append((key, kind))
            elif named != b"none":
                self.left_out.add(f"{shown(key)} is of the kind {shown(named)}, which has no commands here")
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
        large: list[tuple[bytes, str, int]] = []
        for one, size in zip(keys, sizes, strict=True):
            if isinstance(size, WrongKind):
                changed.append(one[0])
            elif size > _ENTRIES_AT_ONCE:
                large.append((*one, size))
            else:
                if not groups or size + 1 > room or len(groups[-1]) >= self._keys_at_once:
                    groups.append([])
                    room = _ENTRIES_AT_ONCE + 1
                groups[-1].append(one)
                room -= size + 1
        await self._groups(groups, found, changed)
        for key, kind, size in large:  # one after the other: each may take much memory
            try:
                record = await self._large(key, kind, size)
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
            steps += (_call("PEXPIRETIME", key), _call("GET", key) if kind == "string" else whole(kind, key))
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
                found.append(Record(key, kind, None if at_ms == NEVER else at_ms, parts_of(kind, reply)))

    # --- large collections ---------------------------------------------------------------------------------

    async def _large(self, key: bytes, kind: str, size: int) -> Record | None:
        """In pieces where the kind has an order to go by. None: it is gone. Raises WrongKind.

        What is read in pieces is looked at twice, and taken where nothing changed between the two looks; what never
        keeps still is read in one step, as a hash and a set always are.
        """
        if kind in _PIECES and size > PIECE:
            for _ in range(_TRIES):
                record = await self._in_pieces(key, kind)
                if record is not None:
                    return record
        found: list[Record] = []
        changed: list[bytes] = []
        with taking_long(key, size):
            await self._group([(key, kind)], found, changed)
        if changed:
            raise WrongKind("it is of another kind by now")
        return found[0] if found else None

    async def _in_pieces(self, key: bytes, kind: str) -> Record | None:
        """None: it changed meanwhile. Raises WrongKind."""
        parts: list[bytes] = []
        first: list[int] = []
        try:
            end = await self._end(key, kind)
            async for piece in self._pieces(key, kind, end):
                parts += piece
                first.append(hash(tuple(piece)))
            second = [hash(tuple(piece)) async for piece in self._pieces(key, kind, end)]
        except _Changed:
            return None
        if first != second or (kind == "zset" and len(set(parts[1::2])) * 2 != len(parts)):
            return None
        return Record(key, kind, None if end.at_ms == NEVER else end.at_ms, parts)

    async def _end(self, key: bytes, kind: str) -> _End:
        """Where the pieces of this key end, at this moment. Raises _Changed where it is gone."""
        last = ("XREVRANGE", key, "+", "-", "COUNT", 1) if kind == "stream" else (_SIZES[kind], key)
        at_ms, found = await self._step(("PEXPIRETIME", key), last)
        if at_ms == _GONE or not found:
            raise _Changed
        return _End(at_ms, found[0][0] if kind == "stream" else found)

    async def _pieces(self, key: bytes, kind: str, end: _End) -> AsyncIterator[list[bytes]]:
        """The parts of this key, piece by piece. Raises _Changed where its deadline or its size is another one.

        A stream may go on after its end: what is added there does not change what stands before.
        """
        done = 0
        begins: str | bytes = "-"
        while True:
            if kind == "stream":
                at_ms, piece = await self._step(("PEXPIRETIME", key), ("XRANGE", key, begins, end.last, "COUNT", PIECE))
            else:
                name, *words = _PIECES[kind]
                at_ms, size, piece = await self._step(
                    ("PEXPIRETIME", key), (_SIZES[kind], key), (name, key, done, done + PIECE - 1, *words)
                )
                if size != end.last:
                    raise _Changed
            if at_ms != end.at_ms:
                raise _Changed
            done += len(piece)
            yield parts_of(kind, piece)
            if len(piece) < PIECE:
                return
            if kind == "stream":
                begins = b"(" + piece[-1][0]

    async def _step(self, *commands: Command) -> list[Reply]:
        return (await self._store.atomically(commands)).replies


async def overlapped(steps: AsyncIterator[Coroutine[Any, Any, T]], most: int) -> AsyncGenerator[T, None]:
    """The result of each step, in their order, while others are under way: so many at once.

    Use it with `aclosing`: whatever ends it early, steps that are under way are then cancelled and waited for.
    """
    under_way: deque[asyncio.Task[T]] = deque()
    try:
        async for step in steps:
            under_way.append(asyncio.create_task(step))
            if len(under_way) >= most:
                yield await under_way.popleft()
        while under_way:
            yield await under_way.popleft()
    finally:
        for task in under_way:
            task.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)


def refuse_unlisted(store: Store) -> None:
    """Raises DoesNotFit where the store cannot list its keys: whoever wants all of them need not begin."""
    if not store.guarantees.scans:
        raise DoesNotFit(f"{store.url} cannot list its keys, so they cannot be read one after the other")


@contextmanager
def taking_long(key: bytes, parts: int) -> Iterator[None]:
    """Around a step of so many parts: where the store was not waited for long enough, say for which key."""
    try:
        yield
    except StoreUnavailable as error:
        if parts < _LONG_STEP:
            raise
        raise StoreUnavailable(
            f"{error}, while {shown(key)} with its {parts:,} parts went over in one step; if it is always this key, "
            "write ?timeout=10m at the end of the store's URL",
            outcome=error.outcome,
        ) from None


def _call(name: str, key: bytes) -> Command:
    """A command that has no argument but a key, read already: there are as many of these as there are keys."""
    return cast("Command", Call(TABLE[name], [key], None))


def whole(kind: str, key: bytes) -> Command:
    """What reads all of a collection."""
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
