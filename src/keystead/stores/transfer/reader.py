"""Read keys from a store as records. The value and the deadline of a key are read in one atomic step."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import aclosing, contextmanager
from typing import Any, Final, NamedTuple, TypeVar, cast

from keystead.errors import Contended, DoesNotFit, StoreError, StoreUnavailable, WrongKind, printable
from keystead.stores.commands import TABLE, Call, Command, Reply
from keystead.stores.store_contract import Step, Store
from keystead.stores.transfer.guarded_writes import is_written_whole
from keystead.stores.transfer.records import LeftOut, Record, parts_of, size_bytes
from keystead.stores.transfer.seen_keys import SeenKeys

PAGE: Final = 512  # keys per scan page
_PAGES_AT_ONCE: Final = 4
_PAGE_BYTES: Final = 2 << 20
_KEYS_AT_ONCE: Final = 64  # of one atomic step, which blocks Redis
_BYTES_AT_ONCE: Final = 256 << 10
_ENTRIES_AT_ONCE: Final = 500
PIECE: Final = 5_000  # entries of one key per step, if it can be read in pieces
_TRIES: Final = 3
_FLIPS: Final = 10

_SIZES: Final = {"hash": "HLEN", "set": "SCARD", "zset": "ZCARD", "list": "LLEN", "stream": "XLEN"}
_FULL: Final[dict[str, tuple[str | int, ...]]] = {
    "hash": ("HGETALL",),
    "set": ("SMEMBERS",),
    "zset": ("ZRANGE", 0, -1, "WITHSCORES"),
    "list": ("LRANGE", 0, -1),
    "stream": ("XRANGE", "-", "+"),
}
_PIECES: Final = {"zset": ("ZRANGE", "WITHSCORES"), "list": ("LRANGE",), "stream": ("XRANGE",)}
_KINDS: Final = {kind.encode(): kind for kind in ("string", *_SIZES)}
_LONG_STEP: Final = 100_000  # parts of a key; more in one step may exceed the store's timeout
_GONE: Final = -2
NEVER: Final = -1  # the reply of PEXPIRETIME for a key without a deadline

T = TypeVar("T")


class _End(NamedTuple):
    """When a key expires, and its size, or the id of its last entry."""

    at_ms: int
    last: int | bytes


class _Changed(Exception):
    """A key changed since its first piece was read."""


class Reader:
    """Reads keys of one store. Several pages may be read concurrently.

    The size of a key is unknown before it is read, so it is estimated from the last ones: `page` is how many keys to
    read next. `left_out` gets a sentence about each key of a kind that has no commands here.
    """

    def __init__(self, store: Store) -> None:
        """Raises DoesNotFit if the store cannot read a value and its deadline in one step."""
        self._store = store
        if store.guarantees.atomic == "nothing" and not is_written_whole(store):
            raise DoesNotFit(f"{store.url} has no atomic steps, so a value and its deadline could be inconsistent")
        self._keys_at_once = _KEYS_AT_ONCE if store.guarantees.atomic == "any keys" else 1
        self._key_bytes = _PAGE_BYTES // 4  # the estimate; at first larger than most keys
        self.left_out = LeftOut()

    @property
    def page(self) -> int:
        """How many keys fit into little memory, by the estimate."""
        return max(1, min(PAGE, _PAGE_BYTES // self._key_bytes))

    async def read_all(
        self, match: str, seen: SeenKeys | None = None, *, without: bytes | None = None
    ) -> AsyncGenerator[list[Record], None]:
        """Read every matching key, in batches; the next ones are prefetched. Use it with `aclosing`.

        A scan may return a key twice; with `seen` it is read once. `without` is a prefix of keys that are skipped.
        """

        async def reads() -> AsyncIterator[Coroutine[Any, Any, list[Record]]]:
            async for page in self._store.scan(match, page=PAGE):
                keys = page if without is None else [key for key in page if not key.startswith(without)]
                keys = keys if seen is None else seen.add(keys)
                while keys:
                    some, keys = keys[: self.page], keys[self.page :]
                    yield self.read(some)

        async with aclosing(run_overlapped(reads(), _PAGES_AT_ONCE)) as found:
            async for records in found:
                yield records

    async def read_by_key(self, keys: Sequence[bytes]) -> dict[bytes, Record]:
        return {record.key: record for record in await self.read(keys)} if keys else {}

    async def read(self, keys: Sequence[bytes]) -> list[Record]:
        """Read these keys, in no order, without missing ones and kinds that have no commands here.

        Raises Contended if a key changed its kind each time it was read.
        """
        found: list[Record] = []
        if (shortcut := await self._store.whole_keys(keys)) is not None:
            full_keys, keys = shortcut
            found = [Record._make(one) for one in full_keys]
        for _ in range(_FLIPS):
            if not keys:
                break
            keys = await self._read_by_commands(keys, found)
        if not keys:
            self._learn(found)
            return found
        raise Contended(f"{printable(keys[0])} changed its kind in each of {_FLIPS} reads")

    def _learn(self, found: list[Record]) -> None:
        """Update the estimate: it grows immediately, and shrinks in steps."""
        if found:
            self._key_bytes = max(size_bytes(found) // len(found), self._key_bytes // 2)

    async def _read_by_commands(self, keys: Sequence[bytes], found: list[Record]) -> list[bytes]:
        """Read existing keys; returns those that changed their kind meanwhile."""
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
                self.left_out.add(f"{printable(key)} is of the kind {printable(named)}, which has no commands here")
        changed: list[bytes] = []
        await asyncio.gather(
            self._read_strings(strings, found, changed), self._read_collections(others, found, changed)
        )
        return changed

    async def _read_strings(self, keys: list[bytes], found: list[Record], changed: list[bytes]) -> None:
        """In consecutive steps, each with as many keys as fit by the estimate, to limit memory."""
        while keys:
            fitting = max(1, min(self._keys_at_once, _BYTES_AT_ONCE // self._key_bytes))
            # If a step has room for one key only, many steps run concurrently.
            count = fitting if self._keys_at_once > 1 else _KEYS_AT_ONCE
            some, keys = keys[:count], keys[count:]
            before = len(found)
            groups = [[(key, "string") for key in some[at : at + fitting]] for at in range(0, len(some), fitting)]
            await self._read_groups(groups, found, changed)
            self._learn(found[before:])

    async def _read_collections(self, keys: list[tuple[bytes, str]], found: list[Record], changed: list[bytes]) -> None:
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
        await self._read_groups(groups, found, changed)
        for key, kind, size in large:  # one at a time: each may take much memory
            try:
                if (record := await self._read_large(key, kind, size)) is not None:
                    found.append(record)
            except WrongKind:
                changed.append(key)

    async def _read_groups(
        self, groups: list[list[tuple[bytes, str]]], found: list[Record], changed: list[bytes]
    ) -> None:
        await asyncio.gather(*(self._read_group(group, found, changed) for group in groups))

    async def _read_group(self, group: list[tuple[bytes, str]], found: list[Record], changed: list[bytes]) -> None:
        """Read some keys in one step. If one of them has changed its kind, each is read in a separate step."""
        steps: list[Step] = []
        for key, kind in group:
            steps += (_call("PEXPIRETIME", key), read_command(kind, key))
        try:
            replies = (await self._store.atomically(steps)).replies
        except WrongKind:
            if len(group) == 1:
                changed.append(group[0][0])
            else:
                await self._read_groups([[one] for one in group], found, changed)
            return
        for (key, kind), at_ms, reply in zip(group, replies[::2], replies[1::2], strict=True):
            if at_ms != _GONE:
                found.append(Record(key, kind, None if at_ms == NEVER else at_ms, parts_of(kind, reply)))

    # --- large collections ---------------------------------------------------------------------------------

    async def _read_large(self, key: bytes, kind: str, size: int) -> Record | None:
        """Read in pieces if the kind has an order. None: it is gone. Raises WrongKind.

        Pieces are read twice, and accepted if nothing changed in between. A key that changes each time is read in one
        step, as hashes and sets always are.
        """
        if kind in _PIECES and size > PIECE:
            for _ in range(_TRIES):
                if (record := await self._read_pieces(key, kind)) is not None:
                    return record
        found: list[Record] = []
        changed: list[bytes] = []
        with taking_long(key, size):
            await self._read_group([(key, kind)], found, changed)
        if changed:
            raise WrongKind("it has changed its kind")
        return found[0] if found else None

    async def _read_pieces(self, key: bytes, kind: str) -> Record | None:
        """None: it changed meanwhile. Raises WrongKind."""
        parts: list[bytes] = []
        first: list[int] = []
        try:
            end = await self._find_end(key, kind)
            async for piece in self._pieces(key, kind, end):
                parts += piece
                first.append(hash(tuple(piece)))
            second = [hash(tuple(piece)) async for piece in self._pieces(key, kind, end)]
        except _Changed:
            return None
        if first != second or (kind == "zset" and len(set(parts[1::2])) * 2 != len(parts)):
            return None
        return Record(key, kind, None if end.at_ms == NEVER else end.at_ms, parts)

    async def _find_end(self, key: bytes, kind: str) -> _End:
        """The current end of this key. Raises _Changed if it is gone."""
        last = ("XREVRANGE", key, "+", "-", "COUNT", 1) if kind == "stream" else (_SIZES[kind], key)
        at_ms, found = await self._step(("PEXPIRETIME", key), last)
        if at_ms == _GONE or not found:
            raise _Changed
        return _End(at_ms, found[0][0] if kind == "stream" else found)

    async def _pieces(self, key: bytes, kind: str, end: _End) -> AsyncIterator[list[bytes]]:
        """The parts of this key, piece by piece. Raises _Changed if its deadline or its size has changed.

        A stream may grow at its end, which does not change earlier entries.
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


async def run_overlapped(steps: AsyncIterator[Coroutine[Any, Any, T]], most: int) -> AsyncGenerator[T, None]:
    """The result of each step, in order, with at most `most` steps running concurrently.

    Use it with `aclosing`: if it ends early, running steps are cancelled and awaited.
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
    """Raise DoesNotFit if the store cannot list its keys."""
    if not store.guarantees.scans:
        raise DoesNotFit(f"{store.url} cannot list its keys, so they cannot be read")


async def count_keys(store: Store, match: str = "*") -> int | None:
    """The number of matching keys; None: unknown, because stores only count all of their keys."""
    if match != "*" or not store.guarantees.scans:
        return None
    [count] = await store.run([("DBSIZE",)])
    return int(count)


async def clock_ms(store: Store) -> int:
    [(seconds, micros)] = await store.run([("TIME",)])
    return int(seconds) * 1000 + int(micros) // 1000


@contextmanager
def taking_long(key: bytes, parts: int) -> Iterator[None]:
    """Wraps a step with this many parts: if it times out, the error names the key and the setting that helps."""
    try:
        yield
    except StoreUnavailable as error:
        if parts < _LONG_STEP:
            raise
        raise StoreUnavailable(
            f"{error}, while {printable(key)} with its {parts:,} parts was transferred in one step; if it is always "
            "this key, add ?timeout=10m to the store's URL",
            outcome=error.outcome,
        ) from None


def _call(name: str, key: bytes) -> Command:
    """A parsed command whose only argument is a key. Not parsed each time, because there is one per key."""
    return cast("Command", Call(TABLE[name], [key], None))


def read_command(kind: str, key: bytes) -> Command:
    """The command that reads a whole value."""
    if kind == "string":
        return _call("GET", key)
    name, *rest = _FULL[kind]
    return (cast("str", name), key, *rest)


async def _replies(store: Store, commands: list[Command]) -> list[Reply]:
    """As `store.run`, with a WrongKind in place of each reply for a key of another kind."""
    try:
        return await store.run(commands)
    except WrongKind as error:
        replies = error.replies or []
    for reply in replies:
        if isinstance(reply, StoreError) and not isinstance(reply, WrongKind):
            raise reply
    return replies
