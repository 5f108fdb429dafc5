"""Applications under Granian (or uvicorn) with one worker each, and the load generator.

With two cores, the servers have one, and the client and everything else the other.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import socket
import statistics
import sys
import sysconfig
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from bench.measure import Advance, Row, Target

ROOT = Path(__file__).parents[1]
CONNECTIONS = 64
TURN_S, TURN_S_QUICK = 1.0, 0.05


class Spent(NamedTuple):
    """What a request took: seconds until its answer, and CPU time of the server, which other programs hardly affect."""

    seconds: float
    cpu_s: float


class Load(NamedTuple):
    """The requests for a server: see `bench.load`."""

    port: int
    asks: Sequence[str]
    holds: str


def cores() -> tuple[set[int], set[int]]:
    """The core of the servers, and those of everything else; the same if there is only one."""
    allowed = sorted(os.sched_getaffinity(0))
    return {allowed[0]}, set(allowed[1:] or allowed)


def allow_many_connections() -> None:
    """Raise the limit of open files of this process, and of those that it starts."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(16_384, most), most))


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
) -> dict[str, list[Spent]]:
    """What a request of each load took in each round, taking turns. Advances `count + 1` times for each."""
    requests = {}
    for name, asked in wanted.items():
        requests[name] = await _calibrate(client, asked, turn_s)
        advance()
    names = list(wanted)
    times: dict[str, list[Spent]] = {name: [] for name in names}
    for number in range(count):
        first = number % len(names)
        for name in (*names[first:], *names[:first]):
            before = cpu_seconds(wanted[name].port)
            took = await send_requests(client, wanted[name], requests[name])
            used = cpu_seconds(wanted[name].port) - before
            times[name].append(Spent(took / requests[name], used / requests[name]))
            advance()
    return times


def ratio_row(
    subject: str, name: str, ours: Sequence[Spent], theirs: Sequence[Spent], against: str, target: Target | None
) -> Row:
    """How many times as many requests a second as theirs. The note has the ratio of CPU time."""
    ratios = [b.seconds / a.seconds for a, b in zip(ours, theirs, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    in_cpu = statistics.median(b.cpu_s / max(a.cpu_s, 1e-9) for a, b in zip(ours, theirs, strict=True))
    ours_cpu, theirs_cpu = (statistics.median(one.cpu_s for one in side) * 1e6 for side in (ours, theirs))
    return Row(
        subject=subject,
        name=f"{CONNECTIONS} connections, {name}",
        value=statistics.median(ratios),
        unit="times as fast",
        target=target,
        against=against,
        ours_us=statistics.median(one.seconds for one in ours) * 1e6,
        theirs_us=statistics.median(one.seconds for one in theirs) * 1e6,
        spread=(low, high),
        note=f"CPU time of the server: {ours_cpu:.0f} µs, theirs {theirs_cpu:.0f}, {in_cpu:.2f} times as fast",
    )


def cpu_seconds(port: int) -> float:
    """The CPU time so far of all processes of the server on this port."""
    nanoseconds = 0
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if f"--port\0{port}\0" in (folder / "cmdline").read_text():
                tasks = (folder / "task").glob("*/schedstat")
                nanoseconds += sum(int(task.read_text().split()[0]) for task in tasks)
        except (OSError, UnicodeDecodeError):
            continue
    return nanoseconds / 1e9


async def _calibrate(client: Process, asked: Load, turn_s: float) -> int:
    """The number of requests that fill a turn. This is also the warm-up."""
    requests = CONNECTIONS
    while (took := await send_requests(client, asked, requests)) < turn_s / 2:
        requests *= 2
    return max(CONNECTIONS, round(requests * turn_s / took))
