"""A procedure of two commands and a guard, beside a redis-py Lua script and a SQL transaction.

A reservation takes a piece from a stock, if there is one, and writes an order. By hand it is a registered script, or on
SQLite a transaction of three statements on a plain table.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import redis.asyncio

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
    blocking,
    compare,
    new_keys,
    together,
)
from bench.on_sqlite import open_raw
from keystead import Counter, Keyspace, Steps, Value, after, connect, never, procedure
from tests import servers

STOCKS = 50
PLENTY = 10**9
ORDER = "x" * 100
LIFETIME_MS = 90 * 86_400_000
SCRIPT = """
local left = tonumber(redis.call('GET', KEYS[1]) or '0')
if left < 1 then return {1} end
if not redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2], 'NX') then return {2} end
return {0, redis.call('DECRBY', KEYS[1], 1)}
"""
UPDATE = "UPDATE kv SET value = value - 1 WHERE key = ? AND value >= 1 RETURNING value"
INSERT = "INSERT INTO kv (key, value) VALUES (?, ?) ON CONFLICT (key) DO NOTHING"


class Shop(Keyspace):
    """Stocks and orders."""

    stock = Counter("stock:{sku}", lifetime=never("inventory"), doc="pieces left")
    order = Value("order:{id}", str, lifetime=after("90d"), doc="an order")

    @procedure
    def reserve(self, sku: str, id: str, order: str) -> Steps[int]:
        """Take a piece from the stock for a new order."""
        left = self.stock(sku).decrement()
        return Steps(
            self.stock(sku).at_least(1).otherwise("sold out"),
            self.order(id).add(order).otherwise("there is such an order"),
            left,
        ).giving(left)


async def run(folder: Path, effort: Effort, progress: Progress) -> list[Row]:
    rows: list[Row] = []
    for server in (servers.redis, servers.valkey):
        with server() as started:
            rows += await _on_redis(started, server.__name__, effort, progress)
    return rows + await _on_sqlite(folder, effort, progress)


async def _on_redis(server: servers.Server, name: str, effort: Effort, progress: Progress) -> list[Row]:
    client = redis.asyncio.Redis(host="127.0.0.1", port=server.port, max_connections=TASKS)
    script = client.register_script(SCRIPT)
    async with connect(server.url) as store:
        shop = Shop(store)
        for number in range(STOCKS):
            await shop.stock(str(number)).set(PLENTY)

        async def ours(id: str) -> None:
            if not await shop.reserve(_sku(id), id, ORDER):
                raise RuntimeError("nothing was reserved")

        async def theirs(id: str) -> None:
            reply: Any = await script(keys=[f"stock:{_sku(id)}", f"order:{id}"], args=[ORDER, LIFETIME_MS])
            if reply[0]:
                raise RuntimeError("nothing was reserved")

        rows: list[Row] = []
        for tasks, play in (("32 tasks", together), ("1 task", alone)):
            match = Match(
                f"{tasks}, two commands and a guard",
                Contender("procedure", play(ours, new_keys(f"ours {tasks}"))),
                [
                    Peer(
                        Contender("redis-py, a script", play(theirs, new_keys(f"theirs {tasks}"))),
                        target=Target("at least", 3) if play is together else None,
                    )
                ],
            )
            rows += await compare(f"procedures, {name}", match, effort, progress)
    await client.aclose()
    return rows


def _sku(id: str) -> str:
    return str(hash(id) % STOCKS)


async def _on_sqlite(folder: Path, effort: Effort, progress: Progress) -> list[Row]:
    with closing(open_raw(folder / "raw.db")) as raw:
        raw.executemany(INSERT, ((f"stock:{number}", PLENTY) for number in range(STOCKS)))
        async with connect(f"sqlite:///{folder}/ours.db") as store:
            shop = Shop(store)
            for number in range(STOCKS):
                await shop.stock(str(number)).set(PLENTY)

            async def ours(id: str) -> None:
                if not await shop.reserve(_sku(id), id, ORDER):
                    raise RuntimeError("nothing was reserved")

            def theirs(id: str) -> None:
                raw.execute("BEGIN IMMEDIATE")
                _reserve(raw, id)
                raw.execute("COMMIT")

            one = Match(
                "1 task, two commands and a guard",
                Contender("procedure", alone(ours, new_keys("ours 1"))),
                [
                    Peer(
                        Contender("sqlite3, one transaction", blocking(theirs, new_keys("theirs 1"))),
                        "times the time",
                        Target("at most", 1.3),
                    )
                ],
            )
            many = Match(
                "32 tasks, two commands and a guard",
                Contender("procedure", together(ours, new_keys("ours 32"))),
                [
                    Peer(
                        Contender("sqlite3, 32 to a commit by hand", _batches(raw, new_keys("theirs 32"))),
                        target=Target("at least", 0.8),
                    )
                ],
            )
            return [
                row for match in (one, many) for row in await compare("procedures, sqlite", match, effort, progress)
            ]


def _reserve(raw: sqlite3.Connection, id: str) -> None:
    if raw.execute(UPDATE, (f"stock:{_sku(id)}",)).fetchone() is None:
        raise RuntimeError("nothing was reserved")
    raw.execute(INSERT, (f"order:{id}", ORDER))


def _batches(raw: sqlite3.Connection, ids: Iterator[str]) -> Play:
    """The upper bound of sharing commits: 32 reservations per commit, without an event loop."""

    async def play(operations: int) -> None:
        for _ in range(operations // TASKS):
            raw.execute("BEGIN IMMEDIATE")
            for _ in range(TASKS):
                _reserve(raw, next(ids))
            raw.execute("COMMIT")

    return play
