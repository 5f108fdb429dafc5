"""Many widgets beside few: a million counters, and full boards, rankings and pages.

Many and few take turns in one process. Each turn removes what it created, so that the sizes stay the same.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from bench import widget_keys
from bench.measure import (
    TASKS,
    Contender,
    Effort,
    Match,
    Operation,
    Peer,
    Play,
    Progress,
    Row,
    Stage,
    Target,
    Tidy,
    compare,
    compare_stages,
    together,
)
from bench.widget_keys import EDIT_TOKEN, TOKEN, Board, counter_id, page, quick_hashes, visitors
from keystead.kits.widgets.service import Owner, Visitor, Widgets
from keystead.stores import Store, connect
from tests import servers


class Sizes(NamedTuple):
    """The amount of data, and the operations of a turn."""

    few: int  # counters
    many: int
    small: int  # messages of a board, entries of a ranking, visitors of a page today
    large: int
    created: int  # counters in a turn
    changed: int  # messages or scores in a turn: fewer than the smallest board holds


FULL = Sizes(few=10_000, many=1_000_000, small=100, large=10_000, created=64, changed=20)
QUICK = Sizes(few=100, many=400, small=20, large=40, created=16, changed=4)
SAMPLE = 5_000  # visited counters, known to the process: the same number among few and many
IDS = 100  # of a batchGet
VISITS = 5  # of a busy page in a turn
NO_SLOWER = Target("at most", 1.5)
ME = Visitor("192.0.2.1", "a browser")


async def run(folder: Path, effort: Effort, progress: Progress, *, quick: bool) -> list[Row]:
    sizes = QUICK if quick else FULL
    return [
        *await _on_redis(sizes, effort, progress),
        *await _on_sqlite(folder, sizes, effort, progress),
    ]


@dataclass(frozen=True)
class Filled:
    """An open service on a store full of widgets."""

    widgets: Widgets
    counters: int
    board: Board
    ranking: str
    entries: int
    visited: list[str]  # ids of counters
    busy: str  # a counter and a like button used today by as many visitors
    numbers: Iterator[int]


async def _on_redis(sizes: Sizes, effort: Effort, progress: Progress) -> list[Row]:
    bounds = ("--maxmemory", "4gb", "--maxmemory-policy", "noeviction")
    with servers.redis(*bounds) as small, servers.redis(*bounds) as large:
        async with connect(small.url) as one, connect(large.url) as other:
            rows = await _compare_sizes("widgets, redis", one, other, sizes, effort, progress)
        info = bytes(large.ask("INFO", "memory")).decode().splitlines()
    used = next(int(line.partition(":")[2]) for line in info if line.startswith("used_memory:"))
    return [*rows, Row("widgets, redis", f"memory of Redis, {sizes.many:,} counters", used / 2**20, "MB")]


async def _on_sqlite(folder: Path, sizes: Sizes, effort: Effort, progress: Progress) -> list[Row]:
    async with (
        connect(f"sqlite:///{folder / 'few.db'}") as one,
        connect(f"sqlite:///{folder / 'many.db'}") as other,
    ):
        rows = await _compare_sizes("widgets, sqlite", one, other, sizes, effort, progress)
        size_mb = (folder / "many.db").stat().st_size / 2**20
    return [*rows, Row("widgets, sqlite", f"size of the file, {sizes.many:,} counters", size_mb, "MB")]


async def _compare_sizes(
    subject: str, one: Store, other: Store, sizes: Sizes, effort: Effort, progress: Progress
) -> list[Row]:
    async with (
        quick_hashes(),
        _fill(subject, one, sizes.few, sizes.small, progress) as theirs,
        _fill(subject, other, sizes.many, sizes.large, progress) as ours,
    ):
        gc.collect()
        gc.freeze()  # keeps loaded objects out of the collections between turns
        pair = Pair(subject, ours, theirs, sizes, effort, progress)
        return [
            *await _counters(pair),
            *await _boards(pair),
            *await _rankings(pair),
            *await _visitors(pair),
        ]


@asynccontextmanager
async def _fill(subject: str, store: Store, counters: int, size: int, progress: Progress) -> AsyncIterator[Filled]:
    async with widget_keys.open_service(store) as widgets:
        with progress.activity(f"{subject} · loading {counters:,} counters", counters) as advance:
            await widget_keys.fill_counters(widgets, counters, advance)
        with progress.activity(f"{subject} · loading {size:,} messages, scores and visitors", 3 * size) as advance:
            board = await widget_keys.fill_board(widgets, size, advance)
            ranking = await widget_keys.fill_ranking(widgets, size, advance)
            busy = await widget_keys.fill_busy(widgets, size, advance)
        ids = [counter_id(n) for n in random.Random(9).sample(range(counters), min(SAMPLE, counters))]
        for at in range(0, len(ids), TASKS):  # the first visit of each reads its record
            await asyncio.gather(*(widgets.counters.increment(id, ME) for id in ids[at : at + TASKS]))
        yield Filled(widgets, counters, board, ranking, size, ids, busy, itertools.count(counters + size))


class Pair(NamedTuple):
    """Many (ours) and few (theirs)."""

    subject: str
    ours: Filled
    theirs: Filled
    sizes: Sizes
    effort: Effort
    progress: Progress

    async def match(self, name: str, here: Play, there: Play, target: Target | None = NO_SLOWER) -> list[Row]:
        """32 tasks on counters."""
        theirs = Contender(f"{self.theirs.counters:,} counters", there)
        match = Match(
            f"32 tasks, {name}, {self.ours.counters:,} counters",
            Contender("many", here),
            [Peer(theirs, "times the time", target)],
        )
        return await compare(self.subject, match, self.effort, self.progress)

    async def stages(self, stages: list[Stage], against: str, tidy: Tidy | None = None) -> list[Row]:
        return await compare_stages(self.subject, stages, against, self.effort, self.progress, tidy)


# --- counters ----------------------------------------------------------------------------------------------


async def _counters(pair: Pair) -> list[Row]:
    ours, theirs = pair.ours, pair.theirs
    rows: list[Row] = []
    for name, make in (
        ("increment, new visitors", _new_visit),
        ("increment, known visitors", _known_visit),
        ("get", _get),
        (f"batchGet of {IDS}", _batch_get),
    ):
        here, there = (together(make(one), itertools.cycle(one.visited)) for one in (ours, theirs))
        rows += await pair.match(name, here, there)
    # A process does not cache a million records: most of these visits read one first.
    here, there = (together(_new_visit(one), _all_ids(one)) for one in (ours, theirs))
    rows += await pair.match("increment, new visitors, any of all", here, there, None)
    our_made: list[int] = []
    their_made: list[int] = []
    stages = [
        Stage(
            f"32 tasks, {name}, {ours.counters:,} counters",
            make(ours, our_made),
            make(theirs, their_made),
            pair.sizes.created,
            NO_SLOWER,
        )
        for name, make in (("create", _create), ("delete", _delete))
    ]
    return rows + await pair.stages(stages, f"{theirs.counters:,} counters")


def _new_visit(filled: Filled) -> Operation:
    counters, new = filled.widgets.counters, visitors()

    async def visit(id: str) -> None:
        if (await counters.increment(id, next(new))).duplicate:
            raise RuntimeError("a new visitor was not counted")

    return visit


def _known_visit(filled: Filled) -> Operation:
    async def visit(id: str) -> None:
        await filled.widgets.counters.increment(id, ME)

    return visit


def _get(filled: Filled) -> Operation:
    async def get(id: str) -> None:
        await filled.widgets.counters.get(id, ME)

    return get


def _batch_get(filled: Filled) -> Operation:
    more = itertools.cycle(filled.visited)

    async def get(id: str) -> None:
        ids = list(itertools.islice(more, IDS))
        if 0 in (await filled.widgets.counters.batch_get(ids, visitor=ME)).values():
            raise RuntimeError("a visited counter has no visits")

    return get


def _all_ids(filled: Filled) -> Iterator[str]:
    chance = random.Random(11)
    while True:
        yield counter_id(chance.randrange(filled.counters))


def _create(filled: Filled, made: list[int]) -> Play:
    async def create(number: int) -> None:
        await filled.widgets.counters.create(page(number), TOKEN, visitor=ME)
        made.append(number)

    return _many(lambda operations: list(itertools.islice(filled.numbers, operations)), create)


def _delete(filled: Filled, made: list[int]) -> Play:
    async def delete(number: int) -> None:
        await filled.widgets.counters.delete(Owner(TOKEN, url=page(number)), visitor=ME)

    def all_made(operations: int) -> list[int]:
        numbers = made[:]
        made.clear()
        return numbers

    return _many(all_made, delete)


def _many(draw: Callable[[int], list[int]], operation: Callable[[int], Awaitable[None]]) -> Play:
    """Many concurrent tasks, each taking the next number until none is left."""

    async def task(numbers: Iterator[int]) -> None:
        for number in numbers:
            await operation(number)

    async def play(operations: int) -> None:
        numbers = iter(draw(operations))
        await asyncio.gather(*(task(numbers) for _ in range(TASKS)))

    return play


# --- boards, rankings and pages -----------------------------------------------------------------------------


async def _boards(pair: Pair) -> list[Row]:
    here, there, size = _BoardPlays(pair.ours), _BoardPlays(pair.theirs), pair.ours.board.size

    def stage(name: str, ours: Play, theirs: Play, operations: int = pair.sizes.changed) -> Stage:
        return Stage(f"1 task, board of {size:,}, {name}", ours, theirs, operations, NO_SLOWER)

    # Finding the oldest walks the list, an inherent cost of the structure.
    oldest = replace(stage("edit the oldest message", here.edit_oldest, there.edit_oldest, 2), target=None)
    stages = [
        stage("post", here.post, there.post),
        stage("get the first page", here.first_page, there.first_page),
        stage("get the last page", here.last_page, there.last_page),
        stage("edit a recent message", here.edit, there.edit),
        oldest,
        stage("delete a recent message", here.delete, there.delete),
    ]

    async def tidy() -> None:
        await here.refill()
        await there.refill()

    return await pair.stages(stages, f"{pair.theirs.board.size:,} messages", tidy)


class _BoardPlays:
    """The operations on one board in a round. It is full before and after."""

    def __init__(self, filled: Filled) -> None:
        self._widgets = filled.widgets
        self._boards = filled.widgets.boards
        self._board = filled.board
        self._visitors = visitors()
        self._posted: list[tuple[str, str]] = []

    async def post(self, operations: int) -> None:
        for number in range(operations):
            made = await self._boards.post(self._board.id, next(self._visitors), f"Message {number}, a new one.")
            self._posted.append((made.message_id, made.edit_token))

    async def first_page(self, operations: int) -> None:
        await self._pages(1, operations)

    async def last_page(self, operations: int) -> None:
        await self._pages(self._board.size // 10, operations)

    async def _pages(self, page: int, operations: int) -> None:
        for _ in range(operations):
            if len((await self._boards.get(self._board.id, page, visitor=ME)).messages) != 10:
                raise RuntimeError(f"page {page} is not full")

    async def edit(self, operations: int) -> None:
        for id, token in self._posted:
            await self._boards.edit(self._board.id, id, token, visitor=ME, message="Something else.")

    async def edit_oldest(self, operations: int) -> None:
        # The posts of this round have pushed out as many.
        oldest = self._board.message(self._board.size - len(self._posted) - 1).id
        for number in range(operations):
            await self._boards.edit(
                self._board.id, oldest, EDIT_TOKEN, visitor=ME, message=f"Something else: {number}."
            )

    async def delete(self, operations: int) -> None:
        for id, token in self._posted:
            await self._boards.remove(self._board.id, id, token, visitor=ME)
        self._posted.clear()

    async def refill(self) -> None:
        """Restore the oldest messages; not timed."""
        await widget_keys.refill(self._widgets, self._board)


async def _rankings(pair: Pair) -> list[Row]:
    ours, theirs = pair.ours, pair.theirs
    stages = [
        Stage(f"1 task, ranking of {ours.entries:,}, {name}", make(ours), make(theirs), pair.sizes.changed, NO_SLOWER)
        for name, make in (("submit", _submit), ("get", _best))
    ]
    return await pair.stages(stages, f"{theirs.entries:,} entries")


def _submit(filled: Filled) -> Play:
    """New names, each better than all before."""
    new = visitors()

    async def play(operations: int) -> None:
        for _ in range(operations):
            number = next(filled.numbers)
            name = f"name {number:,}"  # without five equal digits in a row, which count as spam
            sent = await filled.widgets.rankings.submit(filled.ranking, next(new), name, number, "1 s")
            if sent.rank != 1 or sent.total_entries != filled.entries:
                raise RuntimeError(f"the best score is not the first: {sent}")

    return play


def _best(filled: Filled) -> Play:
    async def play(operations: int) -> None:
        for _ in range(operations):
            await filled.widgets.rankings.get(filled.ranking, visitor=ME)

    return play


async def _visitors(pair: Pair) -> list[Row]:
    """One page with many visitors on one day. The few grow a little meanwhile."""
    ours, theirs = pair.ours, pair.theirs
    stages = [
        Stage(f"1 task, {name}, {ours.entries:,} visitors today", make(ours), make(theirs), VISITS, NO_SLOWER)
        for name, make in (("increment", _visit_busy), ("toggle", _toggle_busy))
    ]
    return await pair.stages(stages, f"{theirs.entries:,} visitors today")


def _visit_busy(filled: Filled) -> Play:
    new = visitors()

    async def play(operations: int) -> None:
        for _ in range(operations):
            await filled.widgets.counters.increment(filled.busy, next(new))

    return play


def _toggle_busy(filled: Filled) -> Play:
    new = visitors()

    async def play(operations: int) -> None:
        for _ in range(operations):
            await filled.widgets.likes.toggle(filled.busy, next(new))

    return play
