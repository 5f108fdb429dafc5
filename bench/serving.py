"""Applications under Granian (or uvicorn) with one worker each, and the load generator.

With two cores, the servers have one, and the client and everything else the other.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
import sysconfig
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from bench.measure import Advance

ROOT = Path(__file__).parents[1]
CONNECTIONS = 64
TURN_S, TURN_S_QUICK = 1.0, 0.05


class Load(NamedTuple):
    """The requests for a server: see `bench.load`."""

    port: int
    asks: Sequence[str]
    holds: str


def cores() -> tuple[set[int], set[int]]:
    """The core of the servers, and those of everything else; the same if there is only one."""
    allowed = sorted(os.sched_getaffinity(0))
    return {allowed[0]}, set(allowed[1:] or allowed)


@asynccontextmanager
async def serve_app(
    factory: str,
    environment: Mapping[str, str],
    on: set[int],
    server: Literal["granian", "uvicorn"] = "granian",
    loop: Literal["auto", "asyncio", "uvloop"] = "auto",
) -> AsyncIterator[int]:
    """Serve the application of a factory such as `bench.session_apps:make`. Yields its port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        *(str(Path(sysconfig.get_path("scripts")) / server), "--factory", "--workers", "1", "--no-access-log"),
        *(("--interface", "asgi") if server == "granian" else ()),
        *("--loop", loop, "--log-level", "error", "--host", "127.0.0.1", "--port", str(port), factory),
        cwd=ROOT,
        env={**os.environ, **environment},
    )
    os.sched_setaffinity(process.pid, on)  # before it starts its worker, which inherits it
    try:
        deadline = time.monotonic() + 30
        while not _listens(port):
            if process.returncode is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{factory} did not start with {sorted(environment.values())}")
            await asyncio.sleep(0.05)
        yield port
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@asynccontextmanager
async def client(on: set[int]) -> AsyncIterator[Process]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bench.load", str(CONNECTIONS)), cwd=ROOT, stdin=PIPE, stdout=PIPE
    )
    os.sched_setaffinity(process.pid, on)
    try:
        yield process
    finally:
        process.kill()
        await process.wait()


async def send_requests(client: Process, asked: Load, requests: int) -> float:
    """Send this many requests. Returns the seconds until all were answered."""
    assert client.stdin is not None
    assert client.stdout is not None
    line = {**asked._asdict(), "requests": requests}
    client.stdin.write(json.dumps(line).encode() + b"\n")
    reply = await client.stdout.readline()
    if not reply:
        raise RuntimeError("the load generator has exited")
    return float(json.loads(reply)["seconds"])


async def rounds(
    client: Process, wanted: Mapping[str, Load], count: int, turn_s: float, advance: Advance
) -> dict[str, list[float]]:
    """Seconds per request of each load in each round, taking turns. Advances `count + 1` times for each."""
    requests = {}
    for name, asked in wanted.items():
        requests[name] = await _calibrate(client, asked, turn_s)
        advance()
    names = list(wanted)
    times: dict[str, list[float]] = {name: [] for name in names}
    for number in range(count):
        first = number % len(names)
        for name in (*names[first:], *names[:first]):
            took = await send_requests(client, wanted[name], requests[name])
            times[name].append(took / requests[name])
            advance()
    return times


async def _calibrate(client: Process, asked: Load, turn_s: float) -> int:
    """The number of requests that fill a turn. This is also the warm-up."""
    requests = CONNECTIONS
    while (took := await send_requests(client, asked, requests)) < turn_s / 2:
        requests *= 2
    return max(CONNECTIONS, round(requests * turn_s / took))
