"""The Redis store beside redis-py's asyncio client, on a real Redis and a real Valkey."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

import redis.asyncio as redis_py

from bench.measure import (
    TASKS,
    VALUE,
    Contender,
    Effort,
    Match,
    Peer,
    Play,
    Progress,
    Row,
    Target,
    alone,
    compare,
    key,
    random_keys,
    together,
)
from bench.on_sqlite import load
from keystead.stores import Store, connect, required
from tests import servers

KEYS = 10_000
MOST_TASKS = 128
ENGINES: dict[str, Callable[[], AbstractContextManager[servers.Server]]] = {
    "redis": servers.redis,
    "valkey": servers.valkey,
}

# The redis-py script for "mark the visit if it is not marked, then count it".
MARK_AND_COUNT = """
if redis.call('SET', KEYS[1], '1', 'NX', 'EX', 3600) then
    return redis.call('INCRBY', KEYS[2], 1)
end
return false
"""


async def run(effort: Effort, progress: Progress) -> list[Row]:
    return await compare_on(ENGINES, effort, progress)


async def compare_on(engines: Iterable[str], effort: Effort, progress: Progress, matches: str = "") -> list[Row]:
    """The matches whose names end like this, on these engines."""
    rows: list[Row] = []
    for engine in engines:
        start = ENGINES[engine]
        with start() as server:
            # As in its documentation; redis-py uses hiredis if it is installed.
            client = redis_py.Redis(host="127.0.0.1", port=server.port, max_connections=MOST_TASKS)
            async with client, connect(server.url) as store:
                subject = f"{engine} {_version(server)}"
                with progress.activity(f"{subject} · loading", KEYS) as advance:
                    await load(store, range(KEYS), advance)
                await _check_value(store, client)
                for match in _matches(store, client):
                    if match.name.endswith(matches):
                        rows += await compare(subject, match, effort, progress)
    return rows


def _version(server: servers.Server) -> str:
    info: dict[str, str] = {}
    for line in bytes(server.ask("INFO", "server")).decode().splitlines():
        name, _, value = line.partition(":")
        info[name] = value
    return info.get("valkey_version") or info["redis_version"]


async def _check_value(store: Store, client: Any) -> None:
    """Both sides must find the value: reads of missing keys are fast, but meaningless."""
    if await store.run([("GET", key(1))]) != [VALUE] or await client.get(key(1)) != VALUE:
        raise RuntimeError("the value that was loaded is not the value that is read")


def _matches(store: Store, client: Any) -> list[Match]:
    visits = itertools.count()
    mark_and_count = client.register_script(MARK_AND_COUNT)

    async def get(name: str) -> None:
        await store.run([("GET", name)])

    async def put(name: str) -> None:
        await store.run([("SET", name, VALUE, "EX", 3600)])

    async def step(name: str) -> None:
        visit = f"bench:visit:{next(visits)}"
        await store.atomically([required(("SET", visit, "1", "NX", "EX", 3600)), ("INCRBY", "bench:total", 1)])

    async def peer_put(name: str) -> None:
        await client.set(name, VALUE, ex=3600)

    async def peer_script(name: str) -> None:
        await mark_and_count(keys=[f"bench:visit:{next(visits)}", "bench:total"])

    async def peer_multi(name: str) -> None:
        async with client.pipeline(transaction=True) as pipeline:
            pipeline.set(f"bench:visit:{next(visits)}", "1", nx=True, ex=3600)
            pipeline.incrby("bench:total", 1)
            await pipeline.execute()

    def keys() -> Any:
        return random_keys(KEYS)

    return [
        Match(
            "32 tasks, GET",
            Contender("keystead", together(get, keys())),
            [
                Peer(Contender("redis-py", together(client.get, keys())), target=Target("at least", 6)),
                Peer(Contender("redis-py, pipelines of 32 by hand", _pipelines(client))),
            ],
        ),
        Match(
            "1 task, GET",
            Contender("keystead", alone(get, keys())),
            [
                Peer(
                    Contender("redis-py", alone(client.get, keys())),
                    "times the time",
                    Target("at most", 1.15),
                )
            ],
        ),
        *(
            Match(
                f"{tasks} tasks, GET",
                Contender("keystead", together(get, keys(), tasks)),
                [Peer(Contender("redis-py", together(client.get, keys(), tasks)))],
            )
            for tasks in (8, MOST_TASKS)
        ),
        Match(
            "32 tasks, SET EX",
            Contender("keystead", together(put, keys())),
            [Peer(Contender("redis-py", together(peer_put, keys())))],
        ),
        Match(
            "32 tasks, atomic SET NX + INCRBY",
            Contender("keystead", together(step, keys())),
            [
                Peer(Contender("redis-py, a script", together(peer_script, keys()))),
                Peer(Contender("redis-py, MULTI (counts each time)", together(peer_multi, keys()))),
            ],
        ),
    ]


def _pipelines(client: Any) -> Play:
    """The same reads by one task that has all keys and batches them."""
    keys = random_keys(KEYS)

    async def play(operations: int) -> None:
        for _ in range(operations // TASKS):
            async with client.pipeline(transaction=False) as pipeline:
                for _ in range(TASKS):
                    pipeline.get(next(keys))
                await pipeline.execute()

    return play
