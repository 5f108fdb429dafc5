"""Synchronous callers beside synchronous redis-py: one thread, and 32 threads that share one store."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from typing import Literal

import redis

from bench.measure import (
    TASKS,
    Contender,
    Effort,
    Match,
    Peer,
    Progress,
    Row,
    Target,
    compare,
    in_threads,
)
from keystead import Keyspace, Value, after, connect, wait
from tests import servers

KEYS = 1_000
TEXT = "x" * 300
MATCHES: tuple[tuple[str, int, Literal["times as fast", "times the time"], Target], ...] = (
    ("GET, 1 thread", 1, "times the time", Target("at most", 1.3)),
    ("GET, 32 threads", TASKS, "times as fast", Target("at least", 2)),
)


class Texts(Keyspace):
    """Texts."""

    text = Value("text:{id}", str, lifetime=after("90d"), doc="a text")


async def run(effort: Effort, progress: Progress) -> list[Row]:
    rows: list[Row] = []
    with servers.redis() as server, ThreadPoolExecutor(TASKS) as threads:
        client = redis.Redis(host="127.0.0.1", port=server.port)
        texts = Texts(connect(server.url))
        await asyncio.to_thread(lambda: [texts.text(str(number)).set(TEXT).wait() for number in range(KEYS)])

        stored = client.get(texts.text("0").key)

        def ours(id: str) -> None:
            if texts.text(id).get().wait() != TEXT:
                raise RuntimeError("this text was not written")

        def theirs(id: str) -> None:
            if client.get(f"text:{id}") != stored:
                raise RuntimeError("this text was not written")

        for name, count, judged, target in MATCHES:
            peer = Contender("redis-py", in_threads(threads, count, theirs, _ids()))
            match = Match(
                name, Contender("wait", in_threads(threads, count, ours, _ids())), [Peer(peer, judged, target)]
            )
            rows += await compare("synchronous, redis", match, effort, progress)
        await asyncio.to_thread(lambda: wait(texts.text.store.close()))
        client.close()
    return rows


def _ids() -> Iterator[str]:
    chance = random.Random(7)
    return cycle([str(chance.randrange(KEYS)) for _ in range(20_000)])
