"""A million keys of all kinds from Redis to PostgreSQL, on to SQLite and on to Redis, each copy killed and resumed.

The copies are the command itself, a process of its own, which is killed with SIGKILL when half of the keys have
arrived, and started again. What is compared in the end is read with plain commands from the first Redis and the last
one, past the code that is measured.
"""

from __future__ import annotations

import asyncio
import json
import sysconfig
import time
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench import on_doctor
from bench.measure import Progress, Row, Target
from bench.on_backup import compare_all, fill
from keystead import connect
from keystead.stores import Store
from keystead.testing import servers

KEYS, KEYS_QUICK = 1_000_000, 4_000
MEMORY = Target("under", 200)
GROWTH = Target("under", 50)
SPEED = Target("at least", 10_000)
LOOK_EVERY_S = 0.25


@dataclass(slots=True)
class Leg:
    """One copy: killed on its way, and resumed. `arrived` keys were at the target when it was killed."""

    name: str
    arrived: int = 0
    said: dict[str, Any] = field(default_factory=dict)
    first_s: float = 0.0  # until it was killed
    took_s: float = 0.0  # both runs
    early_mb: float = 0.0  # what it held when a tenth was there
    most_mb: float = 0.0


async def run(folder: Path, progress: Progress, *, quick: bool, keys: int | None = None) -> list[Row]:
    count = keys or (KEYS_QUICK if quick else KEYS)
    with servers.redis() as first, servers.postgres() as postgres, servers.redis() as last:
        stores = {
            "Redis": first.url,
            "PostgreSQL": postgres.url,
            "SQLite": f"sqlite:///{folder}/copied.db",
            "Redis again": last.url,
        }
        async with connect(first.url) as store:
            with progress.activity(f"copy · loading {count:,} keys", count) as advance:
                await fill(store, count, advance)
        legs = []
        for source, target in pairwise(stores):
            with progress.activity(f"copy · {source} to {target}, killed and resumed", 1):
                legs.append(await _leg(folder, f"{source} to {target}", stores[source], stores[target], count))
        async with connect(first.url) as store, connect(last.url) as other:
            with progress.activity(f"copy · comparing all {count:,} keys", count) as advance:
                compared = await compare_all(store, other, advance)
    if compared != count:
        raise RuntimeError(f"of {count:,} keys {compared:,} came back")
    return [
        Row("copy", f"{count:,} keys through three copies, all equal", sum(leg.took_s for leg in legs), "s"),
        *(row for leg in legs for row in _rows(leg)),
    ]


def _rows(leg: Leg) -> list[Row]:
    killed = f"killed when {leg.arrived:,} keys were there, then {leg.said['written']:,} more"
    return [
        Row("copy", f"{leg.name}: keys copied", leg.arrived / leg.first_s, "a second", SPEED),
        Row("copy", f"{leg.name}: memory", leg.most_mb, "MB", MEMORY),
        Row("copy", f"{leg.name}: of it more than when a tenth was there", leg.most_mb - leg.early_mb, "MB", GROWTH),
        Row("copy", f"{leg.name}: {killed}, all compared", leg.took_s, "s"),
    ]


async def _leg(folder: Path, name: str, source: str, target: str, count: int) -> Leg:
    leg = Leg(name)
    async with connect(f"{target}?timeout=60s") as store:
        began = time.perf_counter()
        process = await _started(folder, source, target)
        await _until(store, process, count // 2, count // 10, leg)
        leg.first_s = time.perf_counter() - began
        process.kill()
        await process.communicate()
        leg.arrived = await _held(store)
        if process.returncode != -9 or leg.arrived >= count:
            raise RuntimeError(f"{name} was not killed on its way: {process.returncode}, {leg.arrived:,} keys")
    process = await _started(folder, source, target)
    watching = asyncio.create_task(on_doctor.most_memory_mb(process.pid))
    out, error = await process.communicate()
    leg.took_s = time.perf_counter() - began
    leg.most_mb = max(leg.most_mb, await watching)
    if process.returncode or error:
        raise RuntimeError(f"{name} left with {process.returncode}: {error.decode()} {out.decode()}")
    leg.said = json.loads(out)
    verified = leg.said["verified"]
    # What was on its way when it was killed may have arrived after it was counted; nothing is written twice.
    late = count - leg.arrived - leg.said["written"]
    if (leg.said["ours"], verified["equal"], verified["differences"]) != (count, count, 0) or not 0 <= late <= 2_000:
        raise RuntimeError(f"{name}: of {count:,} keys {leg.arrived:,} had arrived, and then {leg.said}")
    return leg


async def _until(store: Store, process: asyncio.subprocess.Process, enough: int, early: int, leg: Leg) -> None:
    """Wait until this many keys have arrived, and look at what the process holds."""
    while process.returncode is None:
        arrived = await _held(store)
        held = on_doctor.memory_mb(process.pid) or 0.0
        leg.most_mb = max(leg.most_mb, held)
        if arrived >= early and not leg.early_mb:
            leg.early_mb = held
        if arrived >= enough:
            return
        await asyncio.sleep(LOOK_EVERY_S if enough > KEYS_QUICK else 0.001)


async def _held(store: Store) -> int:
    """How many keys there are, without the mark of the copy."""
    [count] = await store.run([("DBSIZE",)])
    return max(int(count) - 1, 0)


async def _started(folder: Path, source: str, target: str) -> asyncio.subprocess.Process:
    command = Path(sysconfig.get_path("scripts")) / "keystead"
    return await asyncio.create_subprocess_exec(
        *(str(command), "copy", source, target, "--yes", "--json"), cwd=folder, env=on_doctor.environment(),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
