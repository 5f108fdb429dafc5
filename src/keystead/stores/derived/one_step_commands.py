"""Derived commands that are one step of the store's own commands."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, cast

from keystead.errors import BadOption, CommandError, NotANumber, WrongArity
from keystead.stores.command_options import integer
from keystead.stores.commands import Command, Reply, read
from keystead.stores.derived.derived_command import Derived, Exchange, last
from keystead.stores.globs import compile_glob
from keystead.stores.store_contract import Step, absent, required

OK = b"OK"


def command(*words: str | bytes | int) -> Step:
    """A parsed command, so that an invalid argument is an error now."""
    return cast("Step", read(words))


def renamed(*words: str | bytes | int) -> Callable[[Sequence[bytes]], Derived]:
    """The builder of a command that only has another name; `words`: that name, and arguments that follow the others."""
    name, *rest = words
    return lambda args: Derived([command(name, *args, *rest)])


def derived(
    make: Callable[..., Command], finish: Callable[[list[Reply]], Reply] = last
) -> Callable[[Sequence[bytes]], Derived]:
    """The builder of one command. `make` takes the arguments."""
    return lambda args: Derived([command(*make(*args))], finish)  # type: ignore[arg-type]


# --- strings -------------------------------------------------------------------------------------------------


def flag(replies: list[Reply]) -> Reply:
    """OK as 1 and nil as 0."""
    return int(replies[0] is not None)


def length(replies: list[Reply]) -> Reply:
    return len(replies[0] or b"")


def getrange(args: Sequence[bytes]) -> Derived:
    key, start, stop = args[0], integer(args[1]), integer(args[2])

    def cut(replies: list[Reply]) -> Reply:
        text = replies[0] or b""
        if start < 0 and stop < start:
            return b""
        first, end = (max(place + len(text) if place < 0 else place, 0) for place in (start, stop))
        return text[first : end + 1]

    return Derived([command("GET", key)], cut)


def _pairs(args: Sequence[bytes], usage: str) -> list[tuple[bytes, bytes]]:
    if len(args) % 2:
        raise WrongArity(f"a key has no value. Write: {usage}")
    return list(zip(args[::2], args[1::2], strict=True))


def mset(args: Sequence[bytes]) -> Derived:
    pairs = _pairs(args, "MSET key value [key value ...]")
    return Derived([command("SET", key, value) for key, value in pairs], lambda replies: OK)


def msetnx(args: Sequence[bytes]) -> Derived:
    pairs = _pairs(args, "MSETNX key value [key value ...]")
    guards = [absent(key) for key in dict(pairs)]
    return Derived([*guards, *(command("SET", *pair) for pair in pairs)], lambda replies: 1, 0, is_guarded=True)


# --- lifetimes -----------------------------------------------------------------------------------------------


def seconds(replies: list[Reply]) -> Reply:
    [ms] = replies
    return ms if ms < 0 else (ms + 500) // 1000


def expire(unit_ms: int, written: str) -> Callable[[Sequence[bytes]], Derived | Exchange]:
    """EXPIRE and its kin, in which a lifetime of zero or less deletes the key."""

    def build(args: Sequence[bytes]) -> Derived:
        key, amount, *conditions = args
        ms = integer(amount) * unit_ms
        if ms <= 0:  # a deadline in the past
            return Derived([command("PEXPIREAT", key, 1, *conditions)])
        return Derived([command(written, key, ms, *conditions)])

    return build


# --- collections ---------------------------------------------------------------------------------------------


def push_to_existing(name: str) -> Callable[[Sequence[bytes]], Derived]:
    return lambda args: Derived([required(("LLEN", args[0])), command(name, *args)], stopped=0, is_guarded=True)


def smismember(args: Sequence[bytes]) -> Derived:
    return Derived([command("SISMEMBER", args[0], member) for member in args[1:]], list)


def combine(operation: Callable[..., set[bytes]]) -> Callable[[Sequence[bytes]], Derived]:
    return lambda args: Derived([command("SMEMBERS", key) for key in args], lambda replies: operation(*replies))


def sintercard(args: Sequence[bytes]) -> Derived:
    count = _at_least(1, args[0], "numkeys should be greater than 0")
    keys, options = args[1 : count + 1], args[count + 1 :]
    if len(keys) < count:
        raise BadOption("Number of keys can't be greater than number of args")
    if options and (len(options) != 2 or options[0].upper() != b"LIMIT"):
        raise BadOption("write: SINTERCARD numkeys key [key ...] [LIMIT limit]")
    limit = _at_least(0, options[1], "LIMIT can't be negative") if options else 0

    def shared(replies: list[Reply]) -> Reply:
        number = len(set.intersection(*replies))
        return min(number, limit) if limit else number

    return Derived([command("SMEMBERS", key) for key in keys], shared)


def _at_least(least: int, text: bytes, otherwise: str) -> int:
    try:
        number = integer(text)
    except NotANumber:
        number = least - 1
    if number < least:
        raise BadOption(otherwise)
    return number


def smove(args: Sequence[bytes]) -> Derived:
    source, destination, member = args
    if source == destination:
        return Derived([command("SISMEMBER", source, member)])
    return Derived(
        [
            required(("SCARD", source)),  # as in Redis, the destination is looked at only if the source exists
            command("SCARD", destination),
            required(("SREM", source, member)),
            command("SADD", destination, member),
        ],
        lambda replies: 1,
        0,
        is_guarded=True,
    )


def zrange_as(name: str, *words: str) -> Callable[[Sequence[bytes]], Derived]:
    """An older name of a ZRANGE with these options."""
    by_score = "BYSCORE" in words

    def build(args: Sequence[bytes]) -> Derived:
        options = list(args[3:])
        at = 0
        while at < len(options):
            word = options[at].upper()
            if word == b"LIMIT" and by_score:
                at += 3
            elif word == b"WITHSCORES":
                at += 1
            else:
                raise BadOption(f"{options[at][:40].decode('utf-8', 'replace')!r} is not an option of {name}")
        return Derived([command("ZRANGE", *args[:3], *words, *options)])

    return build


def lpos(args: Sequence[bytes]) -> Derived:
    key, item, *options = args
    rank, count, most = 1, None, 0
    if len(options) % 2:
        raise BadOption("an option has no value. Write: LPOS key item [RANK rank] [COUNT n] [MAXLEN n]")
    for word, text in zip(options[::2], options[1::2], strict=True):
        number = integer(text)
        match word.upper():
            case b"RANK" if number:
                rank = number
            case b"COUNT" if number >= 0:
                count = number
            case b"MAXLEN" if number >= 0:
                most = number
            case _:
                raise BadOption("write: LPOS key item [RANK rank] [COUNT n] [MAXLEN n], with a rank other than zero")

    def find(replies: list[Reply]) -> Reply:
        items = list(enumerate(replies[0]))
        if rank < 0:
            items.reverse()
        places = [place for place, held in items[: most or len(items)] if held == item][abs(rank) - 1 :]
        if count is None:
            return places[0] if places else None
        return places[: count or len(places)]

    return Derived([command("LRANGE", key, 0, -1)], find)


def scan_entries(name: str, *rest: int | str) -> Callable[[Sequence[bytes]], Derived]:
    """HSCAN, SSCAN and ZSCAN: all entries on the first page."""

    def build(args: Sequence[bytes]) -> Derived:
        key, cursor, *options = args
        integer(cursor)
        glob = _parse_match(options)

        def page(replies: list[Reply]) -> Reply:
            entries = ([member] for member in replies[0]) if isinstance(replies[0], set) else _entry_pairs(replies[0])
            return [b"0", [part for entry in entries if glob is None or glob.fullmatch(entry[0]) for part in entry]]

        return Derived([command(name, key, *rest)], page)

    return build


def _parse_match(options: Sequence[bytes]) -> re.Pattern[bytes] | None:
    """The pattern in `[MATCH pattern] [COUNT n]`; the count makes no difference."""
    glob = None
    if len(options) % 2:
        raise BadOption("write [MATCH pattern] [COUNT n] after the cursor")
    for word, text in zip(options[::2], options[1::2], strict=True):
        if word.upper() == b"MATCH":
            glob = compile_glob(text)
        elif word.upper() != b"COUNT" or integer(text) < 1:
            raise BadOption("write [MATCH pattern] [COUNT n] after the cursor")
    return glob


def _entry_pairs(reply: Any) -> list[list[bytes]]:
    if isinstance(reply, dict):
        return [[field, value] for field, value in reply.items()]
    return [[member, score_text(score)] for member, score in reply]


def score_text(score: float) -> bytes:
    """A score as Redis writes it: without a point if it is a whole number."""
    return b"%d" % score if abs(score) < 2**53 and score == int(score) else repr(score).encode()


# --- commands of no key --------------------------------------------------------------------------------------


def ping(args: Sequence[bytes]) -> Derived:
    return Derived([], lambda replies: args[0] if args else b"PONG")


def blame(error: CommandError, name: str, args: Sequence[bytes], has_key: bool) -> CommandError:
    """Name the command as the caller wrote it, not the one it was turned into."""
    error.command = name
    error.key = args[0] if has_key and args else None
    return error
