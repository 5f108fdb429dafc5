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
    Operation,
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
from keystead.schema.prepared_steps import Prepared
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


def _prepare(shop: Shop) -> Operation:
    """The same steps, prepared once."""

    def make(stock: Any, order: Any, text: str) -> Steps[int]:
        left = stock.decrement()
        return Steps(
            stock.at_least(1).otherwise("sold out"), order.add(text).otherwise("there is such an order"), left
        ).giving(left)

    prepared = Prepared([shop.stock, shop.order], make, values=[("a sample", b"a sample")], name="Shop.reserve")

    async def reserve(id: str) -> None:
        stock, order = shop.stock.render(_sku(id)).encode(), shop.order.render(id).encode()
        if not await prepared(stock, order, ORDER.encode()):
            raise RuntimeError("nothing was reserved")

    return reserve


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
            for kind, ask in (("", ours), (", prepared", _prepare(shop))):
                match = Match(
                    f"{tasks}, two commands and a guard{kind}",
                    Contender(f"procedure{kind}", play(ask, new_keys(f"ours {tasks}{kind}"))),
                    [
                        Peer(
                            Contender("redis-py, a script", play(theirs, new_keys(f"theirs {tasks}{kind}"))),
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

            rows: list[Row] = []
            for kind, ask in (("", ours), (", prepared", _prepare(shop))):
                one = Match(
                    f"1 task, two commands and a guard{kind}",
                    Contender(f"procedure{kind}", alone(ask, new_keys(f"ours 1{kind}"))),
                    [
                        Peer(
                            Contender("sqlite3, one transaction", blocking(theirs, new_keys(f"theirs 1{kind}"))),
                            "times the time",
                            Target("at most", 1.3),
                        )
                    ],
                )
                many = Match(
                    f"32 tasks, two commands and a guard{kind}",
                    Contender(f"procedure{kind}", together(ask, new_keys(f"ours 32{kind}"))),
                    [
                        Peer(
                            Contender("sqlite3, 32 to a commit by hand", _batches(raw, new_keys(f"theirs 32{kind}"))),
                            target=Target("at least", 0.8),
                        )
                    ],
                )
                for match in (one, many):
                    rows += await compare("procedures, sqlite", match, effort, progress)
            return rows


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
