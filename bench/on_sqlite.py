"""The embedded store beside raw sqlite3, diskcache and lmdb: files on the same disk, 10,000 keys in each.

Keystead, raw sqlite3 and lmdb sync each write before acknowledging it. diskcache, by default, syncs only at WAL
checkpoints.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import diskcache
import lmdb

from bench.measure import (
    TASKS,
    VALUE,
    Advance,
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
    key,
    new_keys,
    random_keys,
    together,
    values,
)
from keystead.stores import Store
from keystead.stores.sqlite import SqliteStore

KEYS, KEYS_QUICK = 10_000, 500
SUBJECT = "sqlite"


async def run(folder: Path, effort: Effort, progress: Progress, *, quick: bool) -> list[Row]:
    keys = KEYS_QUICK if quick else KEYS
    with ExitStack() as stack:
        raw = stack.enter_context(closing(open_raw(folder / "raw.db")))
        default = stack.enter_context(closing(open_default(folder / "default.db")))
        cache = stack.enter_context(closing(diskcache.Cache(str(folder / "diskcache"))))
        env = stack.enter_context(closing(lmdb.open(str(folder / "lmdb"), map_size=1 << 30)))
        async with SqliteStore(str(folder / "keystead.db")) as store:
            with progress.activity("sqlite · loading", keys) as advance:
                await load(store, range(keys), advance)
                _load_peers(raw, default, cache, env, keys)
            await _check_value(store, raw, default, cache, env)
            rows: list[Row] = []
            for match in _matches(store, raw, default, cache, env, keys):
                rows += await compare(SUBJECT, match, effort, progress)
            return rows


async def _check_value(
    store: Store, raw: sqlite3.Connection, default: sqlite3.Connection, cache: Any, env: Any
) -> None:
    """All sides must find the value: reads of missing keys are fast, but meaningless."""
    with env.begin() as transaction:
        found = [
            *await store.run([("GET", key(1))]),
            *raw.execute("SELECT value FROM kv WHERE key = ?", (key(1),)).fetchone(),
            *default.execute("SELECT value FROM kv WHERE key = ?", (key(1),)).fetchone(),
            cache.get(key(1)),
            transaction.get(key(1).encode()),
        ]
    if found != [VALUE] * len(found):
        raise RuntimeError("the value that was loaded is not the value that is read")


def _matches(
    store: Store, raw: sqlite3.Connection, default: sqlite3.Connection, cache: Any, env: Any, among: int
) -> list[Match]:
    fresh = values()

    async def get(name: str) -> None:
        await store.run([("GET", name)])

    async def put(name: str) -> None:
        await store.run([("SET", name, next(fresh))])

    def raw_get(name: str) -> None:
        raw.execute("SELECT value FROM kv WHERE key = ?", (name,)).fetchone()

    def raw_put(name: str) -> None:
        raw.execute(UPSERT, (name, next(fresh)))

    def default_put(name: str) -> None:
        default.execute(UPSERT, (name, next(fresh)))
        default.commit()

    def lmdb_get(name: str) -> None:
        with env.begin() as transaction:
            transaction.get(name.encode())

    def lmdb_put(name: str) -> None:
        with env.begin(write=True) as transaction:
            transaction.put(name.encode(), next(fresh))

    async def cache_put_in_thread(name: str) -> None:
        await asyncio.to_thread(cache.set, name, next(fresh))

    def sync(name: str, operation: Callable[[str], object]) -> Contender:
        return Contender(name, blocking(operation, random_keys(among)))

    def cache_put(name: str) -> None:
        cache.set(name, next(fresh))

    return [
        Match(
            "1 task, GET",
            Contender("keystead", alone(get, random_keys(among))),
            [
                Peer(sync("sqlite3", raw_get), "times the time", Target("at most", 3)),
                Peer(sync("diskcache", cache.get), target=Target("at least", 1)),
                Peer(sync("lmdb, the limit", lmdb_get), "times the time"),
            ],
        ),
        Match(
            "32 tasks, GET",
            Contender("keystead", together(get, random_keys(among))),
            [Peer(sync("sqlite3, one at a time", raw_get), "times the time")],
        ),
        Match(
            "32 tasks, SET durable",
            Contender("keystead", together(put, random_keys(among))),
            [
                Peer(sync("sqlite3, one at a time", raw_put), target=Target("at least", 10)),
                Peer(sync("sqlite3 as it comes, no WAL", default_put)),
                Peer(Contender("sqlite3, 32 to a commit by hand", _batches(raw, random_keys(among)))),
                Peer(
                    Contender("diskcache in threads", together(cache_put_in_thread, random_keys(among))),
                    target=Target("at least", 1),
                ),
                Peer(sync("diskcache, blocking", cache_put)),
                Peer(sync("lmdb, one at a time", lmdb_put)),
            ],
        ),
        Match(
            "32 tasks, SET durable, new keys",
            Contender("keystead", together(put, new_keys("ours"))),
            [
                Peer(Contender("sqlite3, one at a time", blocking(raw_put, new_keys("theirs")))),
                Peer(Contender("sqlite3, 32 to a commit by hand", _batches(raw, new_keys("by hand")))),
            ],
        ),
        Match(
            "1 task, SET durable",
            Contender("keystead", alone(put, random_keys(among))),
            [
                Peer(sync("sqlite3", raw_put), "times the time"),
                Peer(sync("lmdb, the limit", lmdb_put), "times the time"),
            ],
        ),
    ]


def _batches(raw: sqlite3.Connection, keys: Iterator[str]) -> Play:
    """The upper bound of sharing commits: 32 writes per commit, without an event loop."""
    fresh = values()

    async def play(operations: int) -> None:
        for _ in range(operations // TASKS):
            raw.execute("BEGIN IMMEDIATE")
            for _ in range(TASKS):
                raw.execute(UPSERT, (next(keys), next(fresh)))
            raw.execute("COMMIT")

    return play


TABLE = "CREATE TABLE kv (key TEXT PRIMARY KEY, value BLOB NOT NULL)"
UPSERT = "INSERT INTO kv (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value"


def open_raw(path: Path) -> sqlite3.Connection:
    """A careful hand-written setup: WAL, each statement its own durable commit."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(TABLE)
    return connection


def open_default(path: Path) -> sqlite3.Connection:
    """The default setup: a rollback journal that each commit deletes. Equally durable."""
    connection = sqlite3.connect(path)
    found = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")]
    if found != ["delete", 2]:
        raise RuntimeError(f"this SQLite was built with other defaults: {found}")
    connection.execute(TABLE)
    return connection


async def load(store: Store, numbers: range, advance: Advance, *options: str | int) -> None:
    """Set all these keys, in batches of a thousand. Advances by keys."""
    for start in range(numbers.start, numbers.stop, 1_000):
        batch = range(start, min(start + 1_000, numbers.stop))
        await store.run([("SET", key(number), VALUE, *options) for number in batch])
        advance(len(batch))


def _load_peers(raw: sqlite3.Connection, default: sqlite3.Connection, cache: Any, env: Any, keys: int) -> None:
    for connection in (raw, default):
        connection.execute("BEGIN")
        connection.executemany(UPSERT, ((key(number), VALUE) for number in range(keys)))
        connection.execute("COMMIT")
    with cache.transact():
        for number in range(keys):
            cache.set(key(number), VALUE)
    with env.begin(write=True) as transaction:
        for number in range(keys):
            transaction.put(key(number).encode(), VALUE)
