"""Derived commands that need a value before they can write: read, then write if nothing has changed, or start over."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

from keystead.errors import BadArgument, BadOption, Contended, NotANumber, StoredNotANumber, StoreError
from keystead.stores.command_options import integer, parse_optional_count
from keystead.stores.commands import Command, Reply
from keystead.stores.derived.derived_command import Exchange
from keystead.stores.derived.float_sums import add_floats
from keystead.stores.store_contract import Step, Store, absent, field_holds, holds, required, still
from keystead.stores.transfer.records import Record, commands_of, parts_of

_ATTEMPTS: Final = 64
_LONGEST_S: Final = 0.05
_LONGEST_STRING: Final = 512 << 20
_AGAIN: Final = object()

# How a whole key of each kind is read.
_READERS: Final[dict[bytes, tuple[str, tuple[str | int, ...]]]] = {
    b"string": ("GET", ()),
    b"hash": ("HGETALL", ()),
    b"set": ("SMEMBERS", ()),
    b"zset": ("ZRANGE", (0, -1, "WITHSCORES")),
    b"list": ("LRANGE", (0, -1)),
}

# One attempt: from the replies of the reads, the steps to write and the reply; without steps nothing is written.
Attempt = Callable[[list[Any]], tuple[Sequence[Step], Reply]]


def _exchange(keys: Sequence[bytes], reads: Sequence[Command], attempt: Attempt) -> Exchange:
    """Read, and write what `attempt` makes of it, until no other caller was faster."""

    async def run(store: Store) -> Reply:
        for number in range(_ATTEMPTS):
            if number:
                await asyncio.sleep(random.random() * min(0.0005 * 2**number, _LONGEST_S))  # noqa: S311 - spreads callers
            steps, reply = attempt(await store.run(reads))
            if not steps or await store.atomically(steps):
                return reply
        raise _contended(keys[0])

    return Exchange(keys, True, run)


def _contended(key: bytes) -> Contended:
    return Contended(f"{key[:60]!r} was changed by other callers {_ATTEMPTS} times in a row; try again")


def _replace_string(key: bytes, held: bytes | None, value: bytes) -> list[Step]:
    return [holds(key, held), ("SET", key, value, "KEEPTTL")]


# --- strings and numbers -------------------------------------------------------------------------------------


def append(args: Sequence[bytes]) -> Exchange:
    key, more = args

    def attempt(replies: list[Any]) -> tuple[Sequence[Step], Reply]:
        [held] = replies
        value = (held or b"") + more
        return _replace_string(key, held, value), len(value)

    return _exchange([key], [("GET", key)], attempt)


def setrange(args: Sequence[bytes]) -> Exchange:
    key, offset, part = args[0], integer(args[1]), args[2]
    if not 0 <= offset <= _LONGEST_STRING - len(part):
        raise BadArgument("the offset is out of range")

    def attempt(replies: list[Any]) -> tuple[Sequence[Step], Reply]:
        held = replies[0] or b""
        if not part:
            return [], len(held)
        value = held[:offset].ljust(offset, b"\x00") + part + held[offset + len(part) :]
        return _replace_string(key, replies[0], value), len(value)

    return _exchange([key], [("GET", key)], attempt)


def _add(held: bytes | None, amount: bytes) -> bytes:
    add_floats(None, amount)  # an invalid amount is an error of the caller
    try:
        return add_floats(held, amount)
    except NotANumber as error:
        raise StoredNotANumber(error.sentence) from None


def incrbyfloat(args: Sequence[bytes]) -> Exchange:
    key, amount = args

    def attempt(replies: list[Any]) -> tuple[Sequence[Step], Reply]:
        total = _add(replies[0], amount)
        return _replace_string(key, replies[0], total), total

    return _exchange([key], [("GET", key)], attempt)


def hincrbyfloat(args: Sequence[bytes]) -> Exchange:
    key, field, amount = args
    add_floats(None, amount)  # as in Redis, this error comes before that of the wrong kind

    def attempt(replies: list[Any]) -> tuple[Sequence[Step], Reply]:
        total = _add(replies[0], amount)
        return [field_holds(key, field, replies[0]), ("HSET", key, field, total)], total

    return _exchange([key], [("HGET", key, field)], attempt)


# --- sets and sorted sets ------------------------------------------------------------------------------------


def spop(args: Sequence[bytes]) -> Exchange:
    key, count = args[0], parse_optional_count(args)

    def attempt(replies: list[Any]) -> tuple[Sequence[Step], Reply]:
        members = list(replies[0])
        chosen = random.sample(members, min(1 if count is None else count, len(members)))
        if not chosen:
            return [], None if count is None else set()
        if count is None:
            return [required(("SREM", key, chosen[0]))], chosen[0]
        return [still(("SMEMBERS", key), replies[0]), ("SREM", key, *chosen)], set(chosen)

    return _exchange([key], [("SMEMBERS", key)], attempt)


def srandmember(args: Sequence[bytes]) -> Exchange:
    """A read, but with another reply each time, so it is not a function of the replies of its steps."""
    key, count = args[0], integer(args[1]) if len(args) > 1 else None

    async def run(store: Store) -> Reply:
        [found] = await store.run([("SMEMBERS", key)])
        members = list(found)
        if count is None:
            return random.choice(members) if members else None  # noqa: S311 - not a secret
        if count < 0:
            return random.choices(members, k=-count) if members else []  # noqa: S311
        return random.sample(members, min(count, len(members)))

    return Exchange([key], False, run)


def zpopmax(args: Sequence[bytes]) -> Exchange:
    key, count = args[0], parse_optional_count(args)
    highest = ("ZRANGE", key, 0, (1 if count is None else count) - 1, "REV", "WITHSCORES")

    def attempt(replies: list[Any]) -> tuple[Sequence[Step], Reply]:
        [found] = replies
        if not found or count == 0:
            return [], []
        steps: list[Step] = [still(highest, found), ("ZREM", key, *(member for member, _ in found))]
        return steps, found[0] if count is None else found

    return _exchange([key], [highest], attempt)


# --- lists ---------------------------------------------------------------------------------------------------


def lmove(args: Sequence[bytes]) -> Exchange:
    source, destination, *ends = args
    out, into = (end.upper() for end in ends)
    if not {out, into} <= {b"LEFT", b"RIGHT"}:
        raise BadOption("write: LMOVE source destination LEFT | RIGHT LEFT | RIGHT")
    place = 0 if out == b"LEFT" else -1
    end = ("LRANGE", source, place, place)
    push, pop = ("LPUSH" if into == b"LEFT" else "RPUSH"), ("LPOP" if out == b"LEFT" else "RPOP")

    def attempt(replies: list[Any]) -> tuple[Sequence[Step], Reply]:
        [found] = replies
        if not found:
            return [], None
        # Pushed first: a list that is moved within itself is never empty, so it keeps its lifetime.
        return [still(end, found), (push, destination, found[0]), (pop, source)], found[0]

    return _exchange([source, destination], [end], attempt)


def rpoplpush(args: Sequence[bytes]) -> Exchange:
    return lmove([*args, b"RIGHT", b"LEFT"])


def linsert(args: Sequence[bytes]) -> Exchange:
    key, where, pivot, item = args
    if where.upper() not in (b"BEFORE", b"AFTER"):
        raise BadOption("write: LINSERT key BEFORE | AFTER pivot item")
    whole = ("LRANGE", key, 0, -1)

    def attempt(replies: list[Any]) -> tuple[Sequence[Step], Reply]:
        items: list[bytes] = replies[0]
        if pivot not in items:
            return [], -1 if items else 0
        at = items.index(pivot) + (where.upper() == b"AFTER")
        write: list[Step] = [("LPUSH", key, item)]
        if at:
            write = [("LTRIM", key, 0, at - 1), *_in_pieces("RPUSH", key, [item, *items[at:]])]
        return [still(whole, items), *write], len(items) + 1

    return _exchange([key], [whole], attempt)


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

    async def run(store: Store) -> Reply:
        for _ in range(_ATTEMPTS):
            reply = await _transfer_once(store, source, destination, moves, replaces)
            if reply is not _AGAIN:
                return done if reply is None else reply
        raise _contended(source)

    return Exchange([source, destination], True, run)


async def _transfer_once(store: Store, source: bytes, destination: bytes, moves: bool, replaces: bool) -> Any:
    """None if it is done, the reply if there is nothing to do, or _AGAIN."""
    kind, expires_at_ms, exists = await store.run([("TYPE", source), ("PEXPIRETIME", source), ("EXISTS", destination)])
    if kind == b"none":
        if moves:
            raise BadArgument("no such key")
        return 0
    if source == destination:
        return None if replaces else 0
    if exists and not replaces:
        return 0
    if kind not in _READERS:
        raise BadArgument("a stream cannot be renamed or copied here")
    name, rest = _READERS[kind]
    whole = (name, source, *rest)
    try:
        [value] = await store.run([whole])
    except StoreError:
        return _AGAIN  # it has another kind by now
    if value is None or (not value and kind != b"string"):
        return _AGAIN  # it is gone by now
    record = Record(
        destination,
        kind.decode(),
        None if expires_at_ms < 0 else expires_at_ms,
        parts_of(kind.decode(), value),
    )
    steps: list[Step] = [still(whole, value), still(("PEXPIRETIME", source), expires_at_ms)]
    steps.append(("DEL", destination) if replaces else absent(destination))
    if moves:
        steps.append(("DEL", source))
    outcome = await store.atomically([*steps, *commands_of(record)])
    return None if outcome else _AGAIN


def keys(args: Sequence[bytes]) -> Exchange:
    [pattern] = args

    async def run(store: Store) -> Reply:
        return list({key: None async for page in store.scan(pattern) for key in page})

    return Exchange([], False, run)
