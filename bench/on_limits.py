"""Limits against the `limits` library on one Redis, and on SQLite.

Its storage for asyncio is measured with two of the clients that it takes, redis-py and valkey-py: each opens as many
connections as there are tasks, and sends a script for each hit. Beside a sliding window stand its moving window, which
keeps the time of each hit as ours does, and its sliding window counter, which keeps two numbers and is not exact.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, Literal

from limits import RateLimitItemPerMinute
from limits.aio.storage import RedisStorage
from limits.aio.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter, SlidingWindowCounterRateLimiter

from bench.measure import (
    TASKS,
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
    random_keys,
    together,
)
from bench.round_trips import counted
from keystead import Counter, Keyspace, SortedSet, after, connect, sliding
from keystead.parts.limit import CombinedLimit, FixedWindow, Limits, SlidingWindow, TokenBucket
from tests import servers

CLIENTS = 10_000
OFTEN = 100_000  # of one client: so much that nobody is refused while it is measured
TWICE = Target("at least", 2)
CLIENTS_OF_LIMITS: Final[dict[str, Literal["redispy", "valkey"]]] = {
    "limits": "redispy",
    "limits on valkey-py": "valkey",
}

Hit = Callable[[str], Awaitable[object]]


class LimitKeys(Keyspace):
    """Limits of each kind."""

    fixed = Counter("limit:fixed:{client}", lifetime=after("1m"), doc="hits of a minute")
    log = SortedSet("limit:log:{client}", str, lifetime=sliding("2m", touch_every="1s"), doc="the times of hits")
    bucket = SortedSet("limit:bucket:{client}", str, lifetime=sliding("2m", touch_every="1s"), doc="when it is full")


def kinds(keys: LimitKeys, often: int) -> dict[str, Limits]:
    rate = f"{often}/minute"
    fixed, log, bucket = FixedWindow(keys.fixed, rate), SlidingWindow(keys.log, rate), TokenBucket(keys.bucket, rate)
    return {
        "fixed window": fixed,
        "sliding window": log,
        "token bucket": bucket,
        "all three at once": CombinedLimit(fixed, log, bucket),
    }


async def run(folder: Path, effort: Effort, progress: Progress, *, quick: bool) -> list[Row]:
    with servers.redis() as server:
        rows = await _round_trips(server)
        rows += await _beside_limits(server, effort, progress)
    return rows + await _on_sqlite(folder, effort, progress)


async def _round_trips(server: servers.Server) -> list[Row]:
    """How often a client waits for the store, for a hit that is let through and one that is refused."""
    rows = []
    async with counted(server.port) as between, connect(between.url) as store:
        for name, limit in kinds(LimitKeys(store), 1).items():
            await limit.hit(f"{name}, warm")  # the script is known from here on
            before = between.trips
            if not await limit.hit(name) or await limit.hit(name):
                raise RuntimeError(f"{name}: of two hits one is let through")
            trips = (between.trips - before) / 2
            rows.append(Row("limits, redis", f"{name}, a hit", trips, "round trips", Target("at most", 1)))
    return rows


async def _beside_limits(server: servers.Server, effort: Effort, progress: Progress) -> list[Row]:
    storages = {
        called: RedisStorage(f"async+{server.url}", implementation=client)
        for called, client in CLIENTS_OF_LIMITS.items()
    }
    item = RateLimitItemPerMinute(OFTEN)
    rows: list[Row] = []
    async with connect(server.url) as store:
        for name, limit in kinds(LimitKeys(store), OFTEN).items():
            peers = _peers(name, storages)
            for peer in peers.values():
                await _same(server, kinds(LimitKeys(store), 5)[name], peer)
            for tasks, playing in ((TASKS, together), (1, alone)):
                ours = Contender("keystead", playing(_ours(limit), random_keys(CLIENTS)))
                target = TWICE if tasks == TASKS and name in ("fixed window", "sliding window") else None
                contenders = [
                    Peer(Contender(called, playing(_theirs(peer, item), random_keys(CLIENTS))), target=target)
                    for called, peer in peers.items()
                ]
                match = Match(f"{name}, {tasks} task{'s' * (tasks > 1)}", ours, contenders)
                rows += await compare("limits, redis", match, effort, progress)
                server.ask("FLUSHALL")  # the next of them keep something else under the same keys
    for storage in storages.values():
        await vars(storage.bridge)["storage"].aclose()  # it has no way to be closed of its own
    return rows


def _peers(name: str, storages: dict[str, RedisStorage]) -> dict[str, Any]:
    """What that library has for this, by what it is called in the table."""
    match name:
        case "fixed window":
            return {called: FixedWindowRateLimiter(storage) for called, storage in storages.items()}
        case "sliding window":
            moving = {called: MovingWindowRateLimiter(storage) for called, storage in storages.items()}
            called, storage = list(storages.items())[-1]
            return moving | {f"{called}, a counter": SlidingWindowCounterRateLimiter(storage)}
        case _:
            return {"limits, a fixed window": FixedWindowRateLimiter(storages["limits"])}


async def _same(server: servers.Server, limit: Limits, peer: Any) -> None:
    """A limiter that lets everybody through would be fast, and worth nothing."""
    item = RateLimitItemPerMinute(5)
    ours = await asyncio.gather(*(limit.hit("same") for _ in range(20)))
    passed = await asyncio.gather(*(peer.hit(item, "same") for _ in range(20)))
    if (sum(map(bool, ours)), sum(passed)) != (5, 5):
        raise RuntimeError(f"of 20 hits {sum(map(bool, ours))} and {sum(passed)} were let through, and not 5")
    server.ask("FLUSHALL")


async def _on_sqlite(folder: Path, effort: Effort, progress: Progress) -> list[Row]:
    """Durable in a file, where that library has no storage; beside it, what a hit costs in Redis."""
    rows: list[Row] = []
    with servers.redis() as server:
        async with connect(f"sqlite:///{folder}/limits.db") as file, connect(server.url) as redis:
            in_redis = kinds(LimitKeys(redis), OFTEN)
            for name, limit in kinds(LimitKeys(file), OFTEN).items():
                ours = Contender("keystead", _play(limit))
                match = Match(
                    f"{name}, {TASKS} tasks", ours, [Peer(Contender("keystead on Redis", _play(in_redis[name])))]
                )
                rows += await compare("limits, sqlite", match, effort, progress)
    return rows


def _play(limit: Limits) -> Play:
    return together(_ours(limit), random_keys(CLIENTS))


def _ours(limit: Limits) -> Hit:
    async def hit(client: str) -> None:
        if not await limit.hit(client):
            raise RuntimeError("a hit was refused, which is not measured here")

    return hit


def _theirs(limiter: Any, item: RateLimitItemPerMinute) -> Hit:
    async def hit(client: str) -> None:
        if not await limiter.hit(item, client):
            raise RuntimeError("a hit was refused, which is not measured here")

    return hit
