"""Near reads of values: `get` of a family with `near`, beside the same family without it."""

from __future__ import annotations

from pathlib import Path

from bench.measure import Contender, Effort, Match, Peer, Progress, Row, alone, compare, key, random_keys
from keystead import Keyspace, Value, connect, never
from tests import servers

KEYS = 1_000


class Prices(Keyspace):
    near = Value("near:{sku}", int, lifetime=never("a benchmark"), near="1s")
    far = Value("far:{sku}", int, lifetime=never("a benchmark"))


async def run(folder: Path, effort: Effort, progress: Progress) -> list[Row]:
    rows: list[Row] = []
    with servers.redis() as redis:
        for engine, url in (("redis", redis.url), ("sqlite", f"sqlite:///{folder}/near.db")):
            async with connect(url) as store:
                prices = Prices(store)
                for name in map(key, range(KEYS)):
                    await prices.run(prices.near(name).set(1), prices.far(name).set(1))

                async def near(name: str, prices: Prices = prices) -> None:
                    if await prices.near(name).get() != 1:
                        raise RuntimeError("a value is missing")

                async def far(name: str, prices: Prices = prices) -> None:
                    if await prices.far(name).get() != 1:
                        raise RuntimeError("a value is missing")

                ours = Contender("keystead", alone(near, random_keys(KEYS)))
                peer = Peer(Contender("the same without near", alone(far, random_keys(KEYS))))
                match = Match("1 task, get of a value with near", ours, [peer])
                rows += await compare(f"near reads, {engine}", match, effort, progress)
    return rows
