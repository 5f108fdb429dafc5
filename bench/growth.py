"""The cost of a hundred times as many keys on the embedded store: GET, SET and memory."""

from __future__ import annotations

from pathlib import Path

from bench.measure import (
    TASKS,
    Contender,
    Effort,
    Match,
    Operation,
    Peer,
    Progress,
    Row,
    Target,
    alone,
    compare,
    random_keys,
    together,
    values,
)
from bench.on_sqlite import load
from keystead.stores import Store
from keystead.stores.sqlite import SqliteStore

FEW, MANY = 10_000, 1_000_000
FEW_QUICK, MANY_QUICK = 500, 5_000
SUBJECT = "growth"


async def run(folder: Path, effort: Effort, progress: Progress, *, quick: bool) -> list[Row]:
    few, many = (FEW_QUICK, MANY_QUICK) if quick else (FEW, MANY)
    async with SqliteStore(str(folder / "few.db")) as small:
        await _fill(small, few, progress)
        await together(_get(small), random_keys(few))(TASKS * 100)
        before_mb = own_memory_mb()
        async with SqliteStore(str(folder / "many.db")) as large:
            await _fill(large, many, progress)
            rows: list[Row] = []
            for match in _matches(small, few, large, many):
                rows += await compare(SUBJECT, match, effort, progress)
            grown_mb = own_memory_mb() - before_mb
    return [
        *rows,
        Row(SUBJECT, f"memory of the process, {few:,} keys", before_mb, "MB"),
        Row(SUBJECT, f"memory added by {many:,} keys", grown_mb, "MB", Target("under", 100)),
    ]


async def _fill(store: Store, keys: int, progress: Progress) -> None:
    with progress.activity(f"{SUBJECT} · loading {keys:,} keys", keys) as advance:
        await load(store, range(keys), advance)


def _matches(small: Store, few: int, large: Store, many: int) -> list[Match]:
    def match(name: str, ours: Contender, theirs: Contender) -> Match:
        return Match(name, ours, [Peer(theirs, "times the time", Target("at most", 1.5))])

    return [
        match(
            f"1 task, GET, {many:,} keys",
            Contender("many", alone(_get(large), random_keys(many))),
            Contender(f"{few:,} keys", alone(_get(small), random_keys(few))),
        ),
        match(
            f"1 task, SET, {many:,} keys",
            Contender("many", alone(_put(large), random_keys(many))),
            Contender(f"{few:,} keys", alone(_put(small), random_keys(few))),
        ),
        match(
            f"32 tasks, SET, {many:,} keys",
            Contender("many", together(_put(large), random_keys(many))),
            Contender(f"{few:,} keys", together(_put(small), random_keys(few))),
        ),
    ]


def _get(store: Store) -> Operation:
    async def get(name: str) -> None:
        await store.run([("GET", name)])

    return get


def _put(store: Store) -> Operation:
    fresh = values()

    async def put(name: str) -> None:
        await store.run([("SET", name, next(fresh))])

    return put


def own_memory_mb() -> float:
    """The anonymous memory of this process, without the page cache. Linux only."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, amount = line.partition(":")
        if name == "RssAnon":
            return int(amount.split()[0]) / 1024
    raise RuntimeError("/proc/self/status has no RssAnon")
