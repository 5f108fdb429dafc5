"""Backup and restore of a million keys of all kinds, from Redis into a file and into SQLite; every key is compared.

Backup and restore run as commands. The comparison reads both stores with plain commands.
"""

from __future__ import annotations

import asyncio
import json
import random
import sysconfig
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis as redis_py

from bench import on_doctor
from bench.measure import Advance, Progress, Row, Target
from keystead import connect
from keystead.stores import Command, Store
from tests import servers

KEYS, KEYS_QUICK = 1_000_000, 6_000
SAMPLE, SAMPLE_QUICK = 20_000, 2_000
BATCH = 1_000
DAY_MS = 86_400_000
MEMORY = Target("under", 200)
FASTER = Target("at least", 1)
READS: dict[bytes, tuple[Any, ...]] = {
    b"string": ("GET",),
    b"hash": ("HGETALL",),
    b"set": ("SMEMBERS",),
    b"zset": ("ZRANGE", 0, -1, "WITHSCORES"),
    b"list": ("LRANGE", 0, -1),
    b"stream": ("XRANGE", "-", "+"),
}


async def run(folder: Path, progress: Progress, *, quick: bool, keys: int | None = None) -> list[Row]:
    count = keys or (KEYS_QUICK if quick else KEYS)
    file, target = folder / "keys.backup", f"sqlite:///{folder}/restored.db"
    with servers.redis() as server:
        async with connect(server.url) as store:
            with progress.activity(f"backup · loading {count:,} keys", count) as advance:
                await fill(store, count, advance)
        with progress.activity("backup · one key at a time, then a backup, then a restore", 1):
            sample = min(count, SAMPLE_QUICK if quick else SAMPLE)
            naive_s = await asyncio.to_thread(_dump_keys, server.port, sample, folder / "dumped")
            saved = await _keystead("backup", str(file), "--store", server.url, "--json")
            restored = await _keystead("restore", str(file), "--store", target, "--yes", "--json")
        async with connect(server.url) as store, connect(target) as other:
            with progress.activity(f"backup · comparing all {count:,} keys", count) as advance:
                compared = await compare_all(store, other, advance)
    if (saved.said["keys"], restored.said["restored"], compared) != (count, count, count):
        raise RuntimeError(f"of {count:,} keys: {saved.said}, {restored.said}, {compared:,} compared")
    ours_s, theirs_s = saved.took_s / count, naive_s / sample
    return [
        Row("backup", "Redis into a file", theirs_s / ours_s, "times as fast", FASTER,
            "redis-py, DUMP of one key at a time", ours_s * 1e6, theirs_s * 1e6),
        Row("backup", f"{count:,} keys both ways, all equal", saved.took_s + restored.took_s, "s"),
        Row("backup", "memory of the backup", saved.memory_mb, "MB", MEMORY),
        Row("backup", "memory of the restore", restored.memory_mb, "MB", MEMORY),
        Row("backup", "time to save them", saved.took_s, "s"),
        Row("backup", "keys saved", count / saved.took_s, "a second"),
        Row("backup", "time to check the file and restore them into SQLite", restored.took_s, "s"),
        Row("backup", "keys checked and restored", count / restored.took_s, "a second"),
        Row("backup", "size of the file", saved.said["bytes"] / 1e6, "MB"),
    ]  # fmt: skip


# --- data --------------------------------------------------------------------------------------------------


def commands(first: int, end: int, now_ms: int) -> Iterator[Command]:
    """Keys of all kinds, 70 % of them strings; half of each kind expire at different times."""
    chance = random.Random(first)
    for number in range(first, end):
        key = f"app:{number % 7}:{number:08d}"
        match number % 20:
            case 0 | 1:
                yield ("HSET", key, "theme", "dark", "visits", number, "token", chance.randbytes(16).hex())
            case 2:
                yield ("SADD", key, *(f"session-{chance.randrange(10**9)}" for _ in range(5)))
            case 3:
                yield ("ZADD", key, *(part for place in range(5) for part in (chance.random() * 1e6, f"m{place}")))
            case 4:
                yield ("RPUSH", key, *(chance.randrange(10**6) for _ in range(5)))
            case 5:
                yield ("XADD", key, f"{now_ms + number}-{number}", "event", "login", "from", "192.0.2.1")
            case _:
                secret = chance.randbytes(24).hex()
                yield ("SET", key, f'{{"uid":"u{number}","device":"a browser on a laptop","token":"{secret}"}}')
        if number // 20 % 2:
            yield ("PEXPIREAT", key, now_ms + DAY_MS + chance.randrange(30 * DAY_MS))


async def fill(store: Store, count: int, advance: Advance) -> None:
    now_ms = time.time_ns() // 1_000_000
    for first in range(0, count, BATCH):
        end = min(first + BATCH, count)
        await store.run(list(commands(first, end, now_ms)))
        advance(end - first)


async def compare_all(store: Store, other: Store, advance: Advance) -> int:
    """Compare kind, value and deadline of all keys. Returns their number. Raises if one differs."""
    keys = sorted({key async for page in store.scan(page=BATCH) for key in page})
    there = {key async for page in other.scan(page=BATCH) for key in page}
    if there != set(keys):
        raise RuntimeError(f"{len(there):,} of {len(keys):,} keys were restored")
    for at in range(0, len(keys), BATCH):
        some = keys[at : at + BATCH]
        kinds = await store.run([("TYPE", key) for key in some])
        looks: list[Command] = [(name, key) for name in ("TYPE", "PEXPIRETIME") for key in some]
        for key, kind in zip(some, kinds, strict=True):
            name, *rest = READS[kind]
            looks.append((name, key, *rest))
        ours, theirs = await store.run(looks), await other.run(looks)
        if ours != theirs:
            wrong = next(place for place, reply in enumerate(ours) if reply != theirs[place])
            raise RuntimeError(f"{looks[wrong]} is {ours[wrong]!r} in Redis, and {theirs[wrong]!r} after the restore")
        advance(len(some))
    return len(keys)


# --- commands ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Done:
    said: dict[str, Any]
    took_s: float
    memory_mb: float


async def _keystead(*arguments: str) -> Done:
    """Run a command, and sample its memory."""
    command = Path(sysconfig.get_path("scripts")) / "keystead"
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(str(command), *arguments), cwd=on_doctor.ROOT, env=on_doctor.environment(),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    watching = asyncio.create_task(on_doctor.most_memory_mb(process.pid))
    out, error = await process.communicate()
    took_s = time.perf_counter() - began
    if process.returncode or error:
        raise RuntimeError(f"keystead {arguments[0]} exited with {process.returncode}: {error.decode()}")
    return Done(json.loads(out), took_s, await watching)


def _dump_keys(port: int, count: int, path: Path) -> float:
    """A short script as the alternative: DUMP and the deadline of one key at a time."""
    with redis_py.Redis(port=port) as client, path.open("wb") as file:
        began = time.perf_counter()
        for done, key in enumerate(client.scan_iter(count=500)):
            if done == count:
                break
            line = {"key": key.hex(), "dump": client.dump(key).hex(), "at_ms": client.pexpiretime(key)}
            file.write(json.dumps(line).encode() + b"\n")
        return time.perf_counter() - began
