"""`keystead infer` on 1,000,000 keys in Redis: memory, speed, and its effect on concurrent reads.

Of a sample and of every key; with few keys, with large values, and with keys that have no shape in common.
"""

from __future__ import annotations

import asyncio
import json
import random
import sysconfig
import time
from pathlib import Path

from bench.doctor_keys import GROUP, fill
from bench.measure import Progress, Row, Target
from bench.on_doctor import ROOT, environment, most_memory_mb, reading
from keystead import Store, connect
from tests import servers

KEYS, KEYS_QUICK = 1_000_000, 2_500
FEW = 10_000
LARGE, LARGE_QUICK = 600, 50  # keys with values of this many bytes
LARGE_BYTES = 500_000
MEMORY = Target("under", 200)
SPEED = Target("at least", 40_000)
SLOWER = Target("at most", 2)  # as of doctor
_LETTERS = "abcdefghijklmnopqrstuvwxyz:/-_."


async def run(folder: Path, progress: Progress, *, quick: bool, keys: int | None = None) -> list[Row]:
    count = keys or (KEYS_QUICK if quick else KEYS)
    with servers.redis() as server:
        async with connect(server.url) as store:
            with progress.activity("infer · few keys", 1):
                await fill(store, min(FEW, count), lambda _: None)
                _, few_mb = await _infer(server.url, folder / "drafted.py")
            with progress.activity(f"infer · {count:,} keys", 1):
                users = await fill(store, count, lambda _: None)
                [there] = await store.run([("DBSIZE",)])
        with progress.activity("infer · reading", 1):
            took_s, memory_mb = await _infer(server.url, folder / "drafted.py")
        with progress.activity("infer · beside reads", 1):
            async with reading(server.url, users * GROUP) as alone:
                await asyncio.sleep(0.5 if quick else 10)
            async with reading(server.url, users * GROUP) as beside:
                beside_s, _ = await _infer(server.url, folder / "drafted.py")
        with progress.activity("infer · reading every key", 1):
            all_s, all_mb = await _infer(server.url, folder / "drafted.py", "--all")
        async with connect(server.url) as store:
            with progress.activity("infer · large values", 1):
                large = LARGE_QUICK if quick else LARGE
                await _fill_large(store, large)
                _, large_mb = await _infer(server.url, folder / "drafted.py", "--all")
            with progress.activity("infer · keys without a common shape", 1):
                server.ask("FLUSHALL")
                await _fill_noise(store, count)
                noise_s, noise_mb = await _infer(server.url, folder / "drafted.py")
    return [
        Row("infer", f"memory, {min(FEW, count):,} keys", few_mb, "MB", MEMORY),
        Row("infer", f"memory, {there:,} keys", memory_mb, "MB", MEMORY),
        Row("infer", f"memory, {count:,} keys without a common shape", noise_mb, "MB", MEMORY),
        Row("infer", "keys without a common shape", count / noise_s, "a second"),
        Row("infer", "reads beside it, another process", beside.mean_us / alone.mean_us, "times the time",
            None if quick else SLOWER, "the same reads without it", beside.mean_us, alone.mean_us),
        Row("infer", "keys, reading a sample beside reads", there / beside_s, "a second"),
        Row("infer", "keys, reading a sample", there / took_s, "a second", None if quick else SPEED),
        Row("infer", f"memory, {there:,} keys, reading every key", all_mb, "MB", MEMORY),
        Row("infer", "keys, reading every key", there / all_s, "a second"),
        Row("infer", f"memory, reading every key, {large:,} of them large", large_mb, "MB", MEMORY),
    ]  # fmt: skip


async def _fill_large(store: Store, count: int) -> None:
    """JSON and binary values of half a megabyte."""
    body = "x" * LARGE_BYTES
    for at in range(count):
        value = json.dumps({"title": f"Title {at}", "body": body}) if at % 2 else b"\xff" + bytes(LARGE_BYTES)
        await store.run([("SET", f"{'article' if at % 2 else 'picture'}:{at}", value)])


async def _fill_noise(store: Store, count: int) -> None:
    """Random texts with all delimiters, and words that are all different."""
    draw = random.Random(7)
    for start in range(0, count, 1_000):
        names = ("".join(draw.choice(_LETTERS) for _ in range(draw.randint(8, 30))) for _ in range(1_000))
        await store.run([("SET", f"{name}{start + at}" if at % 2 else name, at) for at, name in enumerate(names)])


async def _infer(url: str, path: Path, *options: str) -> tuple[float, float]:
    """Run the command. Returns how long it took, with its start, and its peak memory."""
    path.unlink(missing_ok=True)  # noqa: ASYNC240 - nothing else runs
    command = Path(sysconfig.get_path("scripts")) / "keystead"
    began = time.perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(str(command), "infer", url, "--wait", "0s", "--output", str(path), *options),
        cwd=ROOT, env=environment(), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    watching = asyncio.create_task(most_memory_mb(process.pid))
    _, error = await process.communicate()
    took_s = time.perf_counter() - began
    if process.returncode:
        raise RuntimeError(f"infer exited with {process.returncode}: {error.decode()}")
    return took_s, await watching
