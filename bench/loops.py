"""Event loops: the server under Granian and uvicorn, each with asyncio's loop and with uvloop.

Measured in CPU time of the server, which other processes of the machine hardly affect.
"""

from __future__ import annotations

import itertools
import os
import statistics
from contextlib import AsyncExitStack
from typing import Literal

from bench import serving, widget_keys
from bench.measure import Effort, Progress, Row
from bench.widget_keys import counter_id
from keystead.stores import connect
from tests import servers

COUNTERS = 20
REQUESTS, REQUESTS_QUICK = 1_000, 100
SERVERS: tuple[Literal["granian", "uvicorn"], ...] = ("granian", "uvicorn")
LOOPS: tuple[Literal["asyncio", "uvloop"], ...] = ("asyncio", "uvloop")


async def run(effort: Effort, progress: Progress, *, quick: bool) -> list[Row]:
    async with AsyncExitStack() as stack:
        redis = stack.enter_context(servers.redis())
        first, rest = serving.cores()
        os.sched_setaffinity(redis.pid, rest)
        store = await stack.enter_async_context(connect(redis.url))
        widgets = await stack.enter_async_context(widget_keys.open_service(store))
        await widget_keys.fill_counters(widgets, COUNTERS, lambda steps=1: None)
        environment = {"BENCH_APP": "keystead", "BENCH_REDIS": redis.url}
        ids = [counter_id(number) for number in range(COUNTERS)]
        asks = {
            "a read": ([f"GET /api/visit?action=display&id={id}&format=text" for id in ids], "text/plain"),
            "a visit": (
                [f"GET /api/visit?action=increment&id={id}\nUser-Agent: {{number}}" for id in ids],
                "duplicate",
            ),
        }
        wanted: dict[str, serving.Load] = {}
        for server, loop in itertools.product(SERVERS, LOOPS):
            serve = serving.serve_app("bench.widget_apps:make", environment, first, server, loop)
            port = await stack.enter_async_context(serve)
            wanted |= {f"{what}, {server}, {loop}": serving.Load(port, *ask) for what, ask in asks.items()}
        client = await stack.enter_async_context(serving.client(rest))
        requests = REQUESTS_QUICK if quick else REQUESTS
        times: dict[str, list[float]] = {name: [] for name in wanted}
        with progress.activity("web · event loops", (effort.rounds + 1) * len(wanted)) as advance:
            for round_number in range(effort.rounds + 1):
                for name, load in wanted.items():
                    before = serving.cpu_seconds(load.port)
                    await serving.send_requests(client, load, requests)
                    if round_number:  # the first one warms up
                        times[name].append((serving.cpu_seconds(load.port) - before) / requests)
                    advance()
    pairs = [(f"{server}, uvloop", f"{server}, asyncio") for server in SERVERS]
    pairs += [(f"granian, {loop}", f"uvicorn, {loop}") for loop in LOOPS]
    return [_row(times, what, ours, theirs) for what in asks for ours, theirs in pairs]


def _row(times: dict[str, list[float]], what: str, ours: str, theirs: str) -> Row:
    a, b = times[f"{what}, {ours}"], times[f"{what}, {theirs}"]
    ratios = [y / max(x, 1e-6) for x, y in zip(a, b, strict=True)]
    low, _, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return Row(
        subject="web, event loops",
        name=f"CPU time of {what}, {ours}",
        value=statistics.median(ratios),
        unit="times as fast",
        against=theirs,
        ours_us=statistics.median(a) * 1e6,
        theirs_us=statistics.median(b) * 1e6,
        spread=(low, high),
    )
