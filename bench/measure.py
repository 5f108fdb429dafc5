"""Measurement: contenders take turns in one process, and each round gives one ratio.

Noise affects all turns of a round alike, so their ratio is more reliable than their times, and the median ratio most.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, TypeAlias

TASKS = 32
VALUE = random.Random(1).randbytes(300)

Operation: TypeAlias = Callable[[str], Awaitable[object]]  # on this key
Play: TypeAlias = Callable[[int], Awaitable[None]]  # runs that many operations, a multiple of TASKS
Tidy: TypeAlias = Callable[[], Awaitable[None]]


class Advance(Protocol):
    def __call__(self, steps: int = 1) -> None: ...


class Progress(Protocol):
    """Shows the progress of a run. It advances only between turns, because drawing takes time."""

    def activity(self, text: str, total: int) -> AbstractContextManager[Advance]: ...


class Effort(NamedTuple):
    rounds: int
    turn_s: float
    stage_rounds: int  # of stages, whose turns are shorter


FULL = Effort(rounds=15, turn_s=0.25, stage_rounds=60)
QUICK = Effort(rounds=3, turn_s=0.02, stage_rounds=2)


# --- inputs and results ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a row, in its unit."""

    bound: Literal["at least", "at most", "under"]
    limit: float

    def met(self, value: float) -> bool:
        match self.bound:
            case "at least":
                return value >= self.limit
            case "at most":
                return value <= self.limit
            case "under":
                return value < self.limit


@dataclass(frozen=True, slots=True)
class Contender:
    name: str
    play: Play


@dataclass(frozen=True, slots=True)
class Peer:
    """A contender to compare with, and the unit of the ratio."""

    contender: Contender
    judged: Literal["times as fast", "times the time"] = "times as fast"
    target: Target | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """One of several steps in each round, done by both sides.

    A stage starts with the result of the previous one: so one can create what the next one deletes, each timed, and the
    store has the same size after a round.
    """

    name: str
    ours: Play
    theirs: Play
    operations: int  # of a turn
    target: Target | None = None


@dataclass(frozen=True, slots=True)
class Match:
    """One operation, run by us and by others in turn."""

    name: str
    ours: Contender
    peers: Sequence[Peer]


Unit: TypeAlias = Literal[
    "times as fast", "times the time", "us", "ms", "s", "MB", "a second", "round trips", "calls", "packages"
]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the result. `value` is a ratio or a figure, which the target bounds.

    `ours_us` and `theirs_us` are median microseconds per operation; `spread` is the interquartile range of the ratios.
    """

    subject: str
    name: str
    value: float
    unit: Unit
    target: Target | None = None
    against: str = ""
    ours_us: float | None = None
    theirs_us: float | None = None
    spread: tuple[float, float] | None = None
    note: str = ""
    passed: bool | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "passed", None if self.target is None else self.target.met(self.value))


# --- rounds ------------------------------------------------------------------------------------------------


async def compare(subject: str, match: Match, effort: Effort, progress: Progress) -> list[Row]:
    """Run a match. Returns a row for each peer."""
    contenders = [match.ours, *(peer.contender for peer in match.peers)]
    with progress.activity(f"{subject} · {match.name}", effort.rounds * len(contenders)) as advance:
        ours, *theirs = await _rounds(contenders, effort, advance)
    return [_row(subject, match.name, peer, ours, times) for peer, times in zip(match.peers, theirs, strict=True)]


async def _rounds(contenders: Sequence[Contender], effort: Effort, advance: Advance) -> list[list[float]]:
    """Seconds per operation of each contender in each round."""
    operations = [await _calibrate(contender.play, effort.turn_s) for contender in contenders]
    times: list[list[float]] = [[] for _ in contenders]
    for number in range(effort.rounds):
        # The order rotates, so that none always follows the same one.
        for place in (*range(number % len(contenders), len(contenders)), *range(number % len(contenders))):
            await asyncio.sleep(0.005)  # lets background work of the previous turn finish
            gc.collect()
            took = await _time(contenders[place].play, operations[place])
            times[place].append(took / operations[place])
            advance()
    return times


async def compare_stages(
    subject: str, stages: Sequence[Stage], against: str, effort: Effort, progress: Progress, tidy: Tidy | None = None
) -> list[Row]:
    """Run all stages in each round. Returns a row for each stage, with the ratio of our time to theirs.

    The first round is the warm-up. `tidy` restores the state after all stages of a side, and is not timed.
    """
    times: list[tuple[list[float], list[float]]] = [([], []) for _ in stages]
    with progress.activity(
        f"{subject} · {', '.join(stage.name for stage in stages)}", effort.stage_rounds + 1
    ) as advance:
        for number in range(effort.stage_rounds + 1):
            for side in (0, 1) if number % 2 else (1, 0):
                await asyncio.sleep(0.005)
                gc.collect()
                for stage, taken in zip(stages, times, strict=True):
                    took = await _time((stage.ours, stage.theirs)[side], stage.operations)
                    if number:
                        taken[side].append(took / stage.operations)
                if tidy is not None:
                    await tidy()
            advance()
    peers = [Peer(Contender(against, stage.theirs), "times the time", stage.target) for stage in stages]
    return [_row(subject, stage.name, peer, *taken) for stage, peer, taken in zip(stages, peers, times, strict=True)]


async def _time(play: Play, operations: int) -> float:
    began = time.perf_counter()
    await play(operations)
    return time.perf_counter() - began


async def _calibrate(play: Play, turn_s: float) -> int:
    """The number of operations that fill a turn. This is also the warm-up."""
    operations = TASKS
    while (took := await _time(play, operations)) < turn_s / 4:
        operations *= 2
    return max(TASKS, round(operations * turn_s / took / TASKS) * TASKS)


def _row(subject: str, name: str, peer: Peer, ours: list[float], theirs: list[float]) -> Row:
    faster = peer.judged == "times as fast"
    ratios = [b / a if faster else a / b for a, b in zip(ours, theirs, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return Row(
        subject=subject,
        name=name,
        value=statistics.median(ratios),
        unit=peer.judged,
        target=peer.target,
        against=peer.contender.name,
        ours_us=statistics.median(ours) * 1e6,
        theirs_us=statistics.median(theirs) * 1e6,
        spread=(low, high),
    )


# --- plays -------------------------------------------------------------------------------------------------


def random_keys(among: int, seed: int = 7) -> Iterator[str]:
    """An endless sequence of keys, the same for every caller."""
    chance = random.Random(seed)
    return itertools.cycle([key(chance.randrange(among)) for _ in range(20_000)])


def new_keys(name: str) -> Iterator[str]:
    """Unused keys, in an order that does not favour an index."""
    return (f"bench:{name}:{_scatter(number):08x}" for number in itertools.count())


def _scatter(number: int) -> int:
    """A different 32-bit number for each number, far from its neighbours."""
    return number * 2_654_435_761 & 0xFFFF_FFFF


def values() -> Iterator[bytes]:
    """Values of 300 bytes, never the same twice in a row for one key.

    SQLite does not write an unchanged row, and then has nothing to sync: repeated writes of one value would measure
    commits that never happen.
    """
    chance = random.Random(2)
    return itertools.cycle([chance.randbytes(300) for _ in range(1_009)])


def key(number: int) -> str:
    return f"bench:user:{number:07d}"


def alone(operation: Operation, keys: Iterator[str]) -> Play:
    """One task with sequential operations."""

    async def play(operations: int) -> None:
        for _ in range(operations):
            await operation(next(keys))

    return play


def together(operation: Operation, keys: Iterator[str], tasks: int = TASKS) -> Play:
    """Many concurrent tasks, each with sequential operations."""

    async def task(operations: int) -> None:
        for _ in range(operations):
            await operation(next(keys))

    async def play(operations: int) -> None:
        await asyncio.gather(*(task(-(-operations // tasks)) for _ in range(tasks)))

    return play


def blocking(operation: Callable[[str], object], keys: Iterator[str]) -> Play:
    """Sequential blocking calls of a library without asyncio."""

    async def play(operations: int) -> None:
        for _ in range(operations):
            operation(next(keys))

    return play


def in_threads(threads: Executor, count: int, call: Callable[[str], None], keys: Iterator[str]) -> Play:
    """Calls by this many threads, each in sequence."""

    def call_all(some: list[str]) -> None:
        for one in some:
            call(one)

    async def play(operations: int) -> None:
        shares = [list(itertools.islice(keys, operations // count)) for _ in range(count)]
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(threads, call_all, share) for share in shares))

    return play
