"""Derived commands that need a value before they can write: read, then write if nothing has changed, or start over."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from keystead.errors import BadArgument, BadOption, NotANumber, StoredNotANumber, StoreError
from keystead.stores.command_options import integer, parse_optional_count
from keystead.stores.commands import Command, Reply, encode
from keystead.stores.derived.derived_command import Attempt, Exchange
from keystead.stores.derived.float_sums import add_floats
from keystead.stores.store_contract import Step, Store, absent, field_holds, holds, required, still
from keystead.stores.transfer.records import Record, commands_of, parts_of

_LONGEST_STRING: Final = 512 << 20
# Of zeros that SETRANGE adds: a short command must not occupy the process for seconds.
_MOST_PADDING: Final = 16 << 20
_MOST_RANDOM: Final = 1_000_000  # members of one reply, which may repeat

# How a whole key of each kind is read.
_READERS: Final[dict[bytes, tuple[str, tuple[str | int, ...]]]] = {
    b"string": ("GET", ()),
    b"hash": ("HGETALL", ()),
    b"set": ("SMEMBERS", ()),
    b"zset": ("ZRANGE", (0, -1, "WITHSCORES")),
    b"list": ("LRANGE", (0, -1)),
}

# From the replies of the reads: the steps to write, of which some may be guards, and the reply.
# Without steps nothing is written.
Decide = Callable[[list[Any]], tuple[Sequence[Step], Reply]]


def _exchange(keys: Sequence[bytes], reads: Sequence[Command], decide: Decide) -> Exchange:
    """Read, and write what `decide` makes of it, until no other caller was faster."""

    async def attempt(store: Store) -> Attempt:
        replies = await store.run(reads)
        steps, reply = decide(replies)
        guards = [] if steps else [still(read, held) for read, held in zip(reads, replies, strict=True)]
        return Attempt(guards, steps, reply)

    return Exchange(keys, True, attempt)


def _replace_string(key: bytes, held: bytes | None, value: bytes) -> list[Step]:
    return [holds(key, held), ("SET", key, value, "KEEPTTL")]


# --- strings and numbers -------------------------------------------------------------------------------------


def append(args: Sequence[bytes]) -> Exchange:
    key, more = args

    def decide(replies: list[Any]) -> tuple[Sequence[Step], Reply]:
        [held] = replies
        value = (held or b"") + more
        return _replace_string(key, held, value), len(value)

    return _exchange([key], [("GET", key)], decide)


def setrange(args: Sequence[bytes]) -> Exchange:
    key, offset, part = args[0], integer(args[1]), args[2]
    if not 0 <= offset <= _LONGEST_STRING - len(part):
        raise BadArgument("the offset is out of range")

    def decide(replies: list[Any]) -> tuple[Sequence[Step], Reply]:
        held = replies[0] or b""
        if not part:
            return [], len(held)
        if offset - len(held) > _MOST_PADDING:
            raise BadArgument(f"the offset is more than {_MOST_PADDING:,} bytes beyond the end of the value")
        value = held[:offset].ljust(offset, b"\x00") + part + held[offset + len(part) :]
        return _replace_string(key, replies[0], value), len(value)

    return _exchange([key], [("GET", key)], decide)


def _add(held: bytes | None, amount: bytes) -> bytes:
    add_floats(None, amount)  # an invalid amount is an error of the caller
    try:
        return add_floats(held, amount)
    except NotANumber as error:
        raise StoredNotANumber(error.sentence) from None


def incrbyfloat(args: Sequence[bytes]) -> Exchange:
    key, amount = args

    def decide(replies: list[Any]) -> tuple[Sequence[Step], Reply]:
        total = _add(replies[0], amount)
        return _replace_string(key, replies[0], total), total

    return _exchange([key], [("GET", key)], decide)


def hincrbyfloat(args: Sequence[bytes]) -> Exchange:
    key, field, amount = args
    add_floats(None, amount)  # as in Redis, this error comes before that of the wrong kind

    def decide(replies: list[Any]) -> tuple[Sequence[Step], Reply]:
        total = _add(replies[0], amount)
        return [field_holds(key, field, replies[0]), ("HSET", key, field, total)], total

    return _exchange([key], [("HGET", key, field)], decide)


# --- sets and sorted sets ------------------------------------------------------------------------------------


def spop(args: Sequence[bytes]) -> Exchange:
    key, count = args[0], parse_optional_count(args)

    def decide(replies: list[Any]) -> tuple[Sequence[Step], Reply]:
        members = list(replies[0])
        chosen = random.sample(members, min(1 if count is None else count, len(members)))
        if not chosen:
            return [], None if count is None else set()
        if count is None:
            return [required(("SREM", key, chosen[0]))], chosen[0]
        return [still(("SMEMBERS", key), replies[0]), ("SREM", key, *chosen)], set(chosen)

    return _exchange([key], [("SMEMBERS", key)], decide)


def srandmember(args: Sequence[bytes]) -> Exchange:
    count = _random_count(args)
    return _random_read(("SMEMBERS", args[0]), lambda found: _choose(list(found), count))


def hrandfield(args: Sequence[bytes]) -> Exchange:
    count = _random_count(args)
    if len(args) > 2 and args[2].upper() != b"WITHVALUES":
        raise BadOption("write: HRANDFIELD key [count [WITHVALUES]]")

    def choose(found: dict[bytes, bytes]) -> Reply:
        chosen = _choose(list(found), count)
        return [part for field in chosen for part in (field, found[field])] if len(args) > 2 else chosen

    return _random_read(("HGETALL", args[0]), choose)


def _random_count(args: Sequence[bytes]) -> int | None:
    count = integer(args[1]) if len(args) > 1 else None
    if count is not None and count < -_MOST_RANDOM:
        raise BadArgument(f"a reply has at most {_MOST_RANDOM:,} members")
    return count


def _choose(members: list[bytes], count: int | None) -> Any:
    if count is None:
        return random.choice(members) if members else None  # noqa: S311 - not a secret
    if count < 0:
        return random.choices(members, k=-count) if members else []  # noqa: S311
    return random.sample(members, min(count, len(members)))


def _random_read(whole: Command, choose: Callable[[Any], Reply]) -> Exchange:
    """A read, but with another reply each time, so it is not a function of the replies of its steps."""

    async def attempt(store: Store) -> Attempt:
        [found] = await store.run([whole])
        return Attempt([still(whole, found)], [], choose(found))

    return Exchange([encode(whole[1])], False, attempt)


def store_set(operation: Callable[..., set[bytes]]) -> Callable[[Sequence[bytes]], Exchange]:
    """SINTERSTORE and its kin: the destination is replaced, whatever it held."""

    def build(args: Sequence[bytes]) -> Exchange:
        destination, *sources = args
        reads: list[Command] = [("SMEMBERS", source) for source in sources]

        def decide(replies: list[Any]) -> tuple[Sequence[Step], Reply]:
            members = list(operation(*replies))
            guards = [still(read, held) for read, held in zip(reads, replies, strict=True)]
            return [*guards, ("DEL", destination), *_in_pieces("SADD", destination, members)], len(members)

        return _exchange(args, reads, decide)

    return build


def zpopmax(args: Sequence[bytes]) -> Exchange:
    key, count = args[0], parse_optional_count(args)
    highest = ("ZRANGE", key, 0, (1 if count is None else count) - 1, "REV", "WITHSCORES")

    def decide(replies: list[Any]) -> tuple[Sequence[Step], Reply]:
        [found] = replies
        if not found or count == 0:
            return [], []
        steps: list[Step] = [still(highest, found), ("ZREM", key, *(member for member, _ in found))]
        return steps, found[0] if count is None else found

    return _exchange([key], [highest], decide)


# --- lists ---------------------------------------------------------------------------------------------------


def lmove(args: Sequence[bytes]) -> Exchange:
    source, destination, *ends = args
    out, into = (end.upper() for end in ends)
    if not {out, into} <= {b"LEFT", b"RIGHT"}:
        raise BadOption("write: LMOVE source destination LEFT | RIGHT LEFT | RIGHT")
    place = 0 if out == b"LEFT" else -1
    end = ("LRANGE", source, place, place)
    push, pop = ("LPUSH" if into == b"LEFT" else "RPUSH"), ("LPOP" if out == b"LEFT" else "RPOP")

    def decide(replies: list[Any]) -> tuple[Sequence[Step], Reply]:
        [found] = replies
        if not found:
            return [], None
        # Pushed first: a list that is moved within itself is never empty, so it keeps its lifetime.
        return [still(end, found), (push, destination, found[0]), (pop, source)], found[0]

    return _exchange([source, destination], [end], decide)


def rpoplpush(args: Sequence[bytes]) -> Exchange:
    return lmove([*args, b"RIGHT", b"LEFT"])


def linsert(args: Sequence[bytes]) -> Exchange:
    key, where, pivot, item = args
    if where.upper() not in (b"BEFORE", b"AFTER"):
        raise BadOption("write: LINSERT key BEFORE | AFTER pivot item")
    whole = ("LRANGE", key, 0, -1)

    def decide(replies: list[Any]) -> tuple[Sequence[Step], Reply]:
        items: list[bytes] = replies[0]
        if pivot not in items:
            return [], -1 if items else 0
        at = items.index(pivot) + (where.upper() == b"AFTER")
        write: list[Step] = [("LPUSH", key, item)]
        if at:
            write = [("LTRIM", key, 0, at - 1), *_in_pieces("RPUSH", key, [item, *items[at:]])]
        return [still(whole, items), *write], len(items) + 1

    return _exchange([key], [whole], decide)


def _in_pieces(name: str, key: bytes, items: list[bytes]) -> list[Step]:
    return [(name, key, *items[at : at + 5_000]) for at in range(0, len(items), 5_000)]


# --- whole keys ----------------------------------------------------------------------------------------------


def rename(args: Sequence[bytes]) -> Exchange:
    source, destination = args
    return _transfer(source, destination, moves=True, replaces=True, done=b"OK")


def renamenx(args: Sequence[bytes]) -> Exchange:
    source, destination = args
    return _transfer(source, destination, moves=True, replaces=False, done=1)


def copy_key(args: Sequence[bytes]) -> Exchange:
    source, destination, *options = args
    words = {option.upper() for option in options}
    if not words <= {b"REPLACE"}:
        raise BadOption("write: COPY source destination [REPLACE]")
    if source == destination:
        raise BadArgument("source and destination are the same key")
    return _transfer(source, destination, moves=False, replaces=bool(words), done=1)


def _transfer(source: bytes, destination: bytes, *, moves: bool, replaces: bool, done: Reply) -> Exchange:
    """Write a key with its lifetime under another name, in one step. Streams are refused: their last id is not kept."""

    async def attempt(store: Store) -> Attempt | None:
        kind, expires_at_ms, exists = await store.run(
            [("TYPE", source), ("PEXPIRETIME", source), ("EXISTS", destination)]
        )
        if kind == b"none":
            if moves:
                raise BadArgument("no such key")
            return Attempt([absent(source)], [], 0)
        if source == destination:
            return Attempt([required(("EXISTS", source))], [], done if replaces else 0)
        if exists and not replaces:
            return Attempt([required(("EXISTS", source)), required(("EXISTS", destination))], [], 0)
        found = await _read_record(store, source, destination, kind, expires_at_ms)
        if found is None:
            return None
        guards, writes = found
        gone: list[Step] = [("DEL", source)] if moves else []
        room: Step = ("DEL", destination) if replaces else absent(destination)
        return Attempt(guards, [room, *gone, *writes], done)

    return Exchange([source, destination], True, attempt)


async def _read_record(
    store: Store, source: bytes, destination: bytes, kind: bytes, expires_at_ms: int
) -> tuple[list[Step], list[Command]] | None:
    """The guards that the source is unchanged, and the commands that write the destination. None: it has changed."""
    if kind not in _READERS:
        raise BadArgument("a stream cannot be renamed or copied here")
    name, rest = _READERS[kind]
    whole = (name, source, *rest)
    try:
        [value] = await store.run([whole])
    except StoreError:
        return None  # it has another kind by now
    if value is None or (not value and kind != b"string"):
        return None  # it is gone by now
    deadline = None if expires_at_ms < 0 else expires_at_ms
    record = Record(destination, kind.decode(), deadline, parts_of(kind.decode(), value))
    return [still(whole, value), still(("PEXPIRETIME", source), expires_at_ms)], list(commands_of(record))


def keys(args: Sequence[bytes]) -> Exchange:
    [pattern] = args

    async def attempt(store: Store) -> Attempt:
        return Attempt([], [], list({key: None async for page in store.scan(pattern) for key in page}))

    return Exchange([], False, attempt)
