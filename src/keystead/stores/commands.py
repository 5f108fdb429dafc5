"""The command language: a subset of Redis's own, as data.

One table states for each command its syntax, which arguments are keys, what kind of value it works on and whether it
writes. Every store parses commands with `read`, so an invalid command gets the same error everywhere, and is not sent.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, TypeAlias, cast

from keystead.errors import BadArgument, CommandError, NotANumber, StoredNotANumber, UnknownCommand, WrongArity
from keystead.stores.command_options import (
    INT64_MAX,
    INT64_MIN,
    LATEST_MS,
    USAGE,
    Deadline,
    SetOptions,
    amount_parser,
    check_field_pairs,
    entry_id,
    expire_parser,
    integer,
    parse_bounds,
    parse_entry_ids,
    parse_getex,
    parse_index,
    parse_indexes,
    parse_optional_count,
    parse_scan,
    parse_set,
    parse_xadd,
    parse_xtrim,
    parse_zadd,
    parse_zrange,
    range_parser,
    score,
    with_cache,
)

__all__ = [
    "AMOUNTS",
    "INT64_MAX",
    "INT64_MIN",
    "KINDS",
    "LATEST_MS",
    "TABLE",
    "TIMED",
    "WHOLE_READS",
    "Argument",
    "Call",
    "Command",
    "Deadline",
    "Reply",
    "SetOptions",
    "Spec",
    "StoreMs",
    "TimedCommand",
    "amount_of",
    "check_scan",
    "encode",
    "entry_id",
    "integer",
    "read",
    "score",
]

Argument: TypeAlias = str | bytes | int | float
Command: TypeAlias = Sequence[Argument]


@dataclass(frozen=True, slots=True)
class StoreMs:
    """A placeholder for a number in a step of `atomically`: the store's time in ms since 1970, plus an offset."""

    plus: int | float = 0

    def at(self, now_ms: int) -> int | float:
        moment = now_ms + self.plus
        return int(moment) if isinstance(moment, float) and moment.is_integer() else moment


# A command of `atomically`, in which a number may be computed from the store's time.
TimedCommand: TypeAlias = Sequence[Argument | StoreMs]

# Replies are Python values in the shape of RESP3: bytes, int, float, None, list, dict, set.
# The schema is the typed level; here a precise union would only make every caller cast.
Reply: TypeAlias = Any

KINDS = frozenset({"string", "hash", "set", "zset", "list", "stream"})


@dataclass(frozen=True, slots=True)
class Spec:
    """One row of the table."""

    name: str
    usage: str
    summary: str
    kind: str | None  # of the key; None: any kind, or no key at all
    writes: bool
    keys: int  # the number of keys after the name: 0, 1, or -1 for all arguments
    least: int  # minimum number of arguments, without the name
    most: int | None  # None: any number
    parse: Callable[[Sequence[bytes]], Any] | None = None
    wide: bool = False  # may touch every entry of the key

    @property
    def about(self) -> str:
        """The heading of the command in a list of commands."""
        if self.name in ("SET", "MGET"):  # the key may be of any kind, but the command works on strings
            return "string"
        return self.kind or ("keys" if self.keys else "the store and messages")


class Call:
    """A parsed command: its spec, its arguments as bytes (without the name), and its options.

    packed   the request of a reused call, cached by a store; empty: not sent yet; None: the call is not reused, so
             nothing is cached
    """

    __slots__ = ("args", "options", "packed", "spec")

    def __init__(self, spec: Spec, args: Sequence[bytes], options: Any) -> None:
        self.spec = spec
        self.args = args
        self.options = options
        self.packed: bytes | None = None

    @property
    def keys(self) -> Sequence[bytes]:
        return self.args if self.spec.keys < 0 else self.args[: self.spec.keys]

    def blame(self, error: CommandError) -> CommandError:
        """Add this command and its key to the error."""
        error.command = self.spec.name
        error.key = self.args[0] if self.spec.keys and self.args else None
        return error


# Tuples, not unions: isinstance would build a union again at every call.
_TEXT = (str, bytes)
_BYTES = (bytes, bytearray, memoryview)


def read(command: Command | Call) -> Call:
    """Turn a command as the caller wrote it into a Call, or raise a CommandError that names it.

    A Call is returned unchanged: its arguments were checked when it was created.
    """
    if type(command) is Call:
        return command
    command = cast("Command", command)
    try:
        spec = TABLE[command[0]]  # type: ignore[index]
    except (KeyError, TypeError, IndexError):
        spec = _find(command)
    args: list[bytes] = []
    try:
        args = [
            given if (kind := type(given)) is bytes else given.encode() if kind is str else encode(given)  # type: ignore[union-attr,misc]
            for given in command[1:]
        ]
        if len(args) < spec.least or (spec.most is not None and len(args) > spec.most):
            count = "1 argument does" if len(args) == 1 else f"{len(args)} arguments do"
            raise WrongArity(f"{count} not fit. Write: {spec.usage}")
        if spec.keys and type(command[1]) not in _TEXT and not isinstance(command[1], _TEXT):
            raise BadArgument(f"a key must be text or bytes, not {type(command[1]).__name__}")
        return Call(spec, args, None if spec.parse is None else spec.parse(args))
    except (CommandError, UnicodeEncodeError) as error:
        if not args and len(command) > 1:
            raise _unencodable(spec, command) from None
        raise Call(spec, args, None).blame(cast("CommandError", error)) from None


def _unencodable(spec: Spec, command: Command) -> CommandError:
    """The error of the first argument that cannot be encoded, with its place and the key."""
    args: list[bytes] = []
    for argument in command[1:]:
        try:
            args.append(encode(argument))
        except CommandError as error:
            error.sentence = f"argument {len(args) + 1}: {error.sentence}"
            return Call(spec, args, None).blame(error)
    raise AssertionError("all arguments can be encoded")


def encode(argument: Argument) -> bytes:
    """An argument as stored bytes: text as UTF-8, numbers in decimal."""
    if isinstance(argument, str):
        try:
            return argument.encode()
        except UnicodeEncodeError:
            raise BadArgument("text with a lone surrogate cannot be stored; pass bytes") from None
    if isinstance(argument, _BYTES):
        return bytes(argument)
    if isinstance(argument, float):
        return repr(float(argument)).encode()
    if type(argument) is not bool and isinstance(argument, int):
        if not -(10**300) < argument < 10**300:
            raise BadArgument("an int of more than 300 digits is too large for any store; pass text")
        return b"%d" % argument
    instead = {
        "NoneType": "; to remove a key or a field, write DEL or HDEL",
        "bool": "; write 1 or 0",
        "StoreMs": "; use store_ms in `atomically` only",
    }
    name = type(argument).__name__
    raise BadArgument(f"an argument must be text, bytes, an int or a float, not {name}{instead.get(name, '')}")


def _find(command: object) -> Spec:
    """The spec of a command whose name is not spelled as in the table, such as in lower case. Raises CommandError."""
    if isinstance(command, str | bytes) or not isinstance(command, Sequence) or not command:
        if type(command).__name__ in ("Required", "Holds", "FieldHolds", "Absent", "AtMost", "MoreThan", "Still"):
            raise BadArgument(
                "required, holds, field_holds, absent, at_most, more_than and still can only be used in `atomically`, "
                "not in `run`"
            ) from None
        raise BadArgument(f'a command is a tuple such as ("GET", "key"), in a list; this is {command!r:.80}') from None
    name = command[0]
    shown = name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
    spec = TABLE.get(shown.upper())
    if spec is None:
        raise UnknownCommand(_advice_for(shown.upper()), shown[:60]) from None
    return spec


_REPLACEMENTS = {
    "INCR": "write INCRBY key 1",
    "DECR": "write DECRBY key 1",
    "TTL": "write PTTL, which replies in milliseconds",
    "EXPIREAT": "write PEXPIREAT, in milliseconds",
    "SETEX": "write SET key value EX seconds",
    "PSETEX": "write SET key value PX ms",
    "SETNX": "write SET key value NX",
    "GETSET": "write SET key value GET",
    "MSET": "write one SET for each key, all in one `run` or `atomically`",
    "HMSET": "write HSET",
    "UNLINK": "write DEL",
    "KEYS": "use store.scan",
    "SUBSCRIBE": "use store.subscribe",
    "ZREVRANGE": "write ZRANGE with REV",
    "ZRANGEBYSCORE": "write ZRANGE with BYSCORE",
    **dict.fromkeys(("MULTI", "EXEC", "WATCH", "EVAL", "EVALSHA"), "use store.atomically"),
}


def _advice_for(name: str) -> str:
    """What to write instead of an unknown command."""
    first = name.split(" ")[0]
    if first != name and first in TABLE:
        return f'no such command; each argument is a separate item, as in ("{first}", "key")'
    near = get_close_matches(first, TABLE, 1)
    advice = _REPLACEMENTS.get(first) or (f"is it {near[0]}?" if near else "keystead guide commands lists them")
    return f"no such command here; {advice}"


def check_scan(kind: str | None, page: int) -> None:
    """Check the arguments of `Store.scan` other than its pattern. Raises BadArgument."""
    if kind is not None and kind not in KINDS:
        raise BadArgument(f"{kind!r} is not a kind; use one of {', '.join(sorted(KINDS))}", "SCAN")
    if type(page) is not int or page < 1:
        raise BadArgument(f"a page must have at least one key, not {page!r}", "SCAN")


def amount_of(reply: Reply) -> int | float:
    """The reply of one of AMOUNTS as a number. Nil is 0; text is parsed as a 64-bit integer, or else as a score."""
    if reply is None:
        return 0
    if not isinstance(reply, bytes):
        return cast("int | float", reply)
    for parse in (integer, score):
        try:
            return parse(reply)
        except NotANumber:
            continue
    raise StoredNotANumber("the stored value is not a number")  # not shown: it may be a secret


# --- the table ---------------------------------------------------------------------------------------------


def _rows(kind: str | None, *rows: tuple[Any, ...]) -> list[Spec]:
    return [Spec(usage.split()[0], usage, summary, kind, *rest) for usage, summary, *rest in rows]


READ, WRITE = False, True
ALL = -1  # every argument is a key
_LIFETIME = "[EX seconds | PX ms | EXAT seconds | PXAT ms{}]"

# usage, summary, reads or writes, keys, fewest and most arguments, parser, wide
TABLE: dict[str, Spec] = {
    spec.name: spec
    for spec in (
        *_rows(
            "string",
            ("GET key", "the value, or nil", READ, 1, 1, 1),
            ("GETDEL key", "the value, which is deleted", WRITE, 1, 1, 1),
            (
                f"GETEX key {_LIFETIME.format(' | PERSIST')}",
                "the value, with a new lifetime",
                *(WRITE, 1, 1, 3, with_cache(parse_getex, 1)),
            ),
            (
                "INCRBY key amount",
                "add to a number; a missing key counts as 0",
                *(WRITE, 1, 2, 2, with_cache(amount_parser(+1), 1)),
            ),
            ("DECRBY key amount", "subtract from a number", WRITE, 1, 2, 2, with_cache(amount_parser(-1), 1)),
        ),
        *_rows(
            None,
            (
                f"SET key value {_LIFETIME.format(' | KEEPTTL')} [NX | XX] [GET]",
                "set a value of any previous kind; nil if NX or XX prevented it",
                *(WRITE, 1, 2, 8, with_cache(parse_set, 2)),
            ),
            (
                "MGET key [key ...]",
                "the values; nil for each key that is missing or not a string",
                *(READ, ALL, 1, None),
            ),
            ("DEL key [key ...]", "number of keys deleted", WRITE, ALL, 1, None),
            ("EXISTS key [key ...]", "number of keys that exist", READ, ALL, 1, None),
            (
                "EXPIRE key seconds [NX | XX | GT | LT]",
                "1 if the lifetime was set",
                *(WRITE, 1, 2, 4, with_cache(expire_parser(b"EX", "EXPIRE"), 1)),
            ),
            (
                "PEXPIRE key ms [NX | XX | GT | LT]",
                "1 if the lifetime was set",
                *(WRITE, 1, 2, 4, with_cache(expire_parser(b"PX", "PEXPIRE"), 1)),
            ),
            (
                "PEXPIREAT key ms [NX | XX | GT | LT]",
                "1 if the deadline was set; a past deadline deletes the key",
                *(WRITE, 1, 2, 4, with_cache(expire_parser(b"PXAT", "PEXPIREAT"), 1)),
            ),
            ("PERSIST key", "1 if a lifetime was removed", WRITE, 1, 1, 1),
            ("PTTL key", "milliseconds left; -1 for no lifetime, -2 for no key", READ, 1, 1, 1),
            (
                "PEXPIRETIME key",
                "its deadline, in milliseconds since 1970; -1 for no lifetime, -2 for no key",
                *(READ, 1, 1, 1),
            ),
            ("TYPE key", "string, hash, set, zset, list, stream or none", READ, 1, 1, 1),
        ),
        *_rows(
            "hash",
            ("HSET key field value [field value ...]", "number of fields added", WRITE, 1, 3, None, check_field_pairs),
            ("HSETNX key field value", "1 if the field was new", WRITE, 1, 3, 3),
            ("HGET key field", "the value of a field, or nil", READ, 1, 2, 2),
            ("HMGET key field [field ...]", "the values of fields", READ, 1, 2, None),
            ("HGETALL key", "all fields, as a dict", READ, 1, 1, 1, None, True),
            ("HDEL key field [field ...]", "number of fields deleted", WRITE, 1, 2, None),
            ("HLEN key", "how many fields", READ, 1, 1, 1),
            ("HEXISTS key field", "1 if the field exists", READ, 1, 2, 2),
            ("HINCRBY key field amount", "add to a field", WRITE, 1, 3, 3, with_cache(amount_parser(+1), 2)),
        ),
        *_rows(
            "set",
            ("SADD key member [member ...]", "number of members added", WRITE, 1, 2, None),
            ("SREM key member [member ...]", "number of members removed", WRITE, 1, 2, None),
            ("SMEMBERS key", "all members, as a set", READ, 1, 1, 1, None, True),
            ("SISMEMBER key member", "1 if it is a member", READ, 1, 2, 2),
            ("SCARD key", "how many members", READ, 1, 1, 1),
        ),
        *_rows(
            "zset",
            (
                "ZADD key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]",
                "number of members added (CH: or changed); with INCR the new score, or nil",
                *(WRITE, 1, 3, None, parse_zadd),
            ),
            ("ZREM key member [member ...]", "number of members removed", WRITE, 1, 2, None),
            ("ZSCORE key member", "the score, or nil", READ, 1, 2, 2),
            ("ZMSCORE key member [member ...]", "the scores", READ, 1, 2, None),
            ("ZCARD key", "how many members", READ, 1, 1, 1),
            ("ZCOUNT key min max", "number of members with a score from min to max", READ, 1, 3, 3, parse_bounds, True),
            ("ZRANK key member", "its rank from the lowest score, or nil", READ, 1, 2, 2, None, True),
            ("ZREVRANK key member", "its rank from the highest score, or nil", READ, 1, 2, 2, None, True),
            (
                "ZRANGE key start stop [BYSCORE] [REV] [LIMIT offset count] [WITHSCORES]",
                "members in order; with WITHSCORES as [member, score]",
                *(READ, 1, 3, 9, parse_zrange, True),
            ),
            ("ZREMRANGEBYSCORE key min max", "number of members removed", WRITE, 1, 3, 3, parse_bounds, True),
            ("ZREMRANGEBYRANK key start stop", "number of members removed", WRITE, 1, 3, 3, parse_indexes, True),
            ("ZPOPMIN key [count]", "the lowest, which are removed", WRITE, 1, 1, 2, parse_optional_count),
        ),
        *_rows(
            "list",
            ("LPUSH key item [item ...]", "the length afterwards", WRITE, 1, 2, None),
            ("RPUSH key item [item ...]", "the length afterwards", WRITE, 1, 2, None),
            ("LPOP key [count]", "the first, which is removed", WRITE, 1, 1, 2, parse_optional_count),
            ("RPOP key [count]", "the last, which is removed", WRITE, 1, 1, 2, parse_optional_count),
            ("LRANGE key start stop", "the items from start to stop", READ, 1, 3, 3, parse_indexes, True),
            ("LLEN key", "how many items", READ, 1, 1, 1),
            ("LTRIM key start stop", "remove all other items", WRITE, 1, 3, 3, parse_indexes, True),
            (
                "LREM key count item",
                "number of items removed: the first, the last (count < 0) or all (0)",
                *(WRITE, 1, 3, 3, parse_index, True),
            ),
            (
                "LINDEX key index",
                "one item, or nil",
                *(READ, 1, 2, 2, parse_index, True),
            ),
            (
                "LSET key index item",
                "replace an item",
                *(WRITE, 1, 3, 3, parse_index),
            ),
        ),
        *_rows(
            "stream",
            (
                "XADD key [MAXLEN [= | ~] length] * | id field value [field value ...]",
                "the id of the new entry",
                *(WRITE, 1, 4, None, parse_xadd),
            ),
            (
                "XRANGE key start end [COUNT n]",
                "entries as [id, [field, value, ...]]",
                *(READ, 1, 3, 5, range_parser(False), True),
            ),
            (
                "XREVRANGE key end start [COUNT n]",
                "the same, newest first",
                *(READ, 1, 3, 5, range_parser(True), True),
            ),
            ("XLEN key", "how many entries", READ, 1, 1, 1),
            ("XDEL key id [id ...]", "number of entries removed", WRITE, 1, 2, None, parse_entry_ids),
            ("XTRIM key MAXLEN [= | ~] length", "number of entries removed", WRITE, 1, 3, 4, parse_xtrim, True),
        ),
        *_rows(
            None,
            (
                "SCAN cursor [MATCH pattern] [COUNT n] [TYPE kind]",
                "the next cursor and some keys; prefer Store.scan",
                *(READ, 0, 1, 7, parse_scan, True),
            ),
            ("DBSIZE", "how many keys", READ, 0, 0, 0, None, True),
            ("TIME", "the store's clock: seconds, microseconds", READ, 0, 0, 0),
            ("PUBLISH channel message", "number of subscribers that got it", WRITE, 0, 2, 2),
        ),
    )
}

USAGE.update({spec.name: spec.usage for spec in TABLE.values()})

# Reads of one key whose reply is or may be an amount, with nil meaning 0. So not PTTL, whose -1 means forever, nor
# ZRANK, whose nil is not a rank.
AMOUNTS = (
    *("GET", "HGET", "LINDEX", "ZSCORE"),
    *("SCARD", "ZCARD", "ZCOUNT", "HLEN", "LLEN", "XLEN"),
    *("SISMEMBER", "HEXISTS"),
)

# Where `store_ms` is allowed: as a number, never as a key, a field or a member, because stores load what a command
# names before they know the time. Each function takes the index of the argument, and the number of arguments.
TIMED: dict[str, Callable[[int, int], bool]] = {
    "SET": lambda place, count: place >= 1,
    "PEXPIREAT": lambda place, count: place == 1,
    "HSET": lambda place, count: place >= 2 and place % 2 == 0,
    "HSETNX": lambda place, count: place == 2,
    "ZADD": lambda place, count: (count - place) % 2 == 0,
    **dict.fromkeys(("ZCOUNT", "ZRANGE", "ZREMRANGEBYSCORE"), lambda place, count: place in (1, 2)),
}


# Reads of a whole key, or of its deadline.
WHOLE_READS = ("GET", "HGETALL", "SMEMBERS", "ZRANGE", "LRANGE", "XRANGE", "PEXPIRETIME")
