"""The longest call while a million expired keys are removed.

The longest of a hundred thousand calls may be a pause of the machine. For comparison, the same calls are timed before
anything expires, bare syncs on the same disk before and after, and the delays of the event loop and of an idle process
all along.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path

from bench.measure import Progress, Row, Target, random_keys, values
from bench.on_sqlite import load
from keystead.stores import Store
from keystead.stores.sqlite import SqliteStore
from keystead.stores.sqlite.sqlite_store import wall_ms

KEYS, KEYS_QUICK = 1_000_000, 3_000
SUBJECT = "sweep"
HOUR_MS = 3_600_000
LONGEST = Target("under", 50)
GIVE_UP_S = 300

# A separate process, independent of our event loop and GIL. It ends when its input ends.
IDLE = """
import select, sys, time
longest = 0.0
while True:
    began = time.perf_counter()
    ended, _, _ = select.select([sys.stdin], [], [], 0.002)
    if ended:
        break
    longest = max(longest, time.perf_counter() - began - 0.002)
print(longest)
"""


class JumpingClock:
    """The wall clock, which can be set ahead."""

    def __init__(self) -> None:
        self.ahead_ms = 0

    def __call__(self) -> int:
        return wall_ms() + self.ahead_ms


@dataclass(slots=True)
class Longest:
    """The longest calls in seconds, and the number of calls."""

    get: float = 0.0
    put: float = 0.0
    lag: float = 0.0
    gets: int = 0
    puts: int = 0


async def run(folder: Path, progress: Progress, *, quick: bool) -> list[Row]:
    keys = KEYS_QUICK if quick else KEYS
    path = folder / "sweep.db"
    clock = JumpingClock()
    async with SqliteStore(str(path), clock=clock) as store:
        with progress.activity(f"{SUBJECT} · loading {keys:,} keys", keys) as advance:
            await load(store, range(keys), advance, "PXAT", clock() + HOUR_MS // 2)
        with progress.activity(f"{SUBJECT} · the same calls with nothing to sweep", 1):
            async with foreground(store) as before:
                await asyncio.sleep(0.2 if quick else 10)
        bare_s = longest_sync(folder / "bare", 0.2 if quick else 5)
        with progress.activity(f"{SUBJECT} · sweeping {keys:,} keys", 1):
            async with idle_process() as idle, foreground(store) as during:
                began = time.perf_counter()
                clock.ahead_ms = HOUR_MS
                await _until_swept(path, clock)
                took_s = time.perf_counter() - began
        bare_s = max(bare_s, longest_sync(folder / "bare", 0.2 if quick else 5))
    note = ""
    if max(bare_s, idle.longest_s) > LONGEST.limit / 1000:
        note = (
            f"a bare fsync took up to {bare_s * 1000:.0f} ms, and an idle process waited up to"
            f" {idle.longest_s * 1000:.0f} ms: the machine was too busy to judge the longest calls"
        )
    return [
        Row(SUBJECT, "longest GET during it", during.get * 1000, "ms", LONGEST),
        Row(SUBJECT, "longest SET during it", during.put * 1000, "ms", LONGEST, note=note),
        Row(SUBJECT, f"time to remove {keys:,} keys", took_s, "s"),
        Row(SUBJECT, "GETs a second during it", during.gets / took_s, "a second"),
        Row(SUBJECT, "SETs a second during it", during.puts / took_s, "a second"),
        Row(SUBJECT, "event loop's longest delay during it", during.lag * 1000, "ms"),
        Row(SUBJECT, "an idle process's longest delay during it", idle.longest_s * 1000, "ms"),
        Row(SUBJECT, "longest GET before it", before.get * 1000, "ms"),
        Row(SUBJECT, "longest SET before it", before.put * 1000, "ms"),
        Row(SUBJECT, "event loop's longest delay before it", before.lag * 1000, "ms"),
        Row(SUBJECT, "longest bare fsync", bare_s * 1000, "ms"),
    ]


@asynccontextmanager
async def foreground(store: Store) -> AsyncIterator[Longest]:
    """Read and write while the block runs, and record the longest calls."""
    longest = Longest()
    fresh = values()
    keys = random_keys(10_000)

    async def get() -> None:
        while True:
            began = time.perf_counter()
            await store.run([("GET", next(keys))])
            longest.get = max(longest.get, time.perf_counter() - began)
            longest.gets += 1
            await asyncio.sleep(0)  # a read may finish without yielding

    async def put() -> None:
        while True:
            began = time.perf_counter()
            await store.run([("SET", f"fresh:{next(keys)}", next(fresh))])
            longest.put = max(longest.put, time.perf_counter() - began)
            longest.puts += 1

    async def lag() -> None:
        while True:
            began = time.perf_counter()
            await asyncio.sleep(0.002)
            longest.lag = max(longest.lag, time.perf_counter() - began - 0.002)

    tasks = [asyncio.create_task(work()) for work in (get, put, lag)]
    try:
        yield longest
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(slots=True)
class Idle:
    longest_s: float = 0.0  # set when the block ends


@asynccontextmanager
async def idle_process() -> AsyncIterator[Idle]:
    """The longest delay of an idle process while the block runs."""
    idle = Idle()
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", IDLE, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    try:
        yield idle
    finally:
        said, _ = await process.communicate(b"")  # closes its input
        idle.longest_s = float(said)


async def _until_swept(path: Path, clock: JumpingClock) -> None:
    """Wait until no expired row is left in the file; the store already hides them."""
    end = time.monotonic() + GIVE_UP_S
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as file:
        while file.execute("SELECT 1 FROM keys WHERE expires_at <= ? LIMIT 1", (clock(),)).fetchone():
            if time.monotonic() > end:
                raise RuntimeError(f"the sweep did not end within {GIVE_UP_S} s")
            await asyncio.sleep(0.05)


def longest_sync(path: Path, duration_s: float) -> float:
    """The longest of many syncs of 4 KiB, in seconds."""
    longest = 0.0
    file = os.open(path, os.O_CREAT | os.O_RDWR)
    try:
        end = time.monotonic() + duration_s
        for place in _pages():
            if time.monotonic() > end:
                break
            os.pwrite(file, os.urandom(4096), place)
            began = time.perf_counter()
            os.fsync(file)
            longest = max(longest, time.perf_counter() - began)
    finally:
        os.close(file)
    return longest


def _pages() -> Iterator[int]:
    while True:
        yield from range(0, 256 * 4096, 4096)
