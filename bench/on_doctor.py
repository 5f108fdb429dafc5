"""The doctor on 1,000,000 keys: memory, speed, and its effect on concurrent reads, on the embedded store and on Redis.

The doctor runs as a command. Reads are timed in another process, with and without the doctor, and in one process where
they share its event loop. On Redis the doctor also runs alone, followed by the same reads with plain redis-py.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import sys
import sysconfig
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.doctor_keys import BenchKeys, fill, plant, session_key
from bench.measure import Progress, Row, Target
from keystead import connect
from keystead.schema.doctor import examine
from keystead.stores import Store
from tests import servers

KEYS, KEYS_QUICK = 1_000_000, 2_500
OF_EACH = 100
OF_EACH_QUICK = 5
MEMORY = Target("under", 200)
SLOWER = Target("at most", 2)
SPEED = Target("at least", 40_000)
SAMPLE_EVERY_S = 0.02
ROOT = Path(__file__).parents[1]


async def run(folder: Path, progress: Progress, *, quick: bool, keys: int | None = None) -> list[Row]:
    count = keys or (KEYS_QUICK if quick else KEYS)
    rows = await _on("doctor, sqlite", f"sqlite:///{folder}/doctor.db", count, progress, quick)
    with servers.redis() as server:
        rows += await _on("doctor, redis", server.url, count, progress, quick)
        with progress.activity("doctor, redis · alone, and redis-py reading the same", 1):
            rows += await _alone("doctor, redis", server.url)
    return rows


async def _alone(subject: str, url: str) -> list[Row]:
    """The doctor alone, and the same reads with redis-py."""
    used_s = [_cpu_of_children_s()]
    ours = await _doctor(url)
    used_s.append(_cpu_of_children_s())
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.plain_reads", url), cwd=ROOT, env=environment(), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    theirs_s = time.perf_counter() - began
    used_s.append(_cpu_of_children_s())
    keys = int(out)
    our_cpu_us, their_cpu_us = ((after - before) / keys * 1e6 for before, after in pairwise(used_s))
    ours_us, theirs_us = ours.took_s / keys * 1e6, theirs_s / keys * 1e6
    return [
        Row(subject, "keys examined with nothing beside it", keys / ours.took_s, "a second", SPEED,
            note=f"{our_cpu_us:.1f} µs of CPU a key, redis-py {their_cpu_us:.1f} µs, both without that of the server"),
        Row(subject, "time to examine a key", ours_us / theirs_us, "times the time", None,
            "redis-py: SCAN, TYPE, PTTL and the values, by pipelines", ours_us, theirs_us),
    ]  # fmt: skip


def _cpu_of_children_s() -> float:
    """The CPU time of all child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


async def _on(subject: str, url: str, keys: int, progress: Progress, quick: bool) -> list[Row]:
    async with connect(url) as store:
        with progress.activity(f"{subject} · loading {keys:,} keys", keys) as advance:
            users = await fill(store, keys, advance)
        planted = await plant(store, users, OF_EACH_QUICK if quick else OF_EACH)
        there = (await store.run([("DBSIZE",)]))[0]
    quiet_s = 0.5 if quick else 10
    with progress.activity(f"{subject} · reads beside nothing, examining, repairing, examining again", 1):
        before = await _read_alone(url, users * 20, quiet_s)
        async with reading(url, users * 20) as beside:
            found = await _doctor(url)
        after = await _read_alone(url, users * 20, quiet_s)
        async with reading(url, users * 20) as beside_fix:
            fixed = await _doctor(url, "--fix", "--set-aside-unknown", "--yes")
        again = await _doctor(url)
    _check(found, planted, "count")
    _check(fixed, planted, "fixed")
    if left := {code: one["count"] for code, one in again.report["codes"].items()}:
        raise RuntimeError(f"{subject}: after --fix there is still {left}")
    async with connect(url) as store:
        with progress.activity(f"{subject} · reads in the same process", 1):
            shared = await _in_one_process(store, users * 20, rounds=2 if quick else 10, turn_s=0.1 if quick else 1.5)
    alone_us = (before.mean_us + after.mean_us) / 2
    return [
        Row(subject, f"memory of the doctor, {there:,} keys", max(found.memory_mb, fixed.memory_mb), "MB", MEMORY),
        Row(subject, "reads beside it, another process", beside.mean_us / alone_us, "times the time", SLOWER,
            "the same reads without it", beside.mean_us, alone_us),
        Row(subject, "reads beside --fix, another process", beside_fix.mean_us / alone_us, "times the time", SLOWER,
            "the same reads without it", beside_fix.mean_us, alone_us),
        Row(subject, "reads beside it, same process", shared.ratio, "times the time", SLOWER,
            "the same reads without it", shared.with_us, shared.without_us),
        Row(subject, "time to examine them", found.took_s, "s"),
        Row(subject, "keys examined beside reads", there / found.took_s, "a second"),
        Row(subject, f"time to examine and repair {sum(planted.values()):,} defects", fixed.took_s, "s"),
        Row(subject, "p99 of reads without it", (before.p99_us + after.p99_us) / 2000, "ms"),
        Row(subject, "p99 of reads beside it", beside.p99_us / 1000, "ms"),
        Row(subject, "median of reads without it", (before.median_us + after.median_us) / 2000, "ms"),
        Row(subject, "median of reads beside it", beside.median_us / 1000, "ms"),
    ]  # fmt: skip


# --- the doctor --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Examined:
    report: dict[str, Any]
    took_s: float
    memory_mb: float


async def _doctor(url: str, *options: str) -> Examined:
    """Run the command, and sample its memory."""
    command = Path(sysconfig.get_path("scripts")) / "keystead"
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(str(command), "doctor", "bench.doctor_keys:BenchKeys", "--store", url, "--json", "--examples", "1", *options),
        cwd=ROOT, env=environment(), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    watching = asyncio.create_task(most_memory_mb(process.pid))
    out, error = await process.communicate()
    took_s = time.perf_counter() - began
    if process.returncode not in (0, 1) or error:
        raise RuntimeError(f"the doctor exited with {process.returncode}: {error.decode()}")
    return Examined(json.loads(out), took_s, await watching)


async def most_memory_mb(pid: int) -> float:
    """The peak memory of a process, until it ends."""
    most = 0.0
    while (held := memory_mb(pid)) is not None:
        most = max(most, held)
        await asyncio.sleep(SAMPLE_EVERY_S)
    return most


def memory_mb(pid: int) -> float | None:
    """The anonymous memory of a process, without the page cache; None if it has ended. Linux only."""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return None
    held = [line.split()[1] for line in status.splitlines() if line.startswith("RssAnon")]
    return int(held[0]) / 1024 if held else None


def _check(examined: Examined, expected: dict[str, int], what: str) -> None:
    found = {code: one[what] for code, one in examined.report["codes"].items() if one[what]}
    if found != expected:
        raise RuntimeError(f"the doctor reports {found} instead of {expected}")


# --- reads beside it ---------------------------------------------------------------------------------------


@dataclass(slots=True)
class Reads:
    """The durations of reads in another process; set when the block ends."""

    mean_us: float = 0.0
    median_us: float = 0.0
    p99_us: float = 0.0


@asynccontextmanager
async def reading(url: str, keys: int) -> AsyncIterator[Reads]:
    reads = Reads()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.reader", url, str(keys)),
        cwd=ROOT, env=environment(), stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    assert process.stdout is not None
    try:
        await process.stdout.readline()  # it is ready
        yield reads
    finally:
        said, _ = await process.communicate(b"")  # closes its input
        result = json.loads(said)
        reads.mean_us, reads.median_us, reads.p99_us = result["mean_us"], result["median_us"], result["p99_us"]


async def _read_alone(url: str, keys: int, seconds: float) -> Reads:
    async with reading(url, keys) as reads:
        await asyncio.sleep(seconds)
    return reads


@dataclass(frozen=True, slots=True)
class Shared:
    ratio: float
    with_us: float
    without_us: float


async def _in_one_process(store: Store, keys: int, rounds: int, turn_s: float) -> Shared:
    """Reads one after the other, in turns with and without a doctor in the same event loop."""
    names = _names(keys)
    without, beside = [], []
    for _ in range(rounds):
        without.append(await _mean_s(store, names, turn_s))
        stopped = asyncio.create_task(_forever(store))
        await asyncio.sleep(0.05)
        beside.append(await _mean_s(store, names, turn_s))
        stopped.cancel()
        await asyncio.gather(stopped, return_exceptions=True)
    ratios = [a / b for a, b in zip(beside, without, strict=True)]
    return Shared(statistics.median(ratios), statistics.median(beside) * 1e6, statistics.median(without) * 1e6)


async def _forever(store: Store) -> None:
    while True:
        await examine([BenchKeys(store)])


async def _mean_s(store: Store, name: Callable[[], str], seconds: float) -> float:
    ends = time.perf_counter() + seconds
    took, reads = 0.0, 0
    while (began := time.perf_counter()) < ends:
        await store.run([("GET", name())])
        took += time.perf_counter() - began
        reads += 1
    return took / reads


def _names(keys: int) -> Callable[[], str]:
    number = 0

    def name() -> str:
        nonlocal number
        number = (number + 7_919) % keys
        return session_key(number)

    return name


def environment() -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("KEYSTEAD_")}
    return {**own, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
