"""The gateway: commands per second of CPU time, and what the write guard costs.

Clients send pipelines of 32 commands, half of them writes, to the gateway under Granian with one worker. The figure is
the number of commands for each second of CPU time of the worker, so it does not depend on what else the machine does.
The cost of the write guard is the difference between two such gateways, one of which enforces a key document.
"""

from __future__ import annotations

import asyncio
import json
import statistics
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, TypeAlias

from bench import serving
from bench.measure import Advance, Effort, Progress, Row, Target
from keystead import connect
from keystead.gateway import GatewayKeys, GatewayTokens
from tests import servers

# The commands of one request of a client, by its number.
Make: TypeAlias = Callable[[int], Iterator[list[Any]]]

PIPELINE = 32
CLIENTS = 4
REQUESTS, REQUESTS_QUICK = 400, 8
ROUNDS, ROUNDS_QUICK = 9, 2
FAST = Target("at least", 5_000)
CHEAP = Target("at most", 1.25)  # the guard costs a quarter of the call without it
CART = json.dumps({"items": ["tea", "milk"], "note": "x" * 200})


async def run(folder: Path, effort: Effort, progress: Progress, *, quick: bool) -> list[Row]:
    requests, rounds = (REQUESTS_QUICK, ROUNDS_QUICK) if quick else (REQUESTS, ROUNDS)
    rows: list[Row] = []
    with servers.redis() as redis:
        for name, url in {"sqlite": f"sqlite:///{folder / 'gateway.db'}", "redis": redis.url}.items():
            with progress.activity(f"gateway, {name} · pipelines of {PIPELINE}", rounds) as advance:
                rows += await _measure(name, url, requests, rounds, advance)
    return rows


async def _measure(name: str, url: str, requests: int, rounds: int, advance: Advance) -> list[Row]:
    """Gateways with and without the guard take turns."""
    async with connect(url) as store:
        token = (await GatewayTokens(GatewayKeys(store)).create("bench", "write")).token
        for number in range(CLIENTS):
            profile = f"profile:{number}"
            await store.atomically([("HSET", profile, "name", "Ann"), ("EXPIRE", profile, 86_400)])
    first, _ = serving.cores()
    async with AsyncExitStack() as stack:
        plain, guarded = [
            await stack.enter_async_context(
                serving.serve_app("bench.gateway_apps:make", {"BENCH_STORE": url, "BENCH_SCHEMA": mode}, first)
            )
            for mode in ("off", "enforce")
        ]
        times: list[list[tuple[float, float]]] = [[], []]
        for place, (make, count) in enumerate(((_commands, requests), (_conditional, 4 * requests))):
            for port in (plain, guarded):
                await _send(port, token, make, count)  # warm up
            for _ in range(rounds):
                without = await _time(plain, token, make, count)
                times[place].append((without, await _time(guarded, token, make, count)))
        for _ in range(rounds):
            advance()
    rate = requests * PIPELINE / statistics.median(without for without, _ in times[0])
    pipeline, single = [statistics.median(guard / without for without, guard in found) for found in times]
    return [
        Row(f"gateway, {name}", f"commands in pipelines of {PIPELINE}, by CPU time", rate, "a second", FAST),
        Row(f"gateway, {name}", f"pipelines of {PIPELINE} with the write guard, by CPU time", pipeline,
            "times the time", CHEAP, "without it"),
        Row(f"gateway, {name}", "a single HSET with the write guard, by CPU time", single, "times the time", CHEAP,
            "without it"),
    ]  # fmt: skip


async def _time(port: int, token: str, make: Make, requests: int) -> float:
    """The CPU seconds of the gateway for that many requests."""
    before = await _cpu_s(port)
    await _send(port, token, make, requests)
    return max(await _cpu_s(port) - before, 0.001)  # a quick trial may take less than a tick of the clock


async def _send(port: int, token: str, make: Make, requests: int) -> None:
    await asyncio.gather(*(_client(port, token, list(make(number)), requests // CLIENTS) for number in range(CLIENTS)))


async def _client(port: int, token: str, commands: list[Any], requests: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    body = json.dumps(commands).encode()
    head = f"POST /pipeline HTTP/1.1\r\nhost: bench\r\nauthorization: Bearer {token}\r\nupstash-encoding: base64\r\n"
    request = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
    for _ in range(requests):
        writer.write(request)
        answer = json.loads(await _read_body(reader))
        if len(answer) != len(commands) or any("error" in one for one in answer):
            raise RuntimeError(f"a pipeline failed: {answer}")
    writer.close()


async def _cpu_s(port: int) -> float:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /cpu HTTP/1.1\r\nhost: bench\r\n\r\n")
    found = float(await _read_body(reader))
    writer.close()
    return found


async def _read_body(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    [length] = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    return await reader.readexactly(int(length.partition(b":")[2]))


def _commands(number: int) -> Iterator[list[Any]]:
    """Reads and writes of small values, as they come from the routes of an application."""
    for at in range(PIPELINE // 4):
        key = number * 1000 + at
        yield ["set", f"cart:{key}", CART, "ex", 3600]
        yield ["get", f"cart:{key}"]
        yield ["sadd", f"tags:{key}", "hot"]
        yield ["smembers", f"tags:{key}"]


def _conditional(number: int) -> Iterator[list[Any]]:
    """One command. Whether it is right depends on the store: a new profile would have no lifetime."""
    yield ["hset", f"profile:{number}", "city", "Kobe"]
