"""The command language: a subset of Redis's own, as data.

One table says for each command how it is written, which of its arguments are keys, what kind of value it
works on and whether it writes. Every store reads commands through `read`, so a command that is written wrongly
gets the same error everywhere, and nothing of it is sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, NamedTuple, TypeAlias, cast

from keystead.errors import (
    BadArgument,
    BadLifetime,
    BadOption,
    CommandError,
    NotANumber,
    StoredNotANumber,
    UnknownCommand,
    WrongArity,
)

Argument: TypeAlias = str | bytes | int | float
Command: TypeAlias = Sequence[Argument]


@dataclass(frozen=True, slots=True)
class StoreMs:
    """In the place of a number in a step of `atomically`: the time of the store in ms since 1970, plus so many."""

    plus: int | float = 0

    def at(self, now_ms: int) -> int | float:
        moment = now_ms + self.plus
        return int(moment) if isinstance(moment, float) and moment.is_integer() else moment


# A command of `atomically`, in which a moment may be up to the store.
TimedCommand: TypeAlias = Sequence[Argument | StoreMs]

# What a store answers, as Python values in the shape of RESP3: bytes, int, float, None, list, dict, set.
# The typed level is the schema; here a precise union would only make every caller cast.
Reply: TypeAlias = Any

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
UINT64_MAX = 2**64 - 1
LATEST_MS = 253_402_300_799_999  # the last millisecond of the year 9999
KINDS = frozenset({"string", "hash", "set", "zset", "list", "stream"})


class Deadline(NamedTuple):
    """When a key dies: after `ms` milliseconds, or at `ms` milliseconds since 1970."""

    ms: int
    absolute: bool

    def at_ms(self, now_ms: int) -> int:
        return self.ms if self.absolute else now_ms + self.ms


class SetOptions(NamedTuple):
    deadline: Deadline | None = None
    keep_ttl: bool = False
    only_if: bytes = b""  # NX, XX or nothing
    get: bool = False


class GetExOptions(NamedTuple):
    deadline: Deadline | None = None
    persist: bool = False


class ExpireOptions(NamedTuple):
    deadline: Deadline
    conditions: frozenset[bytes]  # of NX, XX, GT, LT


class ZAddOptions(NamedTuple):
    flags: frozenset[bytes]  # of NX, XX, GT, LT, CH, INCR
    pairs: list[tuple[bytes, float]]  # member, score


class ScoreBound(NamedTuple):
    """One end of a range of scores."""

    score: float
    exclusive: bool = False


class ZRangeOptions(NamedTuple):
    by_score: bool
    reverse: bool
    with_scores: bool
    low: ScoreBound  # with by_score
    high: ScoreBound
    start: int  # without
    stop: int
    offset: int = 0
    limit: int = -1  # negative: all


class XAddOptions(NamedTuple):
    max_len: int | None
    entry_id: tuple[int | None, int | None]  # None: chosen by the store
    fields: list[bytes]


class XRangeOptions(NamedTuple):
    low: int  # ids as one number: milliseconds << 64 | sequence
    high: int
    limit: int | None


class ScanOptions(NamedTuple):
    cursor: int
    match: bytes | None
    kind: str | None
    page: int


@dataclass(frozen=True, slots=True)
class Spec:
    """One row of the table."""

    name: str
    usage: str
    summary: str
    kind: str | None  # what it works on; None: any kind, or no key at all
    writes: bool
    keys: int  # how many keys follow the name: 0, 1, or -1 for all arguments
    least: int  # fewest arguments, the name not counted
    most: int | None  # None: any number
    parse: Callable[[Sequence[bytes]], Any] | None = None
    wide: bool = False  # may touch as many entries as the key holds

    @property
    def about(self) -> str:
        """What a reader of a list of commands looks for it under."""
        if self.name in ("SET", "MGET"):  # which take a key of any kind, and are about strings
            return "string"
        return self.kind or ("keys" if self.keys else "the store and messages")


class Call:
    """A command that was read: its spec, its arguments as bytes (the name not among them), and what they mean.

    packed   how a store sends it, for a call that is made again and again; empty: not sent yet; None: it is made once,
             so this is not worth keeping
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
        """The same error, naming this command and its key."""
        error.command = self.spec.name
        error.key = self.args[0] if self.spec.keys and self.args else None
        return error


# Tuples, not unions: a union in an isinstance is made anew at every call.
_TEXT = (str, bytes)
_BYTES = (bytes, bytearray, memoryview)


def read(command: Command | Call) -> Call:
    """Turn a command as the caller wrote it into a Call, or raise a CommandError that names it.

    A Call is taken as it is: whoever made it knows that its arguments fit, and spares this look at them.
    """
    if type(command) is Call:
        return command
    command = cast("Command", command)
    try:
        spec = TABLE[command[0]]  # type: ignore[index]
    except (KeyError, TypeError, IndexError):
        spec = None
    if spec is None:
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
            raise BadArgument(f"a key is text or bytes, not {type(command[1]).__name__}")
        return Call(spec, args, None if spec.parse is None else spec.parse(args))
    except (CommandError, UnicodeEncodeError) as error:
        if not args and len(command) > 1:
            raise _unencodable(spec, command) from None
        raise Call(spec, args, None).blame(cast("CommandError", error)) from None


def _unencodable(spec: Spec, command: Command) -> CommandError:
    """What is wrong with the first argument that cannot be stored, naming its place and the key."""
    args: list[bytes] = []
    for argument in command[1:]:
        try:
            args.append(encode(argument))
        except CommandError as error:
            error.sentence = f"argument {len(args) + 1}: {error.sentence}"
            return Call(spec, args, None).blame(error)
    raise AssertionError("all arguments can be stored")


def encode(argument: Argument) -> bytes:
    """An argument as the bytes that are stored. Text is UTF-8, numbers are written in decimal."""
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
            raise BadArgument("an int of more than 300 digits is no number that a store knows; pass text")
        return b"%d" % argument
    instead = {
        "NoneType": "; to remove a key or a field, write DEL or HDEL",
        "bool": "; write 1 or 0",
        "StoreMs": "; store_ms belongs into `atomically`",
    }
    name = type(argument).__name__
    raise BadArgument(f"an argument is text, bytes, an int or a float, not {name}{instead.get(name, '')}")


def _find(command: object) -> Spec:
    """The spec of a command whose name is not written as in the table."""
    if isinstance(command, str | bytes) or not isinstance(command, Sequence) or not command:
        if type(command).__name__ in ("Required", "Holds", "FieldHolds", "Absent", "AtMost", "MoreThan", "Still"):
            raise BadArgument(
                "required, holds, field_holds, absent, at_most, more_than and still belong into `atomically`, "
                "not into `run`"
            )
        raise BadArgument(
            f'a command is a tuple such as ("GET", "key"), in a list of commands; this is {command!r:.80}'
        )
    name = command[0]
    shown = name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)
    spec = TABLE.get(shown.upper())
    if spec is None:
        raise UnknownCommand(_instead_of(shown.upper()), shown[:60])
    return spec


_INSTEAD = {
    "INCR": "write INCRBY key 1",
    "DECR": "write DECRBY key 1",
    "TTL": "write PTTL, which answers in milliseconds",
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


def _instead_of(name: str) -> str:
    """What to write instead of a command that is not there."""
    first = name.split(" ")[0]
    if first != name and first in TABLE:
        return f'no such command; each argument stands for itself, as in ("{first}", "key")'
    near = get_close_matches(first, TABLE, 1)
    advice = _INSTEAD.get(first) or (f"is it {near[0]}?" if near else "the list is in docs/commands.md")
    return f"no such command here; {advice}"


def check_scan(kind: str | None, page: int) -> None:
    """What `Store.scan` takes beside a pattern."""
    if kind is not None and kind not in KINDS:
        raise BadArgument(f"{kind!r} is no kind; write one of {', '.join(sorted(KINDS))}", "SCAN")
    if type(page) is not int or page < 1:
        raise BadArgument(f"a page holds one key or more, not {page!r}", "SCAN")


# --- numbers -----------------------------------------------------------------------------------------------

_INTEGER = re.compile(rb"0|-?[1-9][0-9]{0,18}")
_FLOAT = re.compile(rb"[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|[iI][nN][fF](?:[iI][nN][iI][tT][yY])?)")


def integer(text: bytes) -> int:
    """As strict as Redis: no spaces, no plus, no leading zeros, 64 bits."""
    if _INTEGER.fullmatch(text) and INT64_MIN <= (number := int(text)) <= INT64_MAX:
        return number
    raise NotANumber(f"{_quoted(text)} is not an integer of 64 bits")


def score(text: bytes) -> float:
    if _FLOAT.fullmatch(text):
        number = float(text)
        overflowed = number in (float("inf"), float("-inf")) and b"n" not in text.lower()
        underflowed = number == 0 and any(digit in b"123456789" for digit in re.split(rb"[eE]", text)[0])
        if not (overflowed or underflowed):
            return number
    raise NotANumber(f"{_quoted(text)} is not a score: write a number, inf or -inf")


def amount_of(reply: Reply) -> int | float:
    """What one of AMOUNTS replied, as a number. Nil is 0; text is an integer of 64 bits, or else read as a score is."""
    if reply is None:
        return 0
    if not isinstance(reply, bytes):
        return cast("int | float", reply)
    for reading in (integer, score):
        try:
            return reading(reply)
        except NotANumber:
            continue
    raise StoredNotANumber("the stored value is not a number")  # which is not shown: it may be a secret


def _quoted(text: bytes) -> str:
    return repr(text[:40].decode("utf-8", "replace"))


# --- options -----------------------------------------------------------------------------------------------

_LIFETIMES = {b"EX": (1000, False), b"PX": (1, False), b"EXAT": (1000, True), b"PXAT": (1, True)}


def _deadline(word: bytes, text: bytes) -> Deadline:
    unit_ms, absolute = _LIFETIMES[word]
    if _FLOAT.fullmatch(text) and not _INTEGER.fullmatch(text):
        raise NotANumber(f"{word.decode()} takes a whole number, not {_quoted(text)}; for parts of a second write PX")
    number = integer(text)
    if number <= 0:
        raise BadLifetime(f"a lifetime must be more than zero, not {number}; to remove the key, write DEL")
    if number * unit_ms > LATEST_MS:
        raise BadLifetime(f"{number} ends after the year 9999; for a key that never dies, leave the lifetime out")
    return Deadline(number * unit_ms, absolute)


def _known(parse: Callable[[Sequence[bytes]], Any], first: int) -> Callable[[Sequence[bytes]], Any]:
    """The same parser, for options that stand in the arguments from `first` on: most programs use the same few."""
    known: dict[tuple[bytes, ...], Any] = {}

    def look_up(args: Sequence[bytes]) -> Any:
        words = tuple(args[first:])
        try:
            return known[words]
        except KeyError:
            pass
        options = parse(args)  # or raise what is wrong with them
        if len(known) >= _KNOWN_OPTIONS:
            known.clear()
        known[words] = options
        return options

    return look_up


_KNOWN_OPTIONS = 256


def _set(args: Sequence[bytes]) -> SetOptions:
    if len(args) == 2:
        return PLAIN_SET
    deadline, keep_ttl, only_if, get = None, False, b"", False
    words = iter(args[2:])
    for raw in words:
        word = raw.upper()
        if word in _LIFETIMES and deadline is None and not keep_ttl:
            deadline = _deadline(word, _next(words, word))
        elif word == b"KEEPTTL" and deadline is None:
            keep_ttl = True
        elif word in (b"NX", b"XX"):
            if only_if not in (b"", word):
                raise BadOption("NX and XX exclude each other; write one of them")
            only_if = word
        elif word == b"GET":
            get = True
        else:
            raise _bad_option(raw, "SET")
    return SetOptions(deadline, keep_ttl, only_if, get)


PLAIN_SET = SetOptions()


def _getex(args: Sequence[bytes]) -> GetExOptions:
    if len(args) == 1:
        return GetExOptions()
    word = args[1].upper()
    if word == b"PERSIST" and len(args) == 2:
        return GetExOptions(persist=True)
    if word in _LIFETIMES and len(args) == 3:
        return GetExOptions(_deadline(word, args[2]))
    raise _bad_option(args[1], "GETEX")


def _expire(word: bytes, name: str) -> Callable[[Sequence[bytes]], ExpireOptions]:
    def parse(args: Sequence[bytes]) -> ExpireOptions:
        conditions = frozenset(arg.upper() for arg in args[2:])
        allowed = conditions <= {b"NX", b"XX", b"GT", b"LT"}
        if not allowed or (b"NX" in conditions and len(conditions) > 1) or {b"GT", b"LT"} <= conditions:
            raise _bad_option(args[2], name)
        return ExpireOptions(_deadline(word, args[1]), conditions)

    return parse


def _amount(sign: int) -> Callable[[Sequence[bytes]], int]:
    def parse(args: Sequence[bytes]) -> int:
        amount = sign * integer(args[-1])
        if amount > INT64_MAX:
            raise NotANumber("the result would not fit 64 bits")
        return amount

    return parse


def _pairs(args: Sequence[bytes]) -> None:
    if len(args) % 2 == 0:
        raise WrongArity(f"a field has no value. Write: {TABLE['HSET'].usage}")


def _zadd(args: Sequence[bytes]) -> ZAddOptions:
    at = 1
    while at < len(args) and args[at].upper() in (b"NX", b"XX", b"GT", b"LT", b"CH", b"INCR"):
        at += 1
    flags = frozenset(arg.upper() for arg in args[1:at])
    rest = args[at:]
    if not rest or len(rest) % 2:
        raise BadOption(f"scores and members must come in pairs. Write: {TABLE['ZADD'].usage}")
    if len(flags & {b"NX", b"GT", b"LT"}) > 1 or {b"NX", b"XX"} <= flags:
        raise BadOption("NX, GT and LT exclude each other, and so do NX and XX")
    if b"INCR" in flags and len(rest) != 2:
        raise BadOption("INCR takes one score and one member")
    return ZAddOptions(flags, [(rest[i + 1], score(rest[i])) for i in range(0, len(rest), 2)])


def _bound(text: bytes) -> ScoreBound:
    return ScoreBound(score(text[1:]), True) if text[:1] == b"(" else ScoreBound(score(text))


def _bounds(args: Sequence[bytes]) -> tuple[ScoreBound, ScoreBound]:
    return _bound(args[1]), _bound(args[2])


def _indexes(args: Sequence[bytes]) -> tuple[int, int]:
    return integer(args[1]), integer(args[2])


def _place(args: Sequence[bytes]) -> int:
    """One index, or a count with a sign. Servers differ on those that are so large that sums with them overflow."""
    place = integer(args[1])
    if abs(place) >= 1 << 62:
        raise NotANumber(f"{place} is outside of every list")
    return place


_NO_BOUND = ScoreBound(0.0)


def _zrange(args: Sequence[bytes]) -> ZRangeOptions:
    by_score = reverse = with_scores = False
    limit: tuple[int, int] | None = None
    words = iter(args[3:])
    for raw in words:
        word = raw.upper()
        if word == b"BYSCORE":
            by_score = True
        elif word == b"REV":
            reverse = True
        elif word == b"WITHSCORES":
            with_scores = True
        elif word == b"LIMIT":
            limit = integer(_next(words, word)), integer(_next(words, word))
        else:
            raise _bad_option(raw, "ZRANGE")
    offset, count = limit or (0, -1)
    if by_score:
        first, second = _bounds(args)
        low, high = (second, first) if reverse else (first, second)
        return ZRangeOptions(True, reverse, with_scores, low, high, 0, -1, offset, count)
    if limit:
        raise BadOption("LIMIT goes with BYSCORE; an index range has its own limits")
    start, stop = _indexes(args)
    return ZRangeOptions(False, reverse, with_scores, _NO_BOUND, _NO_BOUND, start, stop)


def _optional_count(args: Sequence[bytes]) -> int | None:
    if len(args) == 1:
        return None
    count = integer(args[1])
    if count < 0:
        raise NotANumber(f"a count is zero or more, not {count}")
    return count


def _max_len(args: Sequence[bytes], at: int, name: str) -> tuple[int, int]:
    """Read `[=|~] number` at this place; return the number and the place after it."""
    if at < len(args) and args[at] in (b"=", b"~"):
        at += 1
    if at >= len(args):
        raise BadOption(f"MAXLEN needs a number. Write: {TABLE[name].usage}")
    length = integer(args[at])
    if length < 0:
        raise NotANumber(f"MAXLEN is zero or more, not {length}")
    return length, at + 1


def _xadd(args: Sequence[bytes]) -> XAddOptions:
    at, max_len = 1, None
    if args[at].upper() == b"MAXLEN":
        max_len, at = _max_len(args, at + 1, "XADD")
    fields = list(args[at + 1 :])
    if not fields or len(fields) % 2:
        raise WrongArity(f"fields and values must come in pairs. Write: {TABLE['XADD'].usage}")
    if args[at] == b"*":
        return XAddOptions(max_len, (None, None), fields)
    ms, _, sequence = args[at].partition(b"-")
    if sequence == b"*":
        return XAddOptions(max_len, (_id_part(ms), None), fields)
    whole = entry_id(args[at], 0)
    if whole == 0:
        raise BadArgument("the id of an entry must be greater than 0-0")
    return XAddOptions(max_len, (whole >> 64, whole & UINT64_MAX), fields)


def _xtrim(args: Sequence[bytes]) -> int:
    if args[1].upper() != b"MAXLEN":
        raise _bad_option(args[1], "XTRIM")
    length, end = _max_len(args, 2, "XTRIM")
    if end != len(args):
        raise _bad_option(args[end], "XTRIM")
    return length


def _id_part(text: bytes) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 20 and int(text) <= UINT64_MAX:
        return int(text)
    raise BadArgument(f"{_quoted(text)} is not an entry id: write 1526919030474-55, 1526919030474 or *")


def entry_id(text: bytes, missing_sequence: int) -> int:
    """An entry id as one number that sorts as ids do."""
    ms, dash, sequence = text.partition(b"-")
    return _id_part(ms) << 64 | (_id_part(sequence) if dash else missing_sequence)


def _range_end(text: bytes, missing_sequence: int, inward: int) -> int:
    if text == b"-":
        return 0
    if text == b"+":
        return UINT64_MAX << 64 | UINT64_MAX
    if text[:1] == b"(":
        return entry_id(text[1:], missing_sequence) + inward
    return entry_id(text, missing_sequence)


def _xrange(reverse: bool) -> Callable[[Sequence[bytes]], XRangeOptions]:
    name = "XREVRANGE" if reverse else "XRANGE"

    def parse(args: Sequence[bytes]) -> XRangeOptions:
        low, high = (args[2], args[1]) if reverse else (args[1], args[2])
        count = None
        if len(args) > 3:
            if len(args) != 5 or args[3].upper() != b"COUNT":
                raise _bad_option(args[3], name)
            count = max(integer(args[4]), 0)
        return XRangeOptions(_range_end(low, 0, +1), _range_end(high, UINT64_MAX, -1), count)

    return parse


def _xdel(args: Sequence[bytes]) -> list[int]:
    return [entry_id(arg, 0) for arg in args[1:]]


def _scan(args: Sequence[bytes]) -> ScanOptions:
    match, kind, count = None, None, 10
    words = iter(args[1:])
    for raw in words:
        word = raw.upper()
        if word == b"MATCH":
            match = _next(words, word)
        elif word == b"TYPE":
            kind = _next(words, word).decode("utf-8", "replace").lower()
        elif word == b"COUNT":
            count = integer(_next(words, word))
            if count < 1:
                raise BadOption(f"COUNT is one or more, not {count}")
        else:
            raise _bad_option(raw, "SCAN")
    return ScanOptions(_id_part(args[0]), match, kind, count)


def _next(words: Any, after: bytes) -> bytes:
    word: bytes | None = next(words, None)
    if word is None:
        raise BadOption(f"{after.decode()} needs a value after it")
    return word


def _bad_option(word: bytes, name: str) -> BadOption:
    return BadOption(f"{_quoted(word)} is no option here. Write: {TABLE[name].usage}")


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
            ("GETDEL key", "the value, which is gone afterwards", WRITE, 1, 1, 1),
            (
                f"GETEX key {_LIFETIME.format(' | PERSIST')}",
                "the value, with a new lifetime",
                *(WRITE, 1, 1, 3, _known(_getex, 1)),
            ),
            (
                "INCRBY key amount",
                "add to a number, from 0 where there is none",
                WRITE,
                1,
                2,
                2,
                _known(_amount(+1), 1),
            ),
            ("DECRBY key amount", "take from a number", WRITE, 1, 2, 2, _known(_amount(-1), 1)),
        ),
        *_rows(
            None,
            (
                f"SET key value {_LIFETIME.format(' | KEEPTTL')} [NX | XX] [GET]",
                "put a value, whatever was there; nil where NX or XX did not allow it",
                *(WRITE, 1, 2, 8, _known(_set, 2)),
            ),
            (
                "MGET key [key ...]",
                "the values; nil for each that is missing or no string",
                READ,
                ALL,
                1,
                None,
            ),
            ("DEL key [key ...]", "how many were there and are gone", WRITE, ALL, 1, None),
            ("EXISTS key [key ...]", "how many are there", READ, ALL, 1, None),
            (
                "EXPIRE key seconds [NX | XX | GT | LT]",
                "1 where the lifetime was set",
                *(WRITE, 1, 2, 4, _known(_expire(b"EX", "EXPIRE"), 1)),
            ),
            (
                "PEXPIRE key ms [NX | XX | GT | LT]",
                "1 where the lifetime was set",
                *(WRITE, 1, 2, 4, _known(_expire(b"PX", "PEXPIRE"), 1)),
            ),
            (
                "PEXPIREAT key ms [NX | XX | GT | LT]",
                "1 where the deadline was set; one in the past removes the key",
                *(WRITE, 1, 2, 4, _known(_expire(b"PXAT", "PEXPIREAT"), 1)),
            ),
            ("PERSIST key", "1 where a lifetime was taken off", WRITE, 1, 1, 1),
            ("PTTL key", "milliseconds left; -1 for no lifetime, -2 for no key", READ, 1, 1, 1),
            (
                "PEXPIRETIME key",
                "its deadline, in milliseconds since 1970; -1 for no lifetime, -2 for no key",
                READ,
                1,
                1,
                1,
            ),
            ("TYPE key", "string, hash, set, zset, list, stream or none", READ, 1, 1, 1),
        ),
        *_rows(
            "hash",
            ("HSET key field value [field value ...]", "how many fields are new", WRITE, 1, 3, None, _pairs),
            ("HSETNX key field value", "1 where the field was not there", WRITE, 1, 3, 3),
            ("HGET key field", "the value of a field, or nil", READ, 1, 2, 2),
            ("HMGET key field [field ...]", "the values of fields", READ, 1, 2, None),
            ("HGETALL key", "all fields, as a dict", READ, 1, 1, 1, None, True),
            ("HDEL key field [field ...]", "how many were there and are gone", WRITE, 1, 2, None),
            ("HLEN key", "how many fields", READ, 1, 1, 1),
            ("HEXISTS key field", "1 where the field is there", READ, 1, 2, 2),
            ("HINCRBY key field amount", "add to a field", WRITE, 1, 3, 3, _known(_amount(+1), 2)),
        ),
        *_rows(
            "set",
            ("SADD key member [member ...]", "how many are new", WRITE, 1, 2, None),
            ("SREM key member [member ...]", "how many were there and are gone", WRITE, 1, 2, None),
            ("SMEMBERS key", "all members, as a set", READ, 1, 1, 1, None, True),
            ("SISMEMBER key member", "1 where it is a member", READ, 1, 2, 2),
            ("SCARD key", "how many members", READ, 1, 1, 1),
        ),
        *_rows(
            "zset",
            (
                "ZADD key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...]",
                "how many are new (CH: or changed); with INCR the new score, or nil",
                *(WRITE, 1, 3, None, _zadd),
            ),
            ("ZREM key member [member ...]", "how many were there and are gone", WRITE, 1, 2, None),
            ("ZSCORE key member", "the score, or nil", READ, 1, 2, 2),
            ("ZMSCORE key member [member ...]", "the scores", READ, 1, 2, None),
            ("ZCARD key", "how many members", READ, 1, 1, 1),
            ("ZCOUNT key min max", "how many have a score from min to max", READ, 1, 3, 3, _bounds, True),
            ("ZRANK key member", "its place from the lowest score, or nil", READ, 1, 2, 2, None, True),
            ("ZREVRANK key member", "its place from the highest score, or nil", READ, 1, 2, 2, None, True),
            (
                "ZRANGE key start stop [BYSCORE] [REV] [LIMIT offset count] [WITHSCORES]",
                "members in order; with WITHSCORES as [member, score]",
                *(READ, 1, 3, 9, _zrange, True),
            ),
            ("ZREMRANGEBYSCORE key min max", "how many are gone", WRITE, 1, 3, 3, _bounds, True),
            ("ZREMRANGEBYRANK key start stop", "how many are gone", WRITE, 1, 3, 3, _indexes, True),
            ("ZPOPMIN key [count]", "the lowest, which are gone afterwards", WRITE, 1, 1, 2, _optional_count),
        ),
        *_rows(
            "list",
            ("LPUSH key item [item ...]", "the length afterwards", WRITE, 1, 2, None),
            ("RPUSH key item [item ...]", "the length afterwards", WRITE, 1, 2, None),
            ("LPOP key [count]", "the first, which is gone afterwards", WRITE, 1, 1, 2, _optional_count),
            ("RPOP key [count]", "the last, which is gone afterwards", WRITE, 1, 1, 2, _optional_count),
            ("LRANGE key start stop", "the items from start to stop", READ, 1, 3, 3, _indexes, True),
            ("LLEN key", "how many items", READ, 1, 1, 1),
            ("LTRIM key start stop", "keep only these", WRITE, 1, 3, 3, _indexes, True),
            (
                "LREM key count item",
                "how many are gone: the first, the last (count < 0) or all (0)",
                *(WRITE, 1, 3, 3, _place, True),
            ),
            (
                "LINDEX key index",
                "one item, or nil",
                *(READ, 1, 2, 2, _place, True),
            ),
            (
                "LSET key index item",
                "put an item in the place of one",
                WRITE,
                1,
                3,
                3,
                _place,
            ),
        ),
        *_rows(
            "stream",
            (
                "XADD key [MAXLEN [= | ~] length] * | id field value [field value ...]",
                "the id of the new entry",
                *(WRITE, 1, 4, None, _xadd),
            ),
            (
                "XRANGE key start end [COUNT n]",
                "entries as [id, [field, value, ...]]",
                READ,
                1,
                3,
                5,
                _xrange(False),
                True,
            ),
            (
                "XREVRANGE key end start [COUNT n]",
                "the same, newest first",
                READ,
                1,
                3,
                5,
                _xrange(True),
                True,
            ),
            ("XLEN key", "how many entries", READ, 1, 1, 1),
            ("XDEL key id [id ...]", "how many are gone", WRITE, 1, 2, None, _xdel),
            ("XTRIM key MAXLEN [= | ~] length", "how many are gone", WRITE, 1, 3, 4, _xtrim, True),
        ),
        *_rows(
            None,
            (
                "SCAN cursor [MATCH pattern] [COUNT n] [TYPE kind]",
                "the next cursor and some keys; prefer Store.scan",
                *(READ, 0, 1, 7, _scan, True),
            ),
            ("DBSIZE", "how many keys", READ, 0, 0, 0, None, True),
            ("TIME", "the store's clock: seconds, microseconds", READ, 0, 0, 0),
            ("PUBLISH channel message", "how many subscribers it went to", WRITE, 0, 2, 2),
        ),
    )
}

# Reads of one key that reply an amount, or may, and nil only where 0 is as true. So not PTTL, whose -1 means for ever,
# nor ZRANK, whose nil is no place at all.
AMOUNTS = (
    *("GET", "HGET", "LINDEX", "ZSCORE"),
    *("SCARD", "ZCARD", "ZCOUNT", "HLEN", "LLEN", "XLEN"),
    *("SISMEMBER", "HEXISTS"),
)

# Where the time of the store may stand: as a number, never as the name of a key, a field or a member, because stores
# look for what a command names before they know the time. Each takes the place among the arguments, and their number.
TIMED: dict[str, Callable[[int, int], bool]] = {
    "SET": lambda place, count: place >= 1,
    "PEXPIREAT": lambda place, count: place == 1,
    "HSET": lambda place, count: place >= 2 and place % 2 == 0,
    "HSETNX": lambda place, count: place == 2,
    "ZADD": lambda place, count: (count - place) % 2 == 0,
    **dict.fromkeys(("ZCOUNT", "ZRANGE", "ZREMRANGEBYSCORE"), lambda place, count: place in (1, 2)),
}


# Reads of one key that tell all of it, or its deadline.
WHOLE_READS = ("GET", "HGETALL", "SMEMBERS", "ZRANGE", "LRANGE", "XRANGE", "PEXPIRETIME")
