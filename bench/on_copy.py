"""Copies of a million keys of all kinds, from Redis to PostgreSQL to SQLite to Redis, each killed and resumed.

The copies run as commands, which are killed with SIGKILL when half of the keys have arrived, and started again. At the
end the first and the last Redis are compared with plain commands.

Before that, the same keys are copied from Redis to SQLite and to Redis without a kill, for the rates, beside redis-py
with pipelines.
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

import redis as redis_py

from bench import on_doctor
from bench.measure import Progress, Row, Target
from bench.on_backup import compare_all, fill
from keystead import connect
from keystead.stores import Store
from keystead.stores.transfer.writer import AT_ONCE, BATCHES
from tests import servers

KEYS, KEYS_QUICK = 1_000_000, 8_000
MEMORY = Target("under", 200)
GROWTH = Target("under", 50)
SPEED = Target("at least", 10_000)
DIRECT_SPEED = Target("at least", 20_000)
PIPELINE = 1_000  # keys
SAMPLE_EVERY_S = 0.25


@dataclass(slots=True)
class Leg:
    """One copy, killed and resumed. `arrived` keys were at the target when it was killed."""

    name: str
    arrived: int = 0
    said: dict[str, Any] = field(default_factory=dict)
    first_s: float = 0.0  # until it was killed
    took_s: float = 0.0  # both runs
    early_mb: float = 0.0  # memory when a tenth had arrived
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
        with progress.activity("copy · Redis to SQLite and to Redis, beside redis-py", 1):
            direct = await _direct_rows(folder, first, count)
        legs = []
        for source, target in pairwise(stores):
            with progress.activity(f"copy · {source} to {target}, killed and resumed", 1):
                legs.append(await _leg(folder, f"{source} to {target}", stores[source], stores[target], count))
        async with connect(first.url) as store, connect(last.url) as other:
            await _remove_markers(other)
            with progress.activity(f"copy · comparing all {count:,} keys", count) as advance:
                compared = await compare_all(store, other, advance)
    if compared != count:
        raise RuntimeError(f"of {count:,} keys {compared:,} were copied")
    return [
        *direct,
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


# --- without a kill, beside redis-py ------------------------------------------------------------------------


async def _direct_rows(folder: Path, source: servers.Server, count: int) -> list[Row]:
    rows: list[Row] = []
    with servers.redis() as target:
        peer_s = await asyncio.to_thread(copy_by_pipelines, source.port, target.port, count)
        target.ask("FLUSHALL")
        for name, url in (("Redis to SQLite", f"sqlite:///{folder}/direct.db"), ("Redis to Redis", target.url)):
            process = await _start_copy(folder, source.url, url)
            out, error = await process.communicate()
            if process.returncode:
                raise RuntimeError(f"{name} exited with {process.returncode}: {error.decode()} {out.decode()}")
            result = json.loads(out)
            copy_s, all_s = result["copy_s"], result["copy_s"] + result["verify_s"]
            if result["written"] != count or result["verified"]["equal"] != count:
                raise RuntimeError(f"{name}: of {count:,} keys {result}")
            rows += [
                Row("copy", f"{name}, without a kill: keys copied", count / copy_s, "a second", DIRECT_SPEED),
                Row("copy", f"{name}, without a kill: keys copied and compared", count / all_s, "a second"),
            ]
        rows.append(
            Row("copy", "Redis to Redis, beside pipelines", peer_s / copy_s, "times as fast", None,
                "redis-py, pipelines of 1,000 keys", copy_s / count * 1e6, peer_s / count * 1e6)
        )  # fmt: skip
    return rows


def copy_by_pipelines(source_port: int, target_port: int, count: int) -> float:
    """A careful script as the alternative: for each page of a scan, one pipeline each for metadata, values and writes.

    It records no progress, has no guards, and compares nothing.
    """
    copied = 0
    with redis_py.Redis(port=source_port) as source, redis_py.Redis(port=target_port) as target:
        began = time.perf_counter()
        cursor = -1
        while cursor:
            cursor, keys = source.scan(max(cursor, 0), count=PIPELINE)
            reads = source.pipeline(transaction=False)
            for key in keys:
                reads.type(key)
                reads.pexpiretime(key)
            known = reads.execute()
            for key, kind in zip(keys, known[::2], strict=True):
                _read(reads, key, kind)
            values = reads.execute()
            writes = target.pipeline(transaction=False)
            for key, kind, at_ms, value in zip(keys, known[::2], known[1::2], values, strict=True):
                _write(writes, key, kind, value)
                if at_ms > 0:
                    writes.pexpireat(key, at_ms)
            writes.execute()
            copied += len(keys)
        took_s = time.perf_counter() - began
    if copied != count:
        raise RuntimeError(f"redis-py copied {copied:,} of {count:,} keys")
    return took_s


def _read(pipeline: Any, key: bytes, kind: bytes) -> None:
    match kind:
        case b"string":
            pipeline.get(key)
        case b"hash":
            pipeline.hgetall(key)
        case b"set":
            pipeline.smembers(key)
        case b"zset":
            pipeline.zrange(key, 0, -1, withscores=True)
        case b"list":
            pipeline.lrange(key, 0, -1)
        case _:
            pipeline.xrange(key)


def _write(pipeline: Any, key: bytes, kind: bytes, value: Any) -> None:
    match kind:
        case b"string":
            pipeline.set(key, value)
        case b"hash":
            pipeline.hset(key, mapping=value)
        case b"set":
            pipeline.sadd(key, *value)
        case b"zset":
            pipeline.zadd(key, dict(value))
        case b"list":
            pipeline.rpush(key, *value)
        case _:
            for name, fields in value:
                pipeline.xadd(key, fields, id=name)


async def _remove_markers(store: Store) -> None:
    """Delete the marker keys of copies, which are not compared."""
    async for page in store.scan("keystead:copy:*"):
        await store.run([("DEL", key) for key in page])


# --- killed and resumed ------------------------------------------------------------------------------------


async def _leg(folder: Path, name: str, source: str, target: str, count: int) -> Leg:
    leg = Leg(name)
    async with connect(f"{target}?timeout=60s") as store:
        began = time.perf_counter()
        process = await _start_copy(folder, source, target)
        await _until(store, process, count // 2, count // 10, leg)
        leg.first_s = time.perf_counter() - began
        process.kill()
        await process.communicate()
        leg.arrived = await _count_keys(store)
        if process.returncode != -9 or leg.arrived >= count:
            raise RuntimeError(f"{name} was not killed in time: {process.returncode}, {leg.arrived:,} keys")
    process = await _start_copy(folder, source, target)
    watching = asyncio.create_task(on_doctor.most_memory_mb(process.pid))
    out, error = await process.communicate()
    leg.took_s = time.perf_counter() - began
    leg.most_mb = max(leg.most_mb, await watching)
    if process.returncode or error:
        raise RuntimeError(f"{name} exited with {process.returncode}: {error.decode()} {out.decode()}")
    leg.said = json.loads(out)
    verified = leg.said["verified"]
    # Writes in flight at the kill may have arrived after the count; nothing is written twice.
    late = count - leg.arrived - leg.said["written"]
    if (leg.said["ours"], verified["equal"], verified["differences"]) != (
        count,
        count,
        0,
    ) or not 0 <= late <= BATCHES * AT_ONCE:
        raise RuntimeError(f"{name}: of {count:,} keys {leg.arrived:,} had arrived, and then {leg.said}")
    return leg


async def _until(store: Store, process: asyncio.subprocess.Process, enough: int, early: int, leg: Leg) -> None:
    """Wait until this many keys have arrived, and sample the memory of the process."""
    while process.returncode is None:
        arrived = await _count_keys(store)
        held = on_doctor.memory_mb(process.pid) or 0.0
        leg.most_mb = max(leg.most_mb, held)
        if arrived >= early and not leg.early_mb:
            leg.early_mb = held
        if arrived >= enough:
            return
        await asyncio.sleep(SAMPLE_EVERY_S if enough > KEYS_QUICK else 0.001)


async def _count_keys(store: Store) -> int:
    """The number of keys, without the marker of the copy."""
    [count] = await store.run([("DBSIZE",)])
    return max(int(count) - 1, 0)


async def _start_copy(folder: Path, source: str, target: str) -> asyncio.subprocess.Process:
    command = Path(sysconfig.get_path("scripts")) / "keystead"
    return await asyncio.create_subprocess_exec(
        *(str(command), "copy", source, target, "--yes", "--json"), cwd=folder, env=on_doctor.environment(),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
