"""Django's sessions with our engine beside others: django-redis behind `cache` and `cached_db`, and `db` on SQLite.

Each operation is what a request does, without a web server: read the session, or read it, change a key and save it.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from bench import django_sessions
from bench.django_sessions import KEY, ROUTER
from bench.measure import Contender, Effort, Match, Peer, Progress, Row, Target, compare, in_threads
from keystead import wait
from tests import servers

SESSIONS = 1_000
FEW = 50
THREADS = 16


class Engine(NamedTuple):
    """A session engine and where its sessions are."""

    name: str
    module: str
    switch: Callable[[], None]
    """selects its database or its store, for the threads that follow"""


async def run(folder: Path, effort: Effort, progress: Progress, *, quick: bool) -> list[Row]:
    rows: list[Row] = []
    with servers.redis() as redis, ThreadPoolExecutor(THREADS) as threads:
        await asyncio.to_thread(
            django_sessions.set_up,
            {
                "cached": django_sessions.sqlite(f"{folder}/cached.db"),
                "own": django_sessions.sqlite(f"{folder}/own.db"),
            },
            CACHES={"default": {"BACKEND": "django_redis.cache.RedisCache", "LOCATION": redis.url}},
            KEYSTEAD={"STORE": redis.url},
        )
        ours = Engine("keystead", "keystead.integrations.django.sessions", lambda: _use_store(redis.url))
        peers = [
            (_peer("cache", "django-redis, cache", "cached"), Target("at least", 1.5)),
            (_peer("cached_db", "django-redis, cached_db", "cached"), Target("at least", 1.5)),
        ]
        rows += await _compare("Django sessions, redis", ours, peers, threads, effort, progress, quick=quick)
        url = f"sqlite:///{folder}/ours.db"
        ours = Engine("keystead", "keystead.integrations.django.sessions", lambda: _use_store(url))
        peers = [(_peer("db", "Django's db", "own"), Target("at least", 3))]
        rows += await _compare("Django sessions, sqlite", ours, peers, threads, effort, progress, quick=quick)
        await asyncio.to_thread(_close, redis.url, url)
    return rows


def _peer(engine: str, name: str, alias: str) -> Engine:
    def switch() -> None:
        ROUTER.alias = alias

    return Engine(name, f"django.contrib.sessions.backends.{engine}", switch)


def _use_store(url: str) -> None:
    from django.conf import settings

    settings.KEYSTEAD = {"STORE": url}


def _close(*urls: str) -> None:
    from keystead.integrations.loop_stores import synchronous_store

    for url in urls:
        wait(synchronous_store(url).store.close())


async def _compare(
    subject: str,
    ours: Engine,
    peers: list[tuple[Engine, Target]],
    threads: ThreadPoolExecutor,
    effort: Effort,
    progress: Progress,
    *,
    quick: bool,
) -> list[Row]:
    """With 16 threads the stated target; with one thread not slower."""
    engines = [ours, *(peer for peer, _ in peers)]
    filled = {one.name: await asyncio.to_thread(_fill, one, FEW if quick else SESSIONS) for one in engines}
    rows: list[Row] = []
    for count in (1, THREADS):
        for name, act in (("read", _read), ("read and save", _read_and_save)):
            contenders = [_contender(one, act, filled[one.name], threads, count) for one in engines]
            judged = [
                Peer(contender, target=target if count > 1 else Target("at least", 1))
                for contender, (_, target) in zip(contenders[1:], peers, strict=True)
            ]
            label = f"{name}, {count} thread{'s' * (count > 1)}"
            rows += await compare(subject, Match(label, contenders[0], judged), effort, progress)
    return rows


def _contender(
    engine: Engine, act: Callable[[Any, str], None], sessions: list[str], threads: ThreadPoolExecutor, count: int
) -> Contender:
    store = _store_of(engine)
    order = itertools.cycle(random.Random(7).choices(sessions, k=20_000))
    play = in_threads(threads, count, lambda session: act(store, session), order)

    async def switched(operations: int) -> None:
        engine.switch()
        await play(operations)

    return Contender(engine.name, switched)


def _store_of(engine: Engine) -> Any:
    from importlib import import_module

    return import_module(engine.module).SessionStore


def _fill(engine: Engine, count: int) -> list[str]:
    engine.switch()
    made = []
    for _ in range(count):
        session = _store_of(engine)()
        session.update({"_auth_user_id": "7", "name": "Ann", "cart": ["apple", "pear"], KEY: 0})
        session.create()
        made.append(str(session.session_key))
    return made


def _read(store: Any, session: str) -> None:
    if store(session)["name"] != "Ann":
        raise RuntimeError("a session is missing")


def _read_and_save(store: Any, session: str) -> None:
    opened = store(session)
    opened[KEY] += 1
    opened.save()
