"""The Upstash store through the gateway to Redis: HTTP calls of concurrent readers, and the cost of one call.

The peer is a general-purpose HTTP client with keep-alive, one request for each command.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx2

from bench.measure import TASKS, Progress, Row, Target
from keystead import connect
from keystead.stores.upstash import UpstashStore
from tests import servers

READS, READS_QUICK = 320, 64  # of each task
FEWER_CALLS = Target("at least", 8)


async def run(folder: Path, progress: Progress, *, quick: bool) -> list[Row]:
    reads = READS_QUICK if quick else READS
    rounds = 3 if quick else 7
    with servers.gateway_on_redis() as gateway:
        async with connect(gateway.upstash_url) as store, httpx2.AsyncClient(trust_env=False) as client:
            assert isinstance(store, UpstashStore)
            await store.run([("SET", f"k{number}", "x" * 300) for number in range(TASKS)])
            headers = {"authorization": f"Bearer {gateway.token}", "upstash-encoding": "base64"}

            async def ours(number: int) -> None:
                await store.run([("GET", f"k{number}")])

            async def theirs(number: int) -> None:
                (await client.post(gateway.url, json=["GET", f"k{number}"], headers=headers)).json()

            with progress.activity("upstash · 32 tasks read", rounds) as advance:
                before = store.requests
                ours_us, theirs_us, alone_us, alone_theirs_us = (list[float]() for _ in range(4))
                for _ in range(rounds):
                    ours_us.append(await _cpu_us(ours, TASKS, reads))
                    theirs_us.append(await _cpu_us(theirs, TASKS, max(2, reads // 32)))
                    alone_us.append(await _cpu_us(ours, 1, reads))
                    alone_theirs_us.append(await _cpu_us(theirs, 1, reads // 2))
                    advance()
                calls = store.requests - before - rounds * reads
    best = [min(one) for one in (ours_us, theirs_us, alone_us, alone_theirs_us)]
    note = "processor time of the client"
    return [
        Row("upstash", "32 tasks, GET: commands for each HTTP call", rounds * reads * TASKS / calls, "calls",
            FEWER_CALLS),
        Row("upstash", "32 tasks, GET", best[1] / best[0], "times as fast", None, "httpx2, one request each",
            best[0], best[1], note=note),
        Row("upstash", "1 task, GET", best[3] / best[2], "times as fast", None, "httpx2", best[2], best[3], note=note),
    ]  # fmt: skip


async def _cpu_us(operation: Callable[[int], Awaitable[None]], tasks: int, times: int) -> float:
    """Microseconds of processor time for each operation."""

    async def work(number: int) -> None:
        for _ in range(times):
            await operation(number)

    began = time.process_time()
    await asyncio.gather(*map(work, range(tasks)))
    return (time.process_time() - began) / (tasks * times) * 1e6
