"""Rate limits beside the `limits` library on Redis, and on SQLite.

Its asyncio storage is measured with two of its clients, redis-py and valkey-py: each opens a connection per task, and
sends a script for each hit. The sliding window is compared with its moving window, which stores the time of each hit
like ours, and with its sliding window counter, which stores two numbers and is approximate.
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
from bench.round_trips import count_round_trips
from keystead import Counter, Keyspace, SortedSet, after, connect, sliding
from keystead.parts.limit import CombinedLimit, FixedWindow, Limits, SlidingWindow, TokenBucket
from tests import servers

CLIENTS = 10_000
OFTEN = 100_000  # per client: never reached while measuring
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


async def run(folder: Path, effort: Effort, progress: Progress) -> list[Row]:
    with servers.redis() as server:
        rows = await _round_trips(server)
        rows += await _beside_limits(server, effort, progress)
    return rows + await _on_sqlite(folder, effort, progress)


async def _round_trips(server: servers.Server) -> list[Row]:
    """The round trips of an allowed hit and of a refused one."""
    rows = []
    async with count_round_trips(server.port) as between, connect(between.url) as store:
        for name, limit in kinds(LimitKeys(store), 1).items():
            await limit.hit(f"{name}, warm")  # loads the script
            before = between.trips
            if not await limit.hit(name) or await limit.hit(name):
                raise RuntimeError(f"{name}: one of two hits must pass")
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
                await _check_same(server, kinds(LimitKeys(store), 5)[name], peer)
            for tasks, playing in ((TASKS, together), (1, alone)):
                ours = Contender("keystead", playing(_ours(limit), random_keys(CLIENTS)))
                target = TWICE if tasks == TASKS and name in ("fixed window", "sliding window") else None
                contenders = [
                    Peer(Contender(called, playing(_theirs(peer, item), random_keys(CLIENTS))), target=target)
                    for called, peer in peers.items()
                ]
                match = Match(f"{name}, {tasks} task{'s' * (tasks > 1)}", ours, contenders)
                rows += await compare("limits, redis", match, effort, progress)
                server.ask("FLUSHALL")  # the next contenders use the same keys for other values
    for storage in storages.values():
        await vars(storage.bridge)["storage"].aclose()  # it has no public close
    return rows


def _peers(name: str, storages: dict[str, RedisStorage]) -> dict[str, Any]:
    """The limiters of that library for this kind, by their label."""
    match name:
        case "fixed window":
            return {called: FixedWindowRateLimiter(storage) for called, storage in storages.items()}
        case "sliding window":
            moving = {called: MovingWindowRateLimiter(storage) for called, storage in storages.items()}
            called, storage = list(storages.items())[-1]
            return moving | {f"{called}, a counter": SlidingWindowCounterRateLimiter(storage)}
        case _:
            return {"limits, a fixed window": FixedWindowRateLimiter(storages["limits"])}


async def _check_same(server: servers.Server, limit: Limits, peer: Any) -> None:
    """Both sides must refuse: a limiter that allows everything is fast, but meaningless."""
    item = RateLimitItemPerMinute(5)
    ours = await asyncio.gather(*(limit.hit("same") for _ in range(20)))
    passed = await asyncio.gather(*(peer.hit(item, "same") for _ in range(20)))
    if (sum(map(bool, ours)), sum(passed)) != (5, 5):
        raise RuntimeError(f"of 20 hits {sum(map(bool, ours))} and {sum(passed)} passed instead of 5")
    server.ask("FLUSHALL")


async def _on_sqlite(folder: Path, effort: Effort, progress: Progress) -> list[Row]:
    """Limits in a file, for which that library has no storage, beside our limits in Redis."""
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
            raise RuntimeError("a hit was refused")

    return hit


def _theirs(limiter: Any, item: RateLimitItemPerMinute) -> Hit:
    async def hit(client: str) -> None:
        if not await limiter.hit(item, client):
            raise RuntimeError("a hit was refused")

    return hit
