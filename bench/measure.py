"""How things are measured: contenders take turns in one process, and each round gives one ratio.

A machine is never quiet. What disturbs it disturbs the turns of one round alike, so the ratio of two turns of
the same round says more than either time, and the median of these ratios more than any of them.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol, TypeAlias

TASKS = 32
VALUE = random.Random(1).randbytes(300)

Operation: TypeAlias = Callable[[str], Awaitable[object]]  # on this key
Play: TypeAlias = Callable[[int], Awaitable[None]]  # plays that many operations, a multiple of TASKS
Tidy: TypeAlias = Callable[[], Awaitable[None]]


class Advance(Protocol):
    def __call__(self, steps: int = 1) -> None: ...


class Progress(Protocol):
    """Whoever shows how far a run is. Advances only between turns: drawing costs time."""

    def activity(self, text: str, total: int) -> AbstractContextManager[Advance]: ...


class Effort(NamedTuple):
    rounds: int
    turn_s: float
    stage_rounds: int  # of stages, whose turns are shorter


FULL = Effort(rounds=15, turn_s=0.25, stage_rounds=60)
QUICK = Effort(rounds=3, turn_s=0.02, stage_rounds=2)


# --- what is measured, and what comes out ------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Target:
    """What a row has to show, in the unit of the row."""

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
    """A contender to compare with, by how many times as fast we are or by how many times its time we take."""

    contender: Contender
    judged: Literal["times as fast", "times the time"] = "times as fast"
    target: Target | None = None


@dataclass(frozen=True, slots=True)
class Stage:
    """One of several things that are done one after the other in each round, by us and by another.

    What one stage leaves is what the next one finds: so what is made can be taken away again, each with its own time,
    and a store is as full after a round as before.
    """

    name: str
    ours: Play
    theirs: Play
    operations: int  # of a turn
    target: Target | None = None


@dataclass(frozen=True, slots=True)
class Match:
    """One thing to do, done by us and by others in turn."""

    name: str
    ours: Contender
    peers: Sequence[Peer]


Unit: TypeAlias = Literal[
    "times as fast", "times the time", "us", "ms", "s", "MB", "a second", "round trips", "calls", "packages"
]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the result. `value` is what the target is about: a ratio, or the figure itself.

    `ours_us` and `theirs_us` are medians of microseconds per operation; `spread` holds the middle half of the
    ratios.
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
    """Play a match; one row for each peer."""
    contenders = [match.ours, *(peer.contender for peer in match.peers)]
    with progress.activity(f"{subject} · {match.name}", effort.rounds * len(contenders)) as advance:
        ours, *theirs = await _rounds(contenders, effort, advance)
    return [_row(subject, match.name, peer, ours, times) for peer, times in zip(match.peers, theirs, strict=True)]


async def _rounds(contenders: Sequence[Contender], effort: Effort, advance: Advance) -> list[list[float]]:
    """Seconds per operation of each contender in each round."""
    operations = [await _fitting(contender.play, effort.turn_s) for contender in contenders]
    times: list[list[float]] = [[] for _ in contenders]
    for number in range(effort.rounds):
        # Nobody always comes after the same neighbour.
        for place in (*range(number % len(contenders), len(contenders)), *range(number % len(contenders))):
            await asyncio.sleep(0.005)  # what the one before left to be done in the background
            gc.collect()
            took = await _timed(contenders[place].play, operations[place])
            times[place].append(took / operations[place])
            advance()
    return times


async def compare_stages(
    subject: str, stages: Sequence[Stage], against: str, effort: Effort, progress: Progress, tidy: Tidy | None = None
) -> list[Row]:
    """Play all stages in each round; a row for each stage, by how many times the time of the other one we take.

    The first round is the warm-up. `tidy` puts things back after all stages of a side, and is not timed.
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
                    took = await _timed((stage.ours, stage.theirs)[side], stage.operations)
                    if number:
                        taken[side].append(took / stage.operations)
                if tidy is not None:
                    await tidy()
            advance()
    peers = [Peer(Contender(against, stage.theirs), "times the time", stage.target) for stage in stages]
    return [_row(subject, stage.name, peer, *taken) for stage, peer, taken in zip(stages, peers, times, strict=True)]


async def _timed(play: Play, operations: int) -> float:
    began = time.perf_counter()
    await play(operations)
    return time.perf_counter() - began


async def _fitting(play: Play, turn_s: float) -> int:
    """How many operations fill a turn. Trying it out is the warm-up."""
    operations = TASKS
    while (took := await _timed(play, operations)) < turn_s / 4:
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
    """The same endless sequence of keys for whoever asks."""
    chance = random.Random(seed)
    return itertools.cycle([key(chance.randrange(among)) for _ in range(20_000)])


def new_keys(name: str) -> Iterator[str]:
    """Keys that were never used, in no order that would help an index."""
    return (f"bench:{name}:{_scattered(number):08x}" for number in itertools.count())


def _scattered(number: int) -> int:
    """A different 32-bit number for each number, far from its neighbours."""
    return number * 2_654_435_761 & 0xFFFF_FFFF


def values() -> Iterator[bytes]:
    """Values to write, 300 bytes each, never twice the same in a row for one key.

    SQLite leaves a page alone when the row it is to write is there already, and then has nothing to sync: a
    benchmark that writes one value again and again measures commits that never happen.
    """
    chance = random.Random(2)
    return itertools.cycle([chance.randbytes(300) for _ in range(1_009)])


def key(number: int) -> str:
    return f"bench:user:{number:07d}"


def alone(operation: Operation, keys: Iterator[str]) -> Play:
    """One task, one operation after another."""

    async def play(operations: int) -> None:
        for _ in range(operations):
            await operation(next(keys))

    return play


def together(operation: Operation, keys: Iterator[str]) -> Play:
    """Many tasks at once, each with one operation after another."""

    async def task(operations: int) -> None:
        for _ in range(operations):
            await operation(next(keys))

    async def play(operations: int) -> None:
        await asyncio.gather(*(task(operations // TASKS) for _ in range(TASKS)))

    return play


def blocking(operation: Callable[[str], object], keys: Iterator[str]) -> Play:
    """A library that knows no asyncio, called one operation after another with nobody else in the way."""

    async def play(operations: int) -> None:
        for _ in range(operations):
            operation(next(keys))

    return play
