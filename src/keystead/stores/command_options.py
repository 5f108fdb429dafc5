"""Parsers for the arguments of commands: numbers, lifetimes, ranges, entry ids and options."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from keystead.errors import BadArgument, BadLifetime, BadOption, NotANumber, WrongArity

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
UINT64_MAX = 2**64 - 1
LATEST_MS = 253_402_300_799_999  # the last millisecond of the year 9999
USAGE: dict[str, str] = {}  # the syntax of each command; filled by the table of commands


class Deadline(NamedTuple):
    """When a key expires: after `ms` milliseconds, or at `ms` milliseconds since 1970."""

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


# --- numbers -----------------------------------------------------------------------------------------------

_INTEGER = re.compile(rb"0|-?[1-9][0-9]{0,18}")
_FLOAT = re.compile(rb"[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|[iI][nN][fF](?:[iI][nN][iI][tT][yY])?)")


def integer(text: bytes) -> int:
    """A 64-bit integer, as strict as Redis: no spaces, no plus, no leading zeros."""
    if _INTEGER.fullmatch(text) and INT64_MIN <= (number := int(text)) <= INT64_MAX:
        return number
    raise NotANumber(f"{_quote(text)} is not an integer of 64 bits")


def score(text: bytes) -> float:
    if _FLOAT.fullmatch(text):
        number = float(text)
        overflowed = number in (float("inf"), float("-inf")) and b"n" not in text.lower()
        underflowed = number == 0 and any(digit in b"123456789" for digit in re.split(rb"[eE]", text)[0])
        if not (overflowed or underflowed):
            return number
    raise NotANumber(f"{_quote(text)} is not a score: write a number, inf or -inf")


def _quote(text: bytes) -> str:
    return repr(text[:40].decode("utf-8", "replace"))


# --- options -----------------------------------------------------------------------------------------------

_LIFETIMES = {b"EX": (1000, False), b"PX": (1, False), b"EXAT": (1000, True), b"PXAT": (1, True)}


def _parse_deadline(word: bytes, text: bytes) -> Deadline:
    unit_ms, absolute = _LIFETIMES[word]
    if _FLOAT.fullmatch(text) and not _INTEGER.fullmatch(text):
        raise NotANumber(f"{word.decode()} takes a whole number, not {_quote(text)}; for parts of a second write PX")
    number = integer(text)
    if number <= 0:
        raise BadLifetime(f"a lifetime must be more than zero, not {number}; to remove the key, write DEL")
    if number * unit_ms > LATEST_MS:
        raise BadLifetime(f"{number} ends after the year 9999; for a key that never expires, leave the lifetime out")
    return Deadline(number * unit_ms, absolute)


def with_cache(parse: Callable[[Sequence[bytes]], Any], first: int) -> Callable[[Sequence[bytes]], Any]:
    """The parser with a cache, keyed by the arguments from `first` on: most programs use the same few options."""
    known: dict[tuple[bytes, ...], Any] = {}

    def look_up(args: Sequence[bytes]) -> Any:
        words = tuple(args[first:])
        try:
            return known[words]
        except KeyError:
            pass
        options = parse(args)  # or raises
        if len(known) >= _KNOWN_OPTIONS:
            known.clear()
        known[words] = options
        return options

    return look_up


_KNOWN_OPTIONS = 256


def parse_set(args: Sequence[bytes]) -> SetOptions:
    if len(args) == 2:
        return PLAIN_SET
    deadline, keep_ttl, only_if, get = None, False, b"", False
    words = iter(args[2:])
    for raw in words:
        word = raw.upper()
        if word in _LIFETIMES and deadline is None and not keep_ttl:
            deadline = _parse_deadline(word, _next(words, word))
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


def parse_getex(args: Sequence[bytes]) -> GetExOptions:
    if len(args) == 1:
        return GetExOptions()
    word = args[1].upper()
    if word == b"PERSIST" and len(args) == 2:
        return GetExOptions(persist=True)
    if word in _LIFETIMES and len(args) == 3:
        return GetExOptions(_parse_deadline(word, args[2]))
    raise _bad_option(args[1], "GETEX")


def expire_parser(word: bytes, name: str) -> Callable[[Sequence[bytes]], ExpireOptions]:
    def parse(args: Sequence[bytes]) -> ExpireOptions:
        conditions = frozenset(arg.upper() for arg in args[2:])
        allowed = conditions <= {b"NX", b"XX", b"GT", b"LT"}
        if not allowed or (b"NX" in conditions and len(conditions) > 1) or {b"GT", b"LT"} <= conditions:
            raise _bad_option(args[2], name)
        return ExpireOptions(_parse_deadline(word, args[1]), conditions)

    return parse


def amount_parser(sign: int) -> Callable[[Sequence[bytes]], int]:
    def parse(args: Sequence[bytes]) -> int:
        amount = sign * integer(args[-1])
        if amount > INT64_MAX:
            raise NotANumber("the result would not fit 64 bits")
        return amount

    return parse


def check_field_pairs(args: Sequence[bytes]) -> None:
    if len(args) % 2 == 0:
        raise WrongArity(f"a field has no value. Write: {USAGE['HSET']}")


def parse_zadd(args: Sequence[bytes]) -> ZAddOptions:
    at = 1
    while at < len(args) and args[at].upper() in (b"NX", b"XX", b"GT", b"LT", b"CH", b"INCR"):
        at += 1
    flags = frozenset(arg.upper() for arg in args[1:at])
    rest = args[at:]
    if not rest or len(rest) % 2:
        raise BadOption(f"scores and members must come in pairs. Write: {USAGE['ZADD']}")
    if len(flags & {b"NX", b"GT", b"LT"}) > 1 or {b"NX", b"XX"} <= flags:
        raise BadOption("NX, GT and LT exclude each other, and so do NX and XX")
    if b"INCR" in flags and len(rest) != 2:
        raise BadOption("INCR takes one score and one member")
    return ZAddOptions(flags, [(rest[i + 1], score(rest[i])) for i in range(0, len(rest), 2)])


def _parse_bound(text: bytes) -> ScoreBound:
    return ScoreBound(score(text[1:]), True) if text[:1] == b"(" else ScoreBound(score(text))


def parse_bounds(args: Sequence[bytes]) -> tuple[ScoreBound, ScoreBound]:
    return _parse_bound(args[1]), _parse_bound(args[2])


def parse_indexes(args: Sequence[bytes]) -> tuple[int, int]:
    return integer(args[1]), integer(args[2])


def parse_index(args: Sequence[bytes]) -> int:
    """An index, or a signed count. Servers differ on values so large that sums with them overflow."""
    place = integer(args[1])
    if abs(place) >= 1 << 62:
        raise NotANumber(f"{place} is out of range for every list")
    return place


_NO_BOUND = ScoreBound(0.0)


def parse_zrange(args: Sequence[bytes]) -> ZRangeOptions:
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
        first, second = parse_bounds(args)
        low, high = (second, first) if reverse else (first, second)
        return ZRangeOptions(True, reverse, with_scores, low, high, 0, -1, offset, count)
    if limit:
        raise BadOption("LIMIT needs BYSCORE; an index range has its own limits")
    start, stop = parse_indexes(args)
    return ZRangeOptions(False, reverse, with_scores, _NO_BOUND, _NO_BOUND, start, stop)


def parse_optional_count(args: Sequence[bytes]) -> int | None:
    if len(args) == 1:
        return None
    count = integer(args[1])
    if count < 0:
        raise NotANumber(f"a count must be zero or more, not {count}")
    return count


def _parse_max_len(args: Sequence[bytes], at: int, name: str) -> tuple[int, int]:
    """Parse `[=|~] number` at this place; return the number and the place after it."""
    if at < len(args) and args[at] in (b"=", b"~"):
        at += 1
    if at >= len(args):
        raise BadOption(f"MAXLEN needs a number. Write: {USAGE[name]}")
    length = integer(args[at])
    if length < 0:
        raise NotANumber(f"MAXLEN must be zero or more, not {length}")
    return length, at + 1


def parse_xadd(args: Sequence[bytes]) -> XAddOptions:
    at, max_len = 1, None
    if args[at].upper() == b"MAXLEN":
        max_len, at = _parse_max_len(args, at + 1, "XADD")
    fields = list(args[at + 1 :])
    if not fields or len(fields) % 2:
        raise WrongArity(f"fields and values must come in pairs. Write: {USAGE['XADD']}")
    if args[at] == b"*":
        return XAddOptions(max_len, (None, None), fields)
    ms, _, sequence = args[at].partition(b"-")
    if sequence == b"*":
        return XAddOptions(max_len, (_parse_id_part(ms), None), fields)
    whole = entry_id(args[at], 0)
    if whole == 0:
        raise BadArgument("the id of an entry must be greater than 0-0")
    return XAddOptions(max_len, (whole >> 64, whole & UINT64_MAX), fields)


def parse_xtrim(args: Sequence[bytes]) -> int:
    if args[1].upper() != b"MAXLEN":
        raise _bad_option(args[1], "XTRIM")
    length, end = _parse_max_len(args, 2, "XTRIM")
    if end != len(args):
        raise _bad_option(args[end], "XTRIM")
    return length


def _parse_cursor(text: bytes) -> int:
    if _is_uint64(text):
        return int(text)
    raise BadArgument(f"invalid cursor {_quote(text)}: begin with 0, and go on with what SCAN replied")


def _is_uint64(text: bytes) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 20 and int(text) <= UINT64_MAX


def _parse_id_part(text: bytes) -> int:
    if _is_uint64(text):
        return int(text)
    raise BadArgument(f"{_quote(text)} is not an entry id: write 1526919030474-55, 1526919030474 or *")


def entry_id(text: bytes, missing_sequence: int) -> int:
    """An entry id as one number that sorts as ids do."""
    ms, dash, sequence = text.partition(b"-")
    return _parse_id_part(ms) << 64 | (_parse_id_part(sequence) if dash else missing_sequence)


def _parse_range_end(text: bytes, missing_sequence: int, inward: int) -> int:
    if text == b"-":
        return 0
    if text == b"+":
        return UINT64_MAX << 64 | UINT64_MAX
    if text[:1] == b"(":
        return entry_id(text[1:], missing_sequence) + inward
    return entry_id(text, missing_sequence)


def range_parser(reverse: bool) -> Callable[[Sequence[bytes]], XRangeOptions]:
    name = "XREVRANGE" if reverse else "XRANGE"

    def parse(args: Sequence[bytes]) -> XRangeOptions:
        low, high = (args[2], args[1]) if reverse else (args[1], args[2])
        count = None
        if len(args) > 3:
            if len(args) != 5 or args[3].upper() != b"COUNT":
                raise _bad_option(args[3], name)
            count = max(integer(args[4]), 0)
        return XRangeOptions(_parse_range_end(low, 0, +1), _parse_range_end(high, UINT64_MAX, -1), count)

    return parse


def parse_entry_ids(args: Sequence[bytes]) -> list[int]:
    return [entry_id(arg, 0) for arg in args[1:]]


def parse_scan(args: Sequence[bytes]) -> ScanOptions:
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
                raise BadOption(f"COUNT must be one or more, not {count}")
        else:
            raise _bad_option(raw, "SCAN")
    return ScanOptions(_parse_cursor(args[0]), match, kind, count)


def _next(words: Any, after: bytes) -> bytes:
    word: bytes | None = next(words, None)
    if word is None:
        raise BadOption(f"{after.decode()} needs a value after it")
    return word


def _bad_option(word: bytes, name: str) -> BadOption:
    return BadOption(f"{_quote(word)} is not an option here. Write: {USAGE[name]}")
