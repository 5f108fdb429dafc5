"""SQLAlchemy engines from URLs, with the drivers and options of the stores."""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.pool import QueuePool, StaticPool

from keystead.errors import BadUrl, StoreDamaged, StoreUnavailable
from keystead.parts.tables.changes import APPLICATION_ID
from keystead.parts.tables.failures import no_connection
from keystead.stores import durations
from keystead.stores.database.database_settings import DatabaseSettings
from keystead.stores.database.database_store import DatabaseStore
from keystead.stores.durations import seconds
from keystead.stores.sqlite.database_file import explain, is_locked
from keystead.stores.sqlite.sqlite_store import MEMORY, SqliteStore
from keystead.stores.store_urls import connect

UPGRADE_S: Final = 600.0  # for an upgrade, and for waiting for that of another process
READS: Final = "keystead_reads"  # the execution option of a transaction that writes nothing
_MODE: Final = "NO_AUTO_VALUE_ON_ZERO,STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION"
_SQLITE_CONNECTIONS: Final = 4


@dataclass(frozen=True)
class TableLocation:
    """The location of tables, and the engines to reach them."""

    url: str  # without secrets
    engine: Engine
    upgrading: Engine  # with a longer timeout: changing a large table takes time
    connections: int
    timeout: float  # of a transaction in seconds, retries included
    file: Path | None = None  # of SQLite


def place_of(url: str) -> TableLocation:
    """Parse a URL in the form of store URLs. Connects to nothing. Raises BadUrl or MissingExtra."""
    store = connect(url)  # parses the URL and imports the driver; it is not opened
    if isinstance(store, SqliteStore):
        return _sqlite(store, url)
    if isinstance(store, DatabaseStore):
        make = _postgres if store.url.startswith("postgres") else _mysql
        settings = store.settings
        patient = replace(settings, timeout=max(settings.timeout, UPGRADE_S), pool=1)
        return TableLocation(settings.url, make(settings), make(patient), settings.pool, settings.timeout)
    scheme = url.partition("://")[0]
    raise BadUrl(
        f"{scheme}:// cannot have tables; write sqlite:///tables.db, postgresql://user@host/database or mysql://…, or memory://"
    )


def url_beside(store_url: str) -> str | None:
    """The default location of tables: beside the store's own data.

    For a SQLite file a second file, `keystead.tables.db` for `keystead.db`, so that neither waits for the other's
    writes; the same database on PostgreSQL and MySQL; memory for memory. None: this store has no such place (Redis,
    Memcached), and the caller has to name one.
    """
    store = connect(store_url)
    if isinstance(store, DatabaseStore):
        return store_url
    if not isinstance(store, SqliteStore):
        return None
    if store.path == MEMORY:
        return store_url
    location, mark, query = store_url.partition("?")
    folder, slash, file = location.rpartition("/")
    stem, dot, suffix = file.rpartition(".")
    named = f"{stem}.tables.{suffix}" if dot and stem else f"{file}.tables"
    return f"{folder}{slash}{named}{mark}{query}"


# --- SQLite ------------------------------------------------------------------------------------------------


def _sqlite(store: SqliteStore, url: str) -> TableLocation:
    memory = store.path == MEMORY
    options = dict(parse_qsl(url.partition("?")[2]))
    timeout = seconds("timeout", options["timeout"]) if "timeout" in options else durations.TIMEOUT_S
    engine = create_engine(
        "sqlite+pysqlite://",
        creator=lambda: _sqlite_connection(store.path, timeout),
        hide_parameters=True,
        **_pool_options(0 if memory else _SQLITE_CONNECTIONS),
    )
    event.listen(engine, "begin", _begin_sqlite)
    if memory:
        return TableLocation(store.url, engine, engine, 1, timeout)
    return TableLocation(store.url, engine, engine, _SQLITE_CONNECTIONS, timeout, Path(store.path))


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that starts with a read and writes later fails if another has written in between.
    reads = connection.get_execution_options().get(READS)
    connection.exec_driver_sql("BEGIN" if reads else "BEGIN IMMEDIATE")


def _sqlite_connection(path: str, timeout: float) -> sqlite3.Connection:
    folder = Path(path).parent
    if path != MEMORY and not folder.is_dir():
        raise StoreUnavailable(f"cannot open {path}: the folder {folder} does not exist; create it first")
    try:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise explain(error, path) from None
    try:
        connection.execute(f"PRAGMA busy_timeout = {int(timeout * 1000):d}")
        _refuse_others(connection, path)
        _switch_to_log(connection, time.monotonic() + timeout)
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA foreign_keys = ON")
    except sqlite3.Error as error:
        connection.close()
        raise explain(error, path) from None
    except BaseException:
        connection.close()
        raise
    return connection


def _switch_to_log(connection: sqlite3.Connection, end: float) -> None:
    """Switch to the write-ahead log. SQLite itself does not wait if several processes do so on a new file."""
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.Error as error:
            if not is_locked(error) or time.monotonic() > end:
                raise
        time.sleep(0.002)


def _refuse_others(connection: sqlite3.Connection, path: str) -> None:
    held = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if held and connection.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
        raise StoreDamaged(
            f"{path} is a SQLite database of another program, or a store; choose another file for tables. Nothing in"
            " it was changed"
        )


# --- servers -----------------------------------------------------------------------------------------------


def _pool_options(connections: int) -> dict[str, Any]:
    """One connection for each thread, so that no thread waits; 0: a single permanent one."""
    return (
        {"poolclass": QueuePool, "pool_size": connections, "max_overflow": 0}
        if connections
        else {"poolclass": StaticPool}
    )


def _server(dialect: str, settings: DatabaseSettings, creator: Callable[[], Any]) -> Engine:
    return create_engine(
        f"{dialect}://",  # without the URL's user and password: SQLAlchemy never sees them
        creator=creator,
        isolation_level="READ COMMITTED",  # transactions lock what must not change
        hide_parameters=True,
        **_pool_options(settings.pool),
    )


def _postgres(settings: DatabaseSettings) -> Engine:
    import psycopg

    parameters: dict[str, Any] = {
        "dbname": settings.database,
        "user": settings.user,
        "password": settings.password,
        "host": settings.socket or settings.host,
        "port": settings.port,
        "connect_timeout": max(2, round(settings.connect_timeout)),
        "application_name": "keystead",
        "client_encoding": "utf8",
        **settings.tls,
    }
    timeout_ms = int(settings.timeout * 1000)
    limits = {
        "statement_timeout": timeout_ms,
        "lock_timeout": timeout_ms,
        "idle_in_transaction_session_timeout": max(timeout_ms * 2, 1_000),  # for a process that hangs
    }

    def creator() -> Any:
        try:
            connection = psycopg.connect(
                autocommit=True, **{name: value for name, value in parameters.items() if value is not None}
            )
            # Not as connection options: a connection pooler may refuse those.
            connection.execute(";".join(f"SET {name} = {value:d}" for name, value in limits.items()).encode())
            connection.autocommit = False
        except (psycopg.Error, UnicodeError) as error:
            raise no_connection(error, settings) from None
        return connection

    return _server("postgresql+psycopg", settings, creator)


def _mysql(settings: DatabaseSettings) -> Engine:
    import pymysql
    from pymysql.constants import CLIENT

    where: dict[str, Any] = (
        {"unix_socket": settings.socket} if settings.socket else {"host": settings.host, "port": settings.port}
    )
    whole_seconds = max(1, math.ceil(settings.timeout))

    def creator() -> Any:
        try:
            return pymysql.connect(
                user=settings.user,
                password=settings.password or "",
                database=settings.database,
                charset="utf8mb4",
                client_flag=CLIENT.FOUND_ROWS,
                connect_timeout=max(1, math.ceil(settings.connect_timeout)),
                read_timeout=whole_seconds + 1,
                write_timeout=whole_seconds + 1,
                sql_mode=_MODE,
                init_command=f"SET SESSION time_zone = '+00:00', innodb_lock_wait_timeout = {whole_seconds:d}",
                **where,
                **settings.tls,
            )
        except (pymysql.Error, OSError, UnicodeError) as error:
            raise no_connection(error, settings) from None

    return _server("mysql+pymysql", settings, creator)
