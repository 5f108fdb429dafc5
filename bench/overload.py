"""Overload: at twice its capacity, a server answers accepted requests as fast as at half, and refuses the rest.

With the default limits, and with a small `requests_at_once`. A burst is accepted, so the first second does not count.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE
from contextlib import AsyncExitStack
from typing import Any

from bench import serving, widget_keys
from bench.measure import Progress, Row, Target
from bench.widget_apps import AT_ONCE
from bench.widget_keys import counter_id
from keystead.stores import connect
from tests import servers

SECONDS, SECONDS_QUICK = 5.0, 0.5
FLAT = Target("at most", 3)
BOUNDS = {"keystead-bounded": f"requests_at_once = {AT_ONCE}", "keystead": "requests_at_once by default"}


async def run(progress: Progress, *, quick: bool) -> list[Row]:
    async with AsyncExitStack() as stack:
        redis = stack.enter_context(servers.redis())
        first, rest = serving.cores()
        os.sched_setaffinity(redis.pid, rest)
        store = await stack.enter_async_context(connect(redis.url))
        widgets = await stack.enter_async_context(widget_keys.open_service(store))
        await widget_keys.fill_counters(widgets, 1, lambda steps=1: None)
        serving.allow_many_connections()
        ports = {
            app: await stack.enter_async_context(
                serving.serve_app("bench.widget_apps:make", {"BENCH_APP": app, "BENCH_REDIS": redis.url}, first)
            )
            for app in BOUNDS
        }
        ask = f"GET /api/visit?action=increment&id={counter_id(0)}"
        closed = await stack.enter_async_context(serving.client(rest))
        asked = serving.Load(ports["keystead"], [f"{ask}\nUser-Agent: a browser"], '"duplicate":')
        requests = 200 if quick else 10_000
        await serving.send_requests(closed, asked, requests)  # the warm-up
        rate = requests / await serving.send_requests(closed, asked, requests)
        seconds = SECONDS_QUICK if quick else SECONDS
        rows: list[Row] = []
        with progress.activity("web · overload", 2 * len(BOUNDS)) as advance:
            for app, bound in BOUNDS.items():
                half = await _load(ports[app], rate / 2, seconds, ask, rest)
                advance()
                twice = await _load(ports[app], rate * 2, seconds, ask, rest)
                advance()
                rows += _rows(bound, rate, half, twice, seconds)
    return rows


def _rows(bound: str, rate: float, half: dict[str, Any], twice: dict[str, Any], seconds: float) -> list[Row]:
    p99 = {name: _p99(one["latencies"]) for name, one in (("half", half), ("twice", twice))}
    accepted = len(twice["latencies"]) / seconds
    return [
        Row("web, overload", f"p99 at twice the load, of what is accepted, {bound}", p99["twice"] / p99["half"],
            "times the time", FLAT, against="p99 at half of it", ours_us=p99["twice"] * 1e6,
            theirs_us=p99["half"] * 1e6),
        Row("web, overload", f"accepted at twice the load, {bound}", accepted, "a second",
            note=f"of {rate:,.0f} it can take; {twice['refused']:,} refused, {half['refused']:,} at half the load"),
    ]  # fmt: skip


def _p99(latencies: list[float]) -> float:
    return latencies[int(len(latencies) * 0.99)]


async def _load(port: int, rate: float, seconds: float, ask: str, on: set[int]) -> dict[str, Any]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.open_load", cwd=serving.ROOT, stdin=PIPE, stdout=PIPE, limit=64 * 1024 * 1024
    )
    os.sched_setaffinity(process.pid, on)
    line = json.dumps({"port": port, "rate": rate, "seconds": seconds, "ask": ask}) + "\n"
    out, _ = await process.communicate(line.encode())
    found: dict[str, Any] = json.loads(out)
    return found
