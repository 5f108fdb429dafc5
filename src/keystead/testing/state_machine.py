"""Random commands on a store and on a real server, whose replies must be equal.

    def test_it_answers_as_redis_does(redis_server):
        machine = machine_of(open_my_subject, lambda: oracle_on(redis_server))
        run_state_machine_as_test(machine, settings=PLAY)

Nothing sleeps. Lifetimes are tens of seconds, and both clocks are advanced by the same amount, so that the real
milliseconds in between make no difference.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from keystead.errors import CommandError
from keystead.stores import (
    Absent,
    AtMost,
    FieldHolds,
    Guarantees,
    Holds,
    Outcome,
    Required,
    Step,
    Still,
    Store,
)
from keystead.stores.derived import run_derived
from keystead.testing.contract.contract_base import READERS
from keystead.testing.oracle import Oracle
from keystead.testing.random_commands import (
    KEYS,
    SLACK_MS,
    STEP_MS,
    Part,
    Play,
    Template,
    atomic_batches,
    commands,
    derived_commands,
    keys_for,
    resolve,
)
from keystead.testing.reply_comparison import replies_of, shown
from keystead.testing.resp_client import Wire

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

ALL = Guarantees()


@dataclass(frozen=True)
class StoreUnderTest:
    """An empty store, its clock, and a function to advance that clock."""

    store: Store
    now_ms: Callable[[], int]
    advance: Callable[[int], None]


class RespServer(Protocol):
    """A Redis or Valkey server that no other test uses."""

    def wire(self) -> Wire:
        """A new connection to it."""


@contextmanager
def oracle_on(server: RespServer) -> Iterator[Oracle]:
    """An oracle with exclusive use of this server, emptied."""
    with server.wire() as wire:
        oracle = Oracle(wire)
        oracle.empty()
        yield oracle


def comparable(command: Sequence[Part] | Step, reply: Any) -> Any:
    """A reply in comparable form. A lifetime is a multiple of the step, whatever milliseconds have passed."""
    match command:
        case Holds() | FieldHolds() | Absent() | AtMost() | Still():
            return shown(reply)
        case Required(inner):
            return comparable(inner, reply)
    if command[0] == "PTTL" and isinstance(reply, int) and reply >= 0:
        return _round_lifetime(reply)
    if command[0] == "PEXPIRETIME" and isinstance(reply, int) and reply >= 0:
        return "a deadline"  # by the clock of this side; PTTL shows whether it is right
    return shown(reply)


def _round_lifetime(left_ms: int) -> str:
    steps = -(-left_ms // STEP_MS)
    late_ms = steps * STEP_MS - left_ms
    return f"about {steps * STEP_MS} ms" if late_ms <= SLACK_MS else f"{left_ms} ms, not a multiple of STEP_MS"


def machine_of(
    open_subject: Callable[[], AbstractAsyncContextManager[StoreUnderTest]],
    open_oracle: Callable[[], AbstractContextManager[Oracle]],
    guarantees: Guarantees = ALL,
) -> type[RuleBasedStateMachine]:
    """A machine for `run_state_machine_as_test` of Hypothesis. Both are opened for each run, and empty.

    `guarantees`: for a store that lacks some kinds, takes atomic steps on one key only, or cannot list its keys. Only
    commands within them are tried.
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
            async def wait_for_it() -> T:
                return await work

            return self._runner.run(wait_for_it())

        def run_both(self, batch: Sequence[Template]) -> None:
            commands = [resolve(parts, self.subject.now_ms()) for parts in batch]
            replies = self.wait(replies_of(self.subject.store, commands))
            expected = self.oracle.run([resolve(parts, self.oracle.now_ms()) for parts in batch])
            _expect_same(batch, replies, expected, comparable)

        @rule(batch=st.lists(commands(guarantees), min_size=1, max_size=6))
        def run(self, batch: list[Template]) -> None:
            self.run_both(batch)

        @rule(batch=st.lists(derived_commands(guarantees), min_size=1, max_size=6))
        def run_derived(self, batch: list[Template]) -> None:
            batch = _without_moved_streams(batch, self.oracle)
            commands = [resolve(parts, self.subject.now_ms()) for parts in batch]
            replies = self.wait(run_derived(self.subject.store, commands))
            expected = self.oracle.run([resolve(parts, self.oracle.now_ms()) for parts in batch])
            _expect_same(batch, replies, expected, _comparable_derived)

        @rule(batch=atomic_batches(guarantees))
        def atomically(self, batch: list[Play]) -> None:
            steps = [play.step(self.subject.now_ms()) for play in batch]
            got = self.wait(_outcome(self.subject.store, steps))
            expected = self.oracle.atomically([play.step(self.oracle.now_ms()) for play in batch])
            assert (steps, _comparable_outcome(steps, got)) == (steps, _comparable_outcome(steps, expected))
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
            """Deadlines fall between two steps, so that none can equal the existing one."""
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
            assert self.wait(_scan_pages(self.subject.store, pattern, kind)) == expected
            assert self.wait(_scan_by_cursor(self.subject.store, options)) == expected
            assert self.wait(self.subject.store.run([("DBSIZE",)])) == self.oracle.run([("DBSIZE",)])

        @rule()
        def compare_contents(self) -> None:
            keys = sorted(self.oracle.keys())
            if guarantees.scans:
                assert sorted(self.wait(_scan_pages(self.subject.store, "*", None))) == keys
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
                if sys.exc_info()[0] is None:  # otherwise the run has already failed, and that error matters
                    self.compare_contents()
            finally:
                self.wait(self._opened.__aexit__(None, None, None))
                self._opened_oracle.__exit__(None, None, None)
                self._runner.close()

    return SameAsTheOracle


def _expect_same(
    batch: Sequence[Template], replies: Sequence[Any], expected: Sequence[Any], form: Callable[[Template, Any], Any]
) -> None:
    got = [(parts, form(parts, reply)) for parts, reply in zip(batch, replies, strict=True)]
    assert got == [(parts, form(parts, reply)) for parts, reply in zip(batch, expected, strict=True)]


def _without_moved_streams(batch: Sequence[Template], oracle: Oracle) -> list[Template]:
    """Without commands that rename or copy a stream, which only Redis can do."""
    names: tuple[Part, ...] = (*KEYS.values(), b"none")
    kinds = oracle.run([("TYPE", name) for name in (*KEYS.values(), b"none")])
    streams = {name for name, kind in zip(names, kinds, strict=True) if kind == b"stream"}
    return [parts for parts in batch if parts[0] not in ("RENAME", "RENAMENX", "COPY") or parts[1] not in streams]


def _comparable_derived(command: Template, reply: Any) -> Any:
    """A reply of a derived command in comparable form. Fields, members and keys have no order."""
    match command[0], reply:
        case "TTL", int() if reply >= 0:
            return _round_lifetime(reply * 1000)
        case "EXPIRETIME", int() if reply >= 0:
            return "a deadline"
        case (("HKEYS" | "HVALS" | "KEYS"), list()):
            return sorted(reply)
        case "HSCAN", [cursor, entries]:
            return cursor, sorted(zip(entries[::2], entries[1::2], strict=True))
        case "SSCAN", [cursor, entries]:
            return cursor, sorted(entries)
    return shown(reply)


async def _outcome(store: Store, steps: Sequence[Step]) -> Outcome | CommandError:
    try:
        return await store.atomically(steps)
    except CommandError as error:
        return error


def _comparable_outcome(steps: Sequence[Step], outcome: Outcome | CommandError) -> Any:
    if isinstance(outcome, CommandError):
        return shown(outcome)
    replies = [comparable(step, reply) for step, reply in zip(steps, outcome.replies, strict=False)]
    return replies, outcome.stopped_at


async def _scan_pages(store: Store, pattern: str, kind: str | None) -> set[bytes]:
    return {key async for page in store.scan(pattern, kind=kind, page=3) for key in page}


async def _scan_by_cursor(store: Store, options: Sequence[str | int]) -> set[bytes]:
    found: set[bytes] = set()
    cursor = b"0"
    while True:
        [[cursor, page]] = await store.run([("SCAN", cursor, *options)])
        found.update(page)
        if cursor == b"0":
            return found
