"""Stores of every kind that keeps what it is given, by name, for suites that run on all of them."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from keystead import Store, connect
from tests.real_servers import mariadb_server, postgres_server, redis_server, valkey_cluster

__all__ = [
    "EVERY",
    "held_by",
    "mariadb_server",
    "on",
    "on_urls",
    "postgres_server",
    "redis_server",
    "store",
    "stores",
    "urls",
    "valkey_cluster",
]

EVERY = ("memory", "sqlite", "redis", "postgres", "mariadb")


def on(*names: Any) -> pytest.MarkDecorator:
    """Run a test on each of these: `memory`, or `redis+postgres` for the roles `default` and `durable`; or a
    `pytest.param` of it."""
    return pytest.mark.parametrize("stores", names, indirect=True)


def on_urls(*names: Any) -> pytest.MarkDecorator:
    """The same for what opens its stores by itself."""
    return pytest.mark.parametrize("urls", names, indirect=True)


@pytest.fixture
async def stores(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[dict[str, Store]]:
    """Empty stores, by role."""
    names = request.param.split("+")
    async with AsyncExitStack() as opened:
        found = [await opened.enter_async_context(connect(_empty(name, request, tmp_path))) for name in names]
        yield dict(zip(("default", "durable"), found, strict=False))


@pytest.fixture
def urls(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """The URLs of empty stores, by role."""
    names = request.param.split("+")
    return dict(zip(("default", "durable"), (_empty(name, request, tmp_path) for name in names), strict=False))


@pytest.fixture
def store(stores: dict[str, Store]) -> Store:
    return stores["default"]


def held_by(name: str, request: pytest.FixtureRequest, folder: Path) -> int:
    """How many keys a server or a file really holds, expired ones, too. No store is asked."""
    match name:
        case "sqlite":
            with closing(sqlite3.connect(f"file:{folder}/kept.db?mode=ro", uri=True)) as file:
                return int(file.execute("SELECT count(*) FROM keys").fetchone()[0])
        case "redis":
            return int(request.getfixturevalue("redis_server").ask("DBSIZE"))
        case "postgres":
            return int(request.getfixturevalue("postgres_server").query("SELECT count(*) FROM keystead.keys")[0][0])
        case _:
            return int(request.getfixturevalue("mariadb_server").query("SELECT count(*) FROM keystead_keys")[0][0])


def _empty(name: str, request: pytest.FixtureRequest, folder: Path) -> str:
    """The URL of a store with nothing in it."""
    match name:
        case "memory":
            return "memory://"
        case "sqlite":
            return f"sqlite:///{folder}/kept.db"
        case "cluster":
            cluster = request.getfixturevalue("valkey_cluster")
            cluster.flush()
            return str(cluster.url)
        case "redis":
            redis = request.getfixturevalue("redis_server")
            redis.ask("FLUSHALL")
            return str(redis.url)
        case _:
            database = request.getfixturevalue(f"{name}_server")
            database.empty()
            return str(database.url)
