"""Random commands and atomic steps, as Hypothesis strategies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, cast

from hypothesis import strategies as st

from keystead.stores import (
    Absent,
    AtMost,
    Command,
    FieldHolds,
    Guarantees,
    Holds,
    Step,
    TimedCommand,
    absent,
    at_most,
    field_holds,
    holds,
    more_than,
    required,
    store_ms,
)
from keystead.stores.commands import AMOUNTS, INT64_MAX, INT64_MIN, TABLE
from keystead.stores.derived import DERIVED

# The milliseconds that may really pass in one run. All lifetimes are multiples of STEP_MS.
SLACK_MS = 4_000
STEP_MS = 5_000


@dataclass(frozen=True)
class DeadlineAfter:
    """A placeholder for a deadline: this long after now, by the clock of the store it is sent to."""

    ms: int
    unit_ms: int


Part: TypeAlias = str | bytes | int | float | DeadlineAfter
Template: TypeAlias = tuple[Part, ...]

KEYS = {
    "string": b"",
    "hash": b"\x00\xff\r\n",
    "set": b"{}",
    "zset": b"*?[z]\\",
    "list": "ключ".encode(),
    "stream": b"1",
}
MEMBERS = (b"", b"a", b"b", b"B", b"\x00", b"\xff", b"a b\r\n", b"10", b"9")
NUMBERS = (0, 1, -1, 7, INT64_MAX, INT64_MIN)
VALUES = st.one_of(
    st.sampled_from((b"", b"x", b"0", b"-1", b"41", b"01", b"-0", b" 1", b"1.0", b"\x00\xff\r\n", b"%d" % INT64_MAX)),
    st.binary(max_size=12),
)
SCORES = st.sampled_from(
    (0, 1, 2, -1, 1.5, 0.1, -0.1, "inf", "-inf", 1e308, -1e308, 5e-324, 1767225600000, 1e21, "+3", ".5")
)
LIMITS = st.one_of(
    st.integers(-2, 4), st.sampled_from((*NUMBERS, INT64_MAX - 1, 0.5, -0.1, 1e21, float("inf"), float("-inf")))
)
IDS = st.sampled_from(("1-1", "1-*", "1-2", "2", "2-*", "3-0", "3-7", "0-1", "0-*", "7-*", "18446744073709551615-1"))
ENDS = st.sampled_from(("-", "+", "1", "1-1", "(1-1", "2", "(2", "3-0", "(3-7", "9-9", "0"))


def keys_for(kind: str | None) -> st.SearchStrategy[bytes]:
    """Usually the key of this kind, so that values grow; otherwise any key, so that wrong kinds occur."""
    every = st.sampled_from((*KEYS.values(), b"none"))
    return every if kind is None else st.one_of(st.just(KEYS[kind]), st.just(KEYS[kind]), every)


def words(*options: st.SearchStrategy[Any]) -> st.SearchStrategy[Template]:
    """Each part is one argument, or a tuple of several."""
    return st.tuples(*options).map(_flatten)


def _flatten(parts: Sequence[Any]) -> Template:
    flat: list[Part] = []
    for part in parts:
        flat.extend(part if isinstance(part, tuple) else (part,))
    return tuple(flat)


def maybe(*choices: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(((), *choices))


def several(item: st.SearchStrategy[Any], most: int = 4) -> st.SearchStrategy[Template]:
    return st.lists(item, min_size=1, max_size=most).map(_flatten)


TENS_MS = st.integers(1, 6).map(lambda n: n * 2 * STEP_MS)
LIFETIMES = st.one_of(
    TENS_MS.map(lambda ms: ("EX", ms // 1000)),
    TENS_MS.map(lambda ms: ("PX", ms)),
    TENS_MS.map(lambda ms: ("EXAT", DeadlineAfter(ms, 1000))),
    TENS_MS.map(lambda ms: ("PXAT", DeadlineAfter(ms, 1))),
)
MEMBER = st.sampled_from(MEMBERS)
INDEX = st.one_of(st.integers(-5, 5), st.integers(-5, 5), st.sampled_from((INT64_MIN, INT64_MAX, -100, 100)))
COUNT = st.integers(0, 4)
BOUND = st.tuples(st.sampled_from(("", "", "(")), SCORES).map(lambda pair: f"{pair[0]}{pair[1]}")
AMOUNT = st.one_of(st.integers(-9, 9), st.sampled_from(NUMBERS))
FIELD = st.tuples(MEMBER, VALUES)
SCORED = st.tuples(SCORES, MEMBER)
CONDITION = maybe("NX", "XX")
MAXLEN = st.tuples(st.just("MAXLEN"), maybe("="), COUNT).map(_flatten)

# name -> its arguments
ARGUMENTS: dict[str, st.SearchStrategy[Template]] = {
    "GET": words(keys_for("string")),
    "SET": words(
        *(keys_for("string"), VALUES, CONDITION, maybe("GET")),
        st.one_of(st.just(()), st.just(("KEEPTTL",)), LIFETIMES),
    ),
    "GETDEL": words(keys_for("string")),
    "GETEX": words(keys_for("string"), st.one_of(st.just(()), st.just(("PERSIST",)), LIFETIMES)),
    "MGET": several(keys_for("string")),
    "INCRBY": words(keys_for("string"), AMOUNT),
    "DECRBY": words(keys_for("string"), AMOUNT.filter(lambda n: n != INT64_MIN)),
    "DEL": several(keys_for(None), most=2),
    "EXISTS": several(keys_for(None)),
    "EXPIRE": words(keys_for(None), TENS_MS.map(lambda ms: ms // 1000), CONDITION),
    "PEXPIRE": words(keys_for(None), TENS_MS, CONDITION),
    "PEXPIREAT": words(keys_for(None), st.one_of(TENS_MS.map(lambda ms: DeadlineAfter(ms, 1)), st.just(1)), CONDITION),
    "PERSIST": words(keys_for(None)),
    "PTTL": words(keys_for(None)),
    "PEXPIRETIME": words(keys_for(None)),
    "TYPE": words(keys_for(None)),
    "HSET": words(keys_for("hash"), several(FIELD)),
    "HSETNX": words(keys_for("hash"), MEMBER, VALUES),
    "HGET": words(keys_for("hash"), MEMBER),
    "HMGET": words(keys_for("hash"), several(MEMBER)),
    "HGETALL": words(keys_for("hash")),
    "HDEL": words(keys_for("hash"), several(MEMBER)),
    "HLEN": words(keys_for("hash")),
    "HEXISTS": words(keys_for("hash"), MEMBER),
    "HINCRBY": words(keys_for("hash"), MEMBER, AMOUNT),
    "SADD": words(keys_for("set"), several(MEMBER)),
    "SREM": words(keys_for("set"), several(MEMBER)),
    "SMEMBERS": words(keys_for("set")),
    "SISMEMBER": words(keys_for("set"), MEMBER),
    "SCARD": words(keys_for("set")),
    "ZADD": words(
        keys_for("zset"),
        st.one_of(
            words(maybe("NX", "XX", "GT", "LT", ("XX", "GT"), ("LT", "XX")), maybe("CH"), several(SCORED)),
            words(maybe("NX", "XX", "GT", "LT"), st.just("INCR"), SCORED),
        ),
    ),
    "ZREM": words(keys_for("zset"), several(MEMBER)),
    "ZSCORE": words(keys_for("zset"), MEMBER),
    "ZMSCORE": words(keys_for("zset"), several(MEMBER)),
    "ZCARD": words(keys_for("zset")),
    "ZCOUNT": words(keys_for("zset"), BOUND, BOUND),
    "ZRANK": words(keys_for("zset"), MEMBER),
    "ZREVRANK": words(keys_for("zset"), MEMBER),
    "ZRANGE": words(
        keys_for("zset"),
        st.one_of(
            words(INDEX, INDEX, maybe("REV")),
            words(
                *(BOUND, BOUND, st.just("BYSCORE"), maybe("REV")),
                st.one_of(st.just(()), st.tuples(st.just("LIMIT"), st.integers(-1, 3), st.integers(-1, 3))),
            ),
        ),
        maybe("WITHSCORES"),
    ),
    "ZREMRANGEBYSCORE": words(keys_for("zset"), BOUND, BOUND),
    "ZREMRANGEBYRANK": words(keys_for("zset"), INDEX, INDEX),
    "ZPOPMIN": words(keys_for("zset"), st.one_of(st.just(()), COUNT)),
    "LPUSH": words(keys_for("list"), several(MEMBER)),
    "RPUSH": words(keys_for("list"), several(MEMBER)),
    "LPOP": words(keys_for("list"), st.one_of(st.just(()), COUNT)),
    "RPOP": words(keys_for("list"), st.one_of(st.just(()), COUNT)),
    "LRANGE": words(keys_for("list"), INDEX, INDEX),
    "LLEN": words(keys_for("list")),
    "LTRIM": words(keys_for("list"), INDEX, INDEX),
    "LREM": words(keys_for("list"), st.integers(-3, 3), MEMBER),
    "LINDEX": words(keys_for("list"), st.integers(-6, 6)),
    "LSET": words(keys_for("list"), st.integers(-6, 6), MEMBER),
    "XADD": words(keys_for("stream"), st.one_of(st.just(()), MAXLEN), IDS, several(FIELD, most=2)),
    "XRANGE": words(keys_for("stream"), ENDS, ENDS, st.one_of(st.just(()), st.tuples(st.just("COUNT"), COUNT))),
    "XREVRANGE": words(keys_for("stream"), ENDS, ENDS, st.one_of(st.just(()), st.tuples(st.just("COUNT"), COUNT))),
    "XLEN": words(keys_for("stream")),
    "XDEL": words(keys_for("stream"), several(IDS.filter(lambda text: "*" not in text))),
    "XTRIM": words(keys_for("stream"), MAXLEN),
}
# DBSIZE and SCAN have separate rules; the clock and the subscribers of two stores differ.
NOT_PLAYED = frozenset({"DBSIZE", "SCAN", "TIME", "PUBLISH"})

FLOAT = st.sampled_from(
    (0, 1, -1, 0.1, "-0.5", "3.0e3", "1e-7", "1234567.125", "0.30000000000000004", "x", "1e400", "")
)
SECONDS = st.one_of(TENS_MS.map(lambda ms: ms // 1000), st.sampled_from((0, -1)))
PLACE = st.integers(-3, 6)

# Derived commands: name -> arguments. Their second key is of the same kind, or any.
DERIVED_ARGUMENTS: dict[str, st.SearchStrategy[Template]] = {
    "SETEX": words(keys_for("string"), SECONDS, VALUES),
    "PSETEX": words(keys_for("string"), TENS_MS, VALUES),
    "SETNX": words(keys_for("string"), VALUES),
    "GETSET": words(keys_for("string"), VALUES),
    "MSET": several(st.tuples(keys_for("string"), VALUES), most=3),
    "MSETNX": several(st.tuples(keys_for("string"), VALUES), most=3),
    "INCR": words(keys_for("string")),
    "DECR": words(keys_for("string")),
    "INCRBYFLOAT": words(keys_for("string"), FLOAT),
    "APPEND": words(keys_for("string"), VALUES),
    "STRLEN": words(keys_for("string")),
    "GETRANGE": words(keys_for("string"), PLACE, st.integers(0, 6)),
    "SETRANGE": words(keys_for("string"), st.integers(-1, 6), VALUES),
    "UNLINK": several(keys_for(None), most=2),
    "TOUCH": several(keys_for(None)),
    "TTL": words(keys_for(None)),
    "EXPIRETIME": words(keys_for(None)),
    "EXPIREAT": words(
        keys_for(None), st.one_of(TENS_MS.map(lambda ms: DeadlineAfter(ms, 1000)), st.just(0)), CONDITION
    ),
    "RENAME": words(keys_for(None), keys_for(None)),
    "RENAMENX": words(keys_for(None), keys_for(None)),
    "COPY": words(keys_for(None), keys_for(None), maybe("REPLACE")),
    "HMSET": words(keys_for("hash"), several(FIELD)),
    "HKEYS": words(keys_for("hash")),
    "HVALS": words(keys_for("hash")),
    "HSTRLEN": words(keys_for("hash"), MEMBER),
    "HINCRBYFLOAT": words(keys_for("hash"), MEMBER, FLOAT),
    "HSCAN": words(keys_for("hash"), st.just(0), maybe(("MATCH", "[ab]*"), ("COUNT", 100))),
    "SMISMEMBER": words(keys_for("set"), several(MEMBER)),
    "SMOVE": words(keys_for("set"), keys_for("set"), MEMBER),
    "SINTER": several(keys_for("set"), most=2),
    "SUNION": several(keys_for("set"), most=2),
    "SDIFF": several(keys_for("set"), most=2),
    "SINTERSTORE": words(keys_for(None), several(keys_for("set"), most=2)),
    "SUNIONSTORE": words(keys_for(None), several(keys_for("set"), most=2)),
    "SDIFFSTORE": words(keys_for(None), several(keys_for("set"), most=2)),
    "SINTERCARD": words(
        *(st.sampled_from((0, 1, 2)), keys_for("set"), keys_for("set"), maybe(("LIMIT", 1), ("LIMIT", -1))),
    ),
    "SSCAN": words(keys_for("set"), st.just(0), maybe(("MATCH", "[ab]*"))),
    "ZINCRBY": words(keys_for("zset"), SCORES, MEMBER),
    "ZREVRANGE": words(keys_for("zset"), INDEX, INDEX, maybe("WITHSCORES")),
    "ZRANGEBYSCORE": words(keys_for("zset"), BOUND, BOUND, maybe("WITHSCORES"), maybe(("LIMIT", 1, 2))),
    "ZREVRANGEBYSCORE": words(keys_for("zset"), BOUND, BOUND, maybe(("LIMIT", 0, -1)), maybe("WITHSCORES")),
    "ZPOPMAX": words(keys_for("zset"), st.one_of(st.just(()), COUNT)),
    "LPUSHX": words(keys_for("list"), several(MEMBER)),
    "RPUSHX": words(keys_for("list"), several(MEMBER)),
    "LPOS": words(
        *(keys_for("list"), MEMBER, maybe(("RANK", 2), ("RANK", -1), ("RANK", 0))),
        *(maybe(("COUNT", 0), ("COUNT", 1), ("COUNT", -1)), maybe(("MAXLEN", 2))),
    ),
    "LINSERT": words(keys_for("list"), st.sampled_from(("BEFORE", "after")), MEMBER, MEMBER),
    "LMOVE": words(*(keys_for("list"), keys_for("list")), *[st.sampled_from(("LEFT", "RIGHT"))] * 2),
    "RPOPLPUSH": words(keys_for("list"), keys_for("list")),
    "KEYS": words(st.sampled_from(("*", "[^a]*", "none"))),
    "PING": words(st.one_of(st.just(()), VALUES)),
    "ECHO": words(VALUES),
    "EXPIRE": words(keys_for(None), st.sampled_from((0, -1)), maybe("NX", "XX", "GT", "LT")),
    "PEXPIRE": words(keys_for(None), st.sampled_from((0, -1)), maybe("NX", "XX", "GT", "LT")),
    "PEXPIREAT": words(keys_for(None), st.sampled_from((0, -1)), maybe("NX", "XX", "GT", "LT")),
}
# Their replies are random, or written differently by different servers. The contract has tests of their own.
NOT_REPEATABLE = frozenset({"SPOP", "SRANDMEMBER", "HRANDFIELD", "ZSCAN"})


@st.composite
def derived_commands(draw: st.DrawFn, guarantees: Guarantees) -> Template:
    names = [name for name in DERIVED_ARGUMENTS if _is_derivable(name, guarantees)]
    name = draw(st.sampled_from(names))
    return (name, *draw(DERIVED_ARGUMENTS[name]))


def _is_derivable(name: str, guarantees: Guarantees) -> bool:
    spec = DERIVED.get(name) or TABLE[name]
    if guarantees.atomic == "one key" and spec.keys not in (0, 1) and name not in ("UNLINK", "TOUCH"):
        return False
    if name == "KEYS" and not guarantees.scans:
        return False
    return spec.kind is None or spec.kind in guarantees.kinds


def names_for(guarantees: Guarantees) -> list[str]:
    """The commands that a store with these guarantees supports."""
    return sorted(name for name in ARGUMENTS if TABLE[name].kind is None or TABLE[name].kind in guarantees.kinds)


@st.composite
def commands(draw: st.DrawFn, guarantees: Guarantees) -> Template:
    name = draw(st.sampled_from(names_for(guarantees)))
    return (name, *draw(ARGUMENTS[name]))


@dataclass(frozen=True)
class Play:
    """A step of an atomic batch: a command, marked `required` or not, or a guard."""

    parts: Template
    required: bool = False
    guard: Holds | FieldHolds | Absent | AtMost | None = None
    by_store: bool = False  # whether deadlines are computed by the store's clock

    def step(self, now_ms: int) -> Step:
        if self.guard is not None:
            return self.guard
        command: TimedCommand = resolve(self.parts, now_ms)
        if self.by_store:
            command = tuple(store_ms(part.ms) if isinstance(part, DeadlineAfter) else part for part in self.parts)
        return required(command) if self.required else command

    def on(self, key: bytes) -> Play:
        """The same step, with every key replaced by this one."""
        if self.guard is not None:
            if isinstance(self.guard, AtMost):
                return replace(
                    self,
                    guard=replace(self.guard, command=resolve(_with_key(cast("Template", self.guard.command), key), 0)),
                )
            return replace(self, guard=replace(self.guard, key=key))
        return replace(self, parts=_with_key(self.parts, key))


def _with_key(parts: Sequence[Part], key: bytes) -> Template:
    name, _, *rest = parts
    every = isinstance(name, str) and TABLE[name].keys < 0
    return (name, key, *(key if every else part for part in rest))


@st.composite
def plays(draw: st.DrawFn, guarantees: Guarantees) -> Play:
    names = names_for(guarantees)
    match draw(st.integers(0, 13)):
        case 0:
            return Play((), guard=holds(draw(keys_for("string")), draw(st.one_of(st.none(), VALUES))))
        case 1 if "hash" in guarantees.kinds:
            held = draw(st.one_of(st.none(), VALUES))
            return Play((), guard=field_holds(draw(keys_for("hash")), draw(MEMBER), held))
        case 2:
            return Play((), guard=absent(draw(keys_for(None))))
        case 3:
            name = draw(st.sampled_from([name for name in AMOUNTS if name in names]))
            return Play(
                (),
                guard=draw(st.sampled_from([at_most, more_than]))(
                    resolve((name, *draw(ARGUMENTS[name])), 0), draw(LIMITS)
                ),
            )
        case 4 | 5:
            return Play(draw(commands(guarantees)), required=True)
        case 6:
            moment = DeadlineAfter(draw(TENS_MS), 1)
            return Play(("PEXPIREAT", draw(keys_for(None)), moment, *draw(words(CONDITION))), by_store=True)
        case 7:
            name = draw(st.sampled_from([name for name in AMOUNTS if name in names]))
            return Play((), guard=at_most(resolve((name, *draw(ARGUMENTS[name])), 0), store_ms(draw(TENS_MS))))
        case _:
            return Play(draw(commands(guarantees)))


@st.composite
def atomic_batches(draw: st.DrawFn, guarantees: Guarantees) -> list[Play]:
    """Steps that a store with these guarantees can run atomically."""
    batch = draw(st.lists(plays(guarantees), min_size=1, max_size=6))
    if guarantees.atomic != "one key":
        return batch
    key = draw(keys_for("string"))
    return [play.on(key) for play in batch]


def resolve(parts: Template, now_ms: int) -> Command:
    """The command with its deadlines computed for this time."""
    return tuple((now_ms + part.ms) // part.unit_ms if isinstance(part, DeadlineAfter) else part for part in parts)


_unknown = set(ARGUMENTS) ^ (set(TABLE) - NOT_PLAYED)
if _unknown:
    raise RuntimeError(f"the table of commands and ARGUMENTS differ by {sorted(_unknown)}")
_unknown = set(DERIVED_ARGUMENTS) - set(TABLE) ^ (set(DERIVED) - NOT_REPEATABLE)
if _unknown:
    raise RuntimeError(f"the table of derived commands and DERIVED_ARGUMENTS differ by {sorted(_unknown)}")
