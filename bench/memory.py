"""Memory of `keystead serve` with its default settings: the supervisor and one worker with all kits, embedded store.

RSS counts shared libraries in each process, PSS divides them among the processes that use them.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sysconfig
import urllib.request
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from bench import serving
from bench.measure import Progress, Row, Target

MOST_MB = Target("at most", 130)
REQUESTS, REQUESTS_QUICK = 5_000, 100
PAGES = ("/", "/reference", "/keys", "/openapi.json")


async def run(folder: Path, progress: Progress, *, quick: bool) -> list[Row]:
    requests = REQUESTS_QUICK if quick else REQUESTS
    _, rest = serving.cores()
    rows: list[Row] = []
    with progress.activity("web · memory", 3) as advance:
        async with _server(folder) as (pid, port), serving.client(rest) as client:
            rows += _measure(pid, "idle")
            advance()
            await serving.send_requests(client, serving.Load(port, ["GET /healthz"], "ok"), requests)
            rows += _measure(pid, f"after {requests:,} requests")
            advance()
            for path in PAGES:
                await asyncio.to_thread(_get, f"http://127.0.0.1:{port}{path}")
            rows += _measure(pid, "after all pages and the OpenAPI document")
            advance()
    return rows


@asynccontextmanager
async def _server(folder: Path) -> AsyncIterator[tuple[int, int]]:
    """`keystead serve` in an empty folder. Yields its process id and its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    own = {name: value for name, value in os.environ.items() if not name.startswith("KEYSTEAD_")}
    process = await asyncio.create_subprocess_exec(
        *(str(Path(sysconfig.get_path("scripts")) / "keystead"), "serve", "--port", str(port)),
        cwd=folder,
        env={**own, "KEYSTEAD_LOG_LEVEL": "error"},
        stdin=DEVNULL,
        stdout=PIPE,
    )
    assert process.stdout is not None
    try:
        while b"is running" not in (line := await process.stdout.readline()):
            if not line:
                raise RuntimeError("keystead serve did not start")
        yield process.pid, port
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def _get(url: str) -> None:
    with urllib.request.urlopen(url, timeout=30) as response:
        response.read()


def _measure(pid: int, name: str) -> list[Row]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    found = {one: _megabytes(one) for one in (str(pid), *children)}
    rss, pss = (sum(one[kind] for one in found.values()) for kind in ("Rss:", "Pss:"))
    parent = found[str(pid)]["Rss:"]
    return [
        Row("web, memory", f"{name}: RSS", rss, "MB", MOST_MB, note=f"the supervisor has {parent:.0f} MB"),
        Row("web, memory", f"{name}: PSS", pss, "MB", MOST_MB),
    ]  # fmt: skip


def _megabytes(pid: str) -> dict[str, float]:
    lines = [line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()]
    return {line[0]: int(line[1]) / 1024 for line in lines if line[0] in ("Rss:", "Pss:")}
