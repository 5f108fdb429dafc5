"""`keystead infer` on 1,000,000 keys in Redis: memory and speed, of a sample or every key, and with large values."""

from __future__ import annotations

import asyncio
import json
import sysconfig
import time
from pathlib import Path

from bench.doctor_keys import fill
from bench.measure import Progress, Row, Target
from bench.on_doctor import ROOT, environment, most_memory_mb
from keystead import Store, connect
from tests import servers

KEYS, KEYS_QUICK = 1_000_000, 2_500
LARGE, LARGE_QUICK = 600, 50  # keys with values of this many bytes
LARGE_BYTES = 500_000
MEMORY = Target("under", 200)
SPEED = Target("at least", 40_000)


async def run(folder: Path, progress: Progress, *, quick: bool, keys: int | None = None) -> list[Row]:
    count = keys or (KEYS_QUICK if quick else KEYS)
    with servers.redis() as server:
        async with connect(server.url) as store:
            with progress.activity(f"infer · {count:,} keys", 1):
                await fill(store, count, lambda _: None)
                [there] = await store.run([("DBSIZE",)])
        with progress.activity("infer · reading", 1):
            took_s, memory_mb = await _infer(server.url, folder / "drafted.py")
        with progress.activity("infer · reading every key", 1):
            all_s, all_mb = await _infer(server.url, folder / "drafted.py", "--all")
        async with connect(server.url) as store:
            with progress.activity("infer · large values", 1):
                large = LARGE_QUICK if quick else LARGE
                await _fill_large(store, large)
                _, large_mb = await _infer(server.url, folder / "drafted.py", "--all")
    return [
        Row("infer", f"memory, {there:,} keys", memory_mb, "MB", MEMORY),
        Row("infer", "keys, reading a sample", there / took_s, "a second", None if quick else SPEED),
        Row("infer", f"memory, {there:,} keys, reading every key", all_mb, "MB", MEMORY),
        Row("infer", "keys, reading every key", there / all_s, "a second"),
        Row("infer", f"memory, reading every key, {large:,} of them large", large_mb, "MB", MEMORY),
    ]


async def _fill_large(store: Store, count: int) -> None:
    """JSON and binary values of half a megabyte."""
    body = "x" * LARGE_BYTES
    for at in range(count):
        value = json.dumps({"title": f"Title {at}", "body": body}) if at % 2 else b"\xff" + bytes(LARGE_BYTES)
        await store.run([("SET", f"{'article' if at % 2 else 'picture'}:{at}", value)])


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
