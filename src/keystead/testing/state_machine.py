"""Random commands on a store and on a real server, which have to answer alike.

    def test_it_answers_as_redis_does(redis_server):
        machine = machine_of(open_my_subject, lambda: oracle_on(redis_server))
        run_state_machine_as_test(machine, settings=PLAY)

Nothing sleeps. Lifetimes are tens of seconds and time is moved, on both sides by the same amount, so that the
milliseconds which really pass decide nothing.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar, cast

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from keystead.errors import CommandError
from keystead.stores import (
    Absent,
    AtMost,
    Command,
    FieldHolds,
    Guarantees,
    Holds,
    Outcome,
    Required,
    Step,
    Still,
    Store,
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
from keystead.testing.oracle import Oracle
from keystead.testing.reply_comparison import replies_of, shown
from keystead.testing.servers import Server

T = TypeVar("T")

PLAY = settings(
    max_examples=250,
    stateful_step_count=30,
    deadline=None,
    print_blob=True,
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)

# The milliseconds that may really pass in one play. Everything else is a multiple of STEP_MS.
SLACK_MS = 4_000
STEP_MS = 5_000
ALL = Guarantees()


@dataclass(frozen=True)
class StoreUnderTest:
    """A store that is empty, its clock, and how to move that clock forward."""

    store: Store
    now_ms: Callable[[], int]
    advance: Callable[[int], None]


@contextmanager
def oracle_on(server: Server) -> Iterator[Oracle]:
    """An oracle that has this server to itself, emptied."""
    with server.wire() as wire:
        oracle = Oracle(wire)
        oracle.empty()
        yield oracle


# --- what is played ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DeadlineAfter:
    """In the place of a deadline: so long after now, in the time of whoever it is sent to."""

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
    """Mostly the key of this kind, so that values grow; else any, so that kinds meet."""
    every = st.sampled_from((*KEYS.values(), b"none"))
    return every if kind is None else st.one_of(st.just(KEYS[kind]), st.just(KEYS[kind]), every)


def words(*options: st.SearchStrategy[Any]) -> st.SearchStrategy[Template]:
    """Each part is one argument, or a tuple of several."""
    return st.tuples(*options).map(_flat)


def _flat(parts: Sequence[Any]) -> Template:
    flat: list[Part] = []
    for part in parts:
        flat.extend(part if isinstance(part, tuple) else (part,))
    return tuple(flat)


def maybe(*choices: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from(((), *choices))


def several(item: st.SearchStrategy[Any], most: int = 4) -> st.SearchStrategy[Template]:
    return st.lists(item, min_size=1, max_size=most).map(_flat)


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
MAXLEN = st.tuples(st.just("MAXLEN"), maybe("="), COUNT).map(_flat)

# name -> what may follow it
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
# DBSIZE and SCAN have rules of their own; the clock and the listeners of two stores cannot be alike.
NOT_PLAYED = frozenset({"DBSIZE", "SCAN", "TIME", "PUBLISH"})


def names_for(guarantees: Guarantees) -> list[str]:
    """The commands that a store with these guarantees has."""
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
    by_store: bool = False  # whether its moments are up to the store

    def step(self, now_ms: int) -> Step:
        if self.guard is not None:
            return self.guard
        command: TimedCommand = sent(self.parts, now_ms)
        if self.by_store:
            command = tuple(store_ms(part.ms) if isinstance(part, DeadlineAfter) else part for part in self.parts)
        return required(command) if self.required else command

    def on(self, key: bytes) -> Play:
        """The same, with this key in the place of each that it names."""
        if self.guard is not None:
            if isinstance(self.guard, AtMost):
                return replace(
                    self, guard=replace(self.guard, command=sent(_on(cast("Template", self.guard.command), key), 0))
                )
            return replace(self, guard=replace(self.guard, key=key))
        return replace(self, parts=_on(self.parts, key))


def _on(parts: Sequence[Part], key: bytes) -> Template:
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
                    sent((name, *draw(ARGUMENTS[name])), 0), draw(LIMITS)
                ),
            )
        case 4 | 5:
            return Play(draw(commands(guarantees)), required=True)
        case 6:
            moment = DeadlineAfter(draw(TENS_MS), 1)
            return Play(("PEXPIREAT", draw(keys_for(None)), moment, *draw(words(CONDITION))), by_store=True)
        case 7:
            name = draw(st.sampled_from([name for name in AMOUNTS if name in names]))
            return Play((), guard=at_most(sent((name, *draw(ARGUMENTS[name])), 0), store_ms(draw(TENS_MS))))
        case _:
            return Play(draw(commands(guarantees)))


@st.composite
def atomic_batches(draw: st.DrawFn, guarantees: Guarantees) -> list[Play]:
    """Steps that a store with these guarantees takes as one."""
    batch = draw(st.lists(plays(guarantees), min_size=1, max_size=6))
    if guarantees.atomic != "one key":
        return batch
    key = draw(keys_for("string"))
    return [play.on(key) for play in batch]


def sent(parts: Template, now_ms: int) -> Command:
    """The command as it goes to a side whose clock stands here."""
    return tuple((now_ms + part.ms) // part.unit_ms if isinstance(part, DeadlineAfter) else part for part in parts)


# --- how it is compared ------------------------------------------------------------------------------------


def told(command: Sequence[Part] | Step, reply: Any) -> Any:
    """A reply in comparable form. A lifetime is a multiple of the step, whatever milliseconds have passed."""
    match command:
        case Holds() | FieldHolds() | Absent() | AtMost() | Still():
            return shown(reply)
        case Required(inner):
            return told(inner, reply)
    if command[0] == "PTTL" and isinstance(reply, int) and reply >= 0:
        return _rounded(reply)
    if command[0] == "PEXPIRETIME" and isinstance(reply, int) and reply >= 0:
        return "a deadline"  # by a clock of its own; PTTL tells whether it is the right one
    return shown(reply)


def _rounded(left_ms: int) -> str:
    steps = -(-left_ms // STEP_MS)
    late_ms = steps * STEP_MS - left_ms
    return f"about {steps * STEP_MS} ms" if late_ms <= SLACK_MS else f"{left_ms} ms, which nobody asked for"


READERS: dict[bytes, tuple[str, tuple[str | int, ...]]] = {
    b"string": ("GET", ()),
    b"hash": ("HGETALL", ()),
    b"set": ("SMEMBERS", ()),
    b"zset": ("ZRANGE", (0, -1, "WITHSCORES")),
    b"list": ("LRANGE", (0, -1)),
    b"stream": ("XRANGE", ("-", "+")),
}


def machine_of(
    open_subject: Callable[[], AbstractAsyncContextManager[StoreUnderTest]],
    open_oracle: Callable[[], AbstractContextManager[Oracle]],
    guarantees: Guarantees = ALL,
) -> type[RuleBasedStateMachine]:
    """A machine for `run_state_machine_as_test` of Hypothesis. Both are opened anew for each play, and empty then.

    `guarantees`: of a store that has not all kinds, takes atomic steps on one key only, or cannot list its keys; it is
    played as far as they go.
    """

    class SameAsTheOracle(RuleBasedStateMachine):
        def __init__(self) -> None:
            super().__init__()
            self._runner = asyncio.Runner()
            self._opened = open_subject()
            self._opened_oracle = open_oracle()
            self.oracle = self._opened_oracle.__enter__()
            self.subject: StoreUnderTest = self.wait(self._opened.__aenter__())

        def wait(self, work: Awaitable[T]) -> T:
            async def waited() -> T:
                return await work

            return self._runner.run(waited())

        def run_both(self, batch: Sequence[Template]) -> None:
            commands = [sent(parts, self.subject.now_ms()) for parts in batch]
            replies = self.wait(replies_of(self.subject.store, commands))
            expected = self.oracle.run([sent(parts, self.oracle.now_ms()) for parts in batch])
            assert [(parts, told(parts, reply)) for parts, reply in zip(batch, replies, strict=True)] == [
                (parts, told(parts, reply)) for parts, reply in zip(batch, expected, strict=True)
            ]

        @rule(batch=st.lists(commands(guarantees), min_size=1, max_size=6))
        def run(self, batch: list[Template]) -> None:
            self.run_both(batch)

        @rule(batch=atomic_batches(guarantees))
        def atomically(self, batch: list[Play]) -> None:
            steps = [play.step(self.subject.now_ms()) for play in batch]
            got = self.wait(_outcome(self.subject.store, steps))
            expected = self.oracle.atomically([play.step(self.oracle.now_ms()) for play in batch])
            assert (steps, _ended(steps, got)) == (steps, _ended(steps, expected))
            self.compare_contents()

        @rule(steps=st.integers(0, 6))
        def advance(self, steps: int) -> None:
            ms = (2 * steps + 1) * STEP_MS
            self.subject.advance(ms)
            self.oracle.advance(ms)

        @rule(
            key=keys_for(None),
            tens=st.integers(1, 6),
            conditions=st.sampled_from((("GT",), ("LT",), ("XX", "GT"), ("LT", "XX"))),
        )
        def expire_if(self, key: bytes, tens: int, conditions: tuple[str, ...]) -> None:
            """Between two steps, so that no deadline can be the same as the one that is there."""
            ms = tens * 2 * STEP_MS + STEP_MS // 2
            [left] = self.oracle.run([("PTTL", key)])
            if left < 0 or abs(left - ms) > SLACK_MS // 2:
                self.run_both([("PEXPIRE", key, ms, *conditions), ("PERSIST", key)])

        @rule(pattern=st.sampled_from(("*", "?", "[*1]*", "\\*\\?*", "[^1]*", "")), kind=st.sampled_from((None, *KEYS)))
        def walk(self, pattern: str, kind: str | None) -> None:
            if not guarantees.scans:
                return
            options: list[str | int] = ["MATCH", pattern, "COUNT", 3, *([] if kind is None else ["TYPE", kind])]
            expected = set(self.oracle.keys(*options))
            assert self.wait(_scanned(self.subject.store, pattern, kind)) == expected
            assert self.wait(_walked(self.subject.store, options)) == expected
            assert self.wait(self.subject.store.run([("DBSIZE",)])) == self.oracle.run([("DBSIZE",)])

        @rule()
        def compare_contents(self) -> None:
            keys = sorted(self.oracle.keys())
            if guarantees.scans:
                assert sorted(self.wait(_scanned(self.subject.store, "*", None))) == keys
            else:
                self.run_both([("EXISTS", key) for key in (*KEYS.values(), b"none")])
            kinds = self.oracle.run([("TYPE", key) for key in keys])
            looks: list[Template] = []
            for key, kind in zip(keys, kinds, strict=True):
                name, rest = READERS[kind]
                looks += [("TYPE", key), ("PTTL", key), (name, key, *rest)]
            if looks:
                self.run_both(looks)

        def teardown(self) -> None:
            try:
                if sys.exc_info()[0] is None:  # else the play has failed already, and that is what is to be read
                    self.compare_contents()
            finally:
                self.wait(self._opened.__aexit__(None, None, None))
                self._opened_oracle.__exit__(None, None, None)
                self._runner.close()

    return SameAsTheOracle


async def _outcome(store: Store, steps: Sequence[Step]) -> Outcome | CommandError:
    try:
        return await store.atomically(steps)
    except CommandError as error:
        return error


def _ended(steps: Sequence[Step], outcome: Outcome | CommandError) -> Any:
    if isinstance(outcome, CommandError):
        return shown(outcome)
    replies = [told(step, reply) for step, reply in zip(steps, outcome.replies, strict=False)]
    return replies, outcome.stopped_at


async def _scanned(store: Store, pattern: str, kind: str | None) -> set[bytes]:
    return {key async for page in store.scan(pattern, kind=kind, page=3) for key in page}


async def _walked(store: Store, options: Sequence[str | int]) -> set[bytes]:
    found: set[bytes] = set()
    cursor = b"0"
    while True:
        [[cursor, page]] = await store.run([("SCAN", cursor, *options)])
        found.update(page)
        if cursor == b"0":
            return found


_unknown = set(ARGUMENTS) ^ (set(TABLE) - NOT_PLAYED)
if _unknown:
    raise RuntimeError(f"the table of commands and what is played differ by {sorted(_unknown)}")
