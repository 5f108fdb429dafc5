"""Session data in a database: reads and writes beside Django's sessions and a hand-written upsert.

All sides use the same server, which syncs every commit, the same concurrency and the same value size. A write of
`SessionData` is one atomic step that requires the session, ends a read-once value of the same name, and extends the
session. The hand-written upsert is one statement on a table of values with expiry, without these promises. Django has
one text per session, so it reads and writes the whole session.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import sqlite3
import string
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from bench import django_sessions
from bench.django_sessions import KEY, DjangoSessions
from bench.measure import Contender, Effort, Match, Peer, Play, Progress, Row, Target, compare
from bench.round_trips import count_round_trips
from keystead import connect
from keystead.kits.sessiondata import SessionData, SessionDataKeys
from tests import servers

TASKS = (1, 16)
HOUR_S = 3_600

NO_SLOWER = Target("at least", 1.0)
HALF = Target("at least", 0.5)

# The test servers do not sync; here they sync every commit, as by default.
POSTGRES = ("-c", "fsync=on", "-c", "autovacuum_naptime=1min")
MARIADB = ("--innodb-flush-method=fsync", "--innodb-buffer-pool-size=128M", "--innodb-log-file-size=96M")

Act: TypeAlias = Callable[[str], Any]  # on a session; awaited by sides with tasks


class Sizes(NamedTuple):
    sessions: int
    values: Mapping[str, int]  # value length by label


class Place(NamedTuple):
    """A database that all sides use."""

    name: str
    url: str
    by_hand: AbstractAsyncContextManager[Side]
    target: Target | None  # beside the hand-written code


FULL_SIZES = Sizes(1_000, {"100 B": 100, "4 KiB": 4_096})
QUICK_SIZES = Sizes(20, {"100 B": 100})


async def run(folder: Path, effort: Effort, progress: Progress, *, quick: bool) -> list[Row]:
    sizes, postgres_options, mariadb_options = (QUICK_SIZES, (), ()) if quick else (FULL_SIZES, POSTGRES, MARIADB)
    rows: list[Row] = []
    with servers.postgres(*postgres_options) as postgres, servers.mariadb(*mariadb_options) as mariadb:
        rows += await _round_trips("postgresql", postgres)
        rows += await _round_trips("mariadb", mariadb)
        await asyncio.to_thread(
            django_sessions.set_up,
            {
                "postgresql": django_sessions.postgresql(postgres.port),
                "mariadb": django_sessions.mariadb(mariadb.port),
                "sqlite": django_sessions.sqlite(str(folder / "django.db")),
            },
        )
        for place in (
            Place("postgresql", postgres.url, psycopg_by_hand(postgres.port), HALF),
            Place("mariadb", mariadb.url, run_in_threads(lambda: PymysqlByHand(mariadb.port)), HALF),
            Place(
                "sqlite",
                f"sqlite:///{folder / 'ours.db'}",
                run_in_threads(lambda: SqliteByHand(folder / "hand.db")),
                None,
            ),
        ):
            rows += await _compare_sizes(place, sizes, effort, progress)
    return rows


async def on_mariadb(effort: Effort, progress: Progress, *, quick: bool) -> list[Row]:
    """MariaDB with values of 100 bytes, beside hand-written code."""
    sizes, options = (QUICK_SIZES, ()) if quick else (QUICK_SIZES._replace(sessions=FULL_SIZES.sessions), MARIADB)
    with servers.mariadb(*options) as mariadb:
        place = Place("mariadb", mariadb.url, run_in_threads(lambda: PymysqlByHand(mariadb.port)), HALF)
        return await _compare_sizes(place, sizes, effort, progress, with_django=False)


async def _compare_sizes(
    place: Place, sizes: Sizes, effort: Effort, progress: Progress, *, with_django: bool = True
) -> list[Row]:
    subject, rows = f"session data, {place.name}", list[Row]()
    async with AsyncExitStack() as stack:
        ours = Ours(SessionData(SessionDataKeys(await stack.enter_async_context(connect(place.url)))))
        peers: dict[Side, Target | None] = {}
        if with_django:
            peers[await stack.enter_async_context(run_in_threads(lambda: Django(place.name)))] = NO_SLOWER
        peers[await stack.enter_async_context(place.by_hand)] = place.target
        sides: list[Side] = [ours, *peers]
        for size, length in sizes.values.items():
            sessions: dict[Side, list[str]] = {}
            with progress.activity(f"{subject} · {sizes.sessions:,} sessions of {size}", len(sides)) as advance:
                for side in sides:
                    sessions[side] = await side.begin([*itertools.islice(values(length), sizes.sessions)])
                    advance()
            for tasks in TASKS:
                for match in _matches(ours, peers, sessions, size, length, tasks):
                    rows += await compare(subject, match, effort, progress)
    return rows


def _matches(
    ours: Side,
    peers: Mapping[Side, Target | None],
    sessions: Mapping[Side, list[str]],
    size: str,
    length: int,
    tasks: int,
) -> list[Match]:
    def contender(side: Side, act: Act, name: str = "") -> Contender:
        order = random.Random(7).choices(sessions[side], k=20_000)
        return Contender(name or side.name, side.play(act, itertools.cycle(order), tasks))

    who = "1 task" if tasks == 1 else f"{tasks} tasks"
    reads = [Peer(contender(side, side.read), target=target) for side, target in peers.items()]
    writes: list[Peer] = []
    for side, target in peers.items():
        writes.append(Peer(contender(side, writing(side.write, length)), target=target))
        if isinstance(side, Django):
            writes.append(Peer(contender(side, writing(side.save, length), f"{side.name}, save alone")))
    return [
        Match(f"{who}, read, {size}", contender(ours, ours.read), reads),
        Match(f"{who}, write, {size}", contender(ours, writing(ours.write, length)), writes),
    ]


async def _round_trips(name: str, server: servers.DatabaseServer) -> list[Row]:
    """The round trips between the store and the server, on one warm connection."""
    rows: list[Row] = []
    async with (
        count_round_trips(server.port) as between,
        connect(server.url.replace(f":{server.port}/", f":{between.port}/")) as store,
    ):
        data = SessionData(SessionDataKeys(store))
        session = data.session(await data.begin())
        acts: dict[str, tuple[int, Callable[[], Awaitable[object]]]] = {
            "write": (2, lambda: session.set(KEY, "List")),
            "read": (1, lambda: session.get(KEY)),
        }
        for verb, (most, act) in acts.items():
            await act()
            before = between.trips
            await act()
            trips = between.trips - before
            target = Target("at most", most)
            rows.append(Row(f"session data, {name}", f"round trips: {verb}", trips, "round trips", target))
    return rows


def values(length: int) -> Iterator[str]:
    """Texts of that length, never the same twice in a row."""
    chance = random.Random(length)
    letters = string.ascii_letters + string.digits
    return itertools.cycle(["".join(chance.choices(letters, k=length)) for _ in range(211)])


# --- the sides ---------------------------------------------------------------------------------------------


class Side(ABC):
    """One way to store session data, with tasks or with threads."""

    name: str

    @abstractmethod
    async def begin(self, texts: list[str]) -> list[str]:
        """Create sessions with these values. Returns their names."""

    @abstractmethod
    def play(self, act: Act, sessions: Iterator[str], tasks: int) -> Play: ...

    @abstractmethod
    def read(self, session: str) -> Any: ...

    @abstractmethod
    def write(self, session: str, value: str) -> Any: ...

    def save(self, session: str, value: str) -> Any:
        """Like `write`, without reading the session first."""
        return self.write(session, value)


def writing(write: Callable[[str, str], Any], length: int) -> Act:
    texts = values(length)
    return lambda session: write(session, next(texts))


class InTasks(Side):
    def play(self, act: Act, sessions: Iterator[str], tasks: int) -> Play:
        async def task(operations: int) -> None:
            for _ in range(operations):
                await act(next(sessions))

        async def play(operations: int) -> None:
            await asyncio.gather(*(task(operations // tasks) for _ in range(tasks)))

        return play


class InThreads(Side):
    """Each thread has a connection and makes sequential calls, without an event loop."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(max(TASKS))

    async def begin(self, texts: list[str]) -> list[str]:
        return await asyncio.get_running_loop().run_in_executor(self._threads, lambda: [*map(self.begin_one, texts)])

    @abstractmethod
    def begin_one(self, text: str) -> str: ...

    def play(self, act: Act, sessions: Iterator[str], tasks: int) -> Play:
        def thread(operations: int) -> None:
            for _ in range(operations):
                act(next(sessions))

        async def play(operations: int) -> None:
            loop = asyncio.get_running_loop()
            await asyncio.gather(
                *(loop.run_in_executor(self._threads, thread, operations // tasks) for _ in range(tasks))
            )

        return play

    @abstractmethod
    def close_connection(self) -> None:
        """Close the connection of this thread."""

    def close(self) -> None:
        everybody = threading.Barrier(max(TASKS))

        def close() -> None:
            everybody.wait()
            self.close_connection()

        for closing in [self._threads.submit(close) for _ in range(max(TASKS))]:
            closing.result()
        self._threads.shutdown()


@asynccontextmanager
async def run_in_threads(make: Callable[[], InThreads]) -> AsyncIterator[Side]:
    side = make()
    try:
        yield side
    finally:
        await asyncio.to_thread(side.close)


class Ours(InTasks):
    name = "keystead"

    def __init__(self, data: SessionData) -> None:
        self._data = data

    async def begin(self, texts: list[str]) -> list[str]:
        sessions = []
        for text in texts:
            sessions.append(await self._data.begin())
            await self.write(sessions[-1], text)
        return sessions

    async def read(self, session: str) -> None:
        if await self._data.session(session).get(KEY) is None:
            raise RuntimeError("a written value is missing")

    async def write(self, session: str, value: str) -> None:
        if not await self._data.session(session).set(KEY, value):
            raise RuntimeError("a session is missing")


class Django(InThreads):
    name = "Django, db"

    def __init__(self, alias: str) -> None:
        super().__init__()
        self._sessions = DjangoSessions(alias)

    def begin_one(self, text: str) -> str:
        return self._sessions.begin(text)

    def read(self, session: str) -> None:
        self._sessions.read(session)  # a KeyError if it is missing

    def write(self, session: str, value: str) -> None:
        self._sessions.write(session, value)

    def save(self, session: str, value: str) -> None:
        self._sessions.save(session, value)

    def close_connection(self) -> None:
        self._sessions.close()


# --- by hand -----------------------------------------------------------------------------------------------

_TABLE = (
    "CREATE TABLE by_hand (session {name} NOT NULL, name {name} NOT NULL, value {text} NOT NULL,"
    " expires_at bigint NOT NULL, PRIMARY KEY (session, name))"
)
_SELECT = "SELECT value FROM by_hand WHERE session = %s AND name = %s AND expires_at > %s"
_INSERT = "INSERT INTO by_hand (session, name, value, expires_at) VALUES (%s, %s, %s, %s)"
_ON_CONFLICT = " ON CONFLICT (session, name) DO UPDATE SET value = excluded.value, expires_at = excluded.expires_at"
_ON_DUPLICATE = " ON DUPLICATE KEY UPDATE value = VALUES(value), expires_at = VALUES(expires_at)"


def _key_of(session: str) -> tuple[str, str, int]:
    return session, KEY, int(time.time())


def _row(session: str, value: str) -> tuple[str, str, str, int]:
    return session, KEY, value, int(time.time()) + HOUR_S


def _session_names() -> Iterator[str]:
    return (f"{number:064x}" for number in itertools.count(1))


class PsycopgByHand(InTasks):
    name = "psycopg, by hand"

    def __init__(self, pool: Any) -> None:
        self._pool = pool
        self._names = _session_names()

    async def begin(self, texts: list[str]) -> list[str]:
        sessions = [*itertools.islice(self._names, len(texts))]
        for session, text in zip(sessions, texts, strict=True):
            await self.write(session, text)
        return sessions

    async def read(self, session: str) -> None:
        async with self._pool.connection() as connection:
            cursor = await connection.execute(_SELECT, _key_of(session))
            if await cursor.fetchone() is None:
                raise RuntimeError("a written value is missing")

    async def write(self, session: str, value: str) -> None:
        async with self._pool.connection() as connection:
            await connection.execute(_INSERT + _ON_CONFLICT, _row(session, value))


@asynccontextmanager
async def psycopg_by_hand(port: int) -> AsyncIterator[Side]:
    from psycopg_pool import AsyncConnectionPool

    where = f"host=127.0.0.1 port={port} user=postgres dbname=keystead"
    async with AsyncConnectionPool(
        where, min_size=max(TASKS), max_size=max(TASKS), kwargs={"autocommit": True}, open=False
    ) as pool:
        async with pool.connection() as connection:
            await connection.execute(_TABLE.format(name="text", text="text").encode())
        yield PsycopgByHand(pool)


class ByHandInThreads(InThreads):
    def __init__(self) -> None:
        super().__init__()
        self._names = _session_names()
        self._here = threading.local()

    @abstractmethod
    def connect(self) -> Any: ...

    @property
    def connection(self) -> Any:
        if not hasattr(self._here, "connection"):
            self._here.connection = self.connect()
        return self._here.connection

    def begin_one(self, text: str) -> str:
        session = next(self._names)
        self.write(session, text)
        return session

    def close_connection(self) -> None:
        self.connection.close()


class PymysqlByHand(ByHandInThreads):
    name = "PyMySQL, by hand"

    def __init__(self, port: int) -> None:
        super().__init__()
        self._port = port
        with self.connect() as connection, connection.cursor() as cursor:
            cursor.execute(_TABLE.format(name="varchar(100) CHARACTER SET ascii", text="mediumtext"))

    def connect(self) -> Any:
        import pymysql

        return pymysql.connect(host="127.0.0.1", port=self._port, user="root", database="keystead", autocommit=True)

    def read(self, session: str) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(_SELECT, _key_of(session))
            if cursor.fetchone() is None:
                raise RuntimeError("a written value is missing")

    def write(self, session: str, value: str) -> None:
        with self.connection.cursor() as cursor:
            cursor.execute(_INSERT + _ON_DUPLICATE, _row(session, value))


class SqliteByHand(ByHandInThreads):
    name = "sqlite3, by hand"

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        connection = self.connect()
        connection.execute(_TABLE.format(name="text", text="text"))
        connection.close()

    def connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, timeout=60, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        return connection

    def read(self, session: str) -> None:
        if self.connection.execute(_SELECT.replace("%s", "?"), _key_of(session)).fetchone() is None:
            raise RuntimeError("a written value is missing")

    def write(self, session: str, value: str) -> None:
        self.connection.execute((_INSERT + _ON_CONFLICT).replace("%s", "?"), _row(session, value))
