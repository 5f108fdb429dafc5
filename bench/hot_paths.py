"""CPU time of a request by part of the program: three hot paths in one process, without a server."""

from __future__ import annotations

import cProfile
import pstats
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from typing import Any

from bench import widget_apps, widget_keys
from bench.measure import Progress, Row
from bench.widget_keys import counter_id
from keystead.stores import connect
from tests import servers

TIMES, TIMES_QUICK = 3_000, 50
_SRC = "/src/keystead/"
_SHOWN = 8


async def run(progress: Progress, *, quick: bool) -> list[Row]:
    async with AsyncExitStack() as stack:
        redis = stack.enter_context(servers.redis())
        store = await stack.enter_async_context(connect(redis.url))
        widgets = await stack.enter_async_context(widget_keys.open_service(store))
        await widget_keys.fill_counters(widgets, 1, lambda steps=1: None)
        app = widget_apps.keystead(redis.url)
        await stack.enter_async_context(app.router.lifespan_context(app))
        id = counter_id(0)
        paths = {
            "GET /healthz": "/healthz",
            "a counter as text": f"/api/visit?action=display&id={id}&format=text",
            "increment": f"/api/visit?action=increment&id={id}",
        }
        rows: list[Row] = []
        with progress.activity("web · where the time goes", len(paths)) as advance:
            for name, path in paths.items():
                rows.append(await _profile(name, partial(_request, app, path), TIMES_QUICK if quick else TIMES))
                advance()
    return rows


async def _request(app: Any, target: str) -> None:
    path, _, query = target.partition("?")
    scope = {
        "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": path, "raw_path": path.encode(), "query_string": query.encode(), "root_path": "",
        "headers": [(b"host", b"127.0.0.1"), (b"user-agent", b"a browser"), (b"accept", b"*/*")],
        "client": ("127.0.0.1", 5000), "server": ("127.0.0.1", 80), "state": {},
    }  # fmt: skip
    statuses = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            statuses.append(message["status"])

    await app(scope, receive, send)
    if statuses != [200]:
        raise RuntimeError(f"{target} was answered with {statuses}")


async def _profile(name: str, request: Callable[[], Awaitable[None]], times: int) -> Row:
    for _ in range(times // 10 + 1):
        await request()
    began = time.process_time()
    for _ in range(times):
        await request()
    cpu_us = (time.process_time() - began) / times * 1e6
    profile = cProfile.Profile()
    profile.enable()
    for _ in range(times):
        await request()
    profile.disable()
    shares: dict[str, float] = defaultdict(float)
    for (file, _, function), (_, _, own_s, _, _) in pstats.Stats(profile).stats.items():  # type: ignore[attr-defined]
        if "poll" not in function and "select" not in function:  # waiting
            shares[_part_of(file, function)] += own_s
    total = sum(shares.values())
    largest = sorted(shares.items(), key=lambda one: -one[1])[:_SHOWN]
    note = " · ".join(f"{part} {share / total * cpu_us:.0f}" for part, share in largest)
    return Row("web, where the time goes", f"{name}, of CPU in the process", cpu_us, "us", note=note)


def _part_of(file: str, function: str) -> str:
    if _SRC in file:
        parts = Path(file.partition(_SRC)[2]).parts
        depth = 2 if parts[0] in ("kits", "parts", "stores") else 1
        return f"keystead.{'.'.join(parts[:depth])}".removesuffix(".py")
    if "site-packages" in file:
        return Path(file.partition("site-packages/")[2]).parts[0]
    if "asyncio" in file or "_asyncio" in function:
        return "asyncio"
    return "pydantic" if "pydantic" in function else "Python"
