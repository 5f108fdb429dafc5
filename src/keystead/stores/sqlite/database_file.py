"""Opens a database file, and explains its errors."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing, suppress
from pathlib import Path

from keystead.errors import StoreDamaged, StoreError, StoreFull, StoreReadOnly, StoreUnavailable
from keystead.stores.sqlite.sqlite_tables import SCHEMA, SCHEMA_VERSION

APPLICATION_ID = 0x4B535444  # "KSTD", for `file` and other tools
OLDEST_SQLITE = (3, 35, 0)  # RETURNING


def connect(path: str, *, wait_ms: int = 0) -> sqlite3.Connection:
    """A connection without automatic transactions. `wait_ms`: how long SQLite itself waits for a lock."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
    try:
        connection.execute(f"PRAGMA busy_timeout = {wait_ms:d}")
        # Half of SQLite's default: a group of small writes touches a page each, and every page goes into the log whole.
        connection.execute("PRAGMA page_size = 2048")
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute("PRAGMA wal_autocheckpoint = 0")  # see store.py: it would stall the commit it falls on
        connection.execute("PRAGMA cache_size = -16384")
    except BaseException:
        connection.close()
        raise
    return connection


def prepare(path: str, wait_ms: int) -> sqlite3.Connection:
    """Open a file for writing, and make it a Keystead database if it is new. Raises StoreError.

    Waits up to `wait_ms` for other processes, and leaves a file that it refuses as it is.
    """
    if sqlite3.sqlite_version_info < OLDEST_SQLITE:
        raise StoreUnavailable(f"Python's SQLite is {sqlite3.sqlite_version}; Keystead needs 3.35 or later")
    folder = Path(path).parent
    if path != ":memory:" and not folder.is_dir():
        raise StoreUnavailable(f"cannot open {path}: the folder {folder} does not exist; create it first")
    end = time.monotonic() + wait_ms / 1000
    while True:
        try:
            return _open_prepared(path, wait_ms)
        except sqlite3.Error as error:
            # SQLite does not wait when several processes switch a new file to WAL at once.
            if not is_locked(error) or time.monotonic() > end:
                raise explain(error, path) from None
        time.sleep(0.002)


def _open_prepared(path: str, wait_ms: int) -> sqlite3.Connection:
    if path != ":memory:":
        _peek(path)
    connection = connect(path, wait_ms=wait_ms)
    try:
        if path != ":memory:":
            _refuse_others(connection, path)
            connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN IMMEDIATE")
        new = _pragma(connection, "user_version") == 0
        if new:
            for statement in SCHEMA.split(";")[:-1]:
                connection.execute(statement)
            connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        # Detects a read-only file here, not at the first write: BEGIN IMMEDIATE succeeds even then.
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT" if new else "ROLLBACK")
        connection.execute("PRAGMA busy_timeout = 0")
    except BaseException:
        connection.close()
        raise
    return connection


def _peek(path: str) -> None:
    """Refuse a file of another program without writing to it: closing a writable connection checkpoints its log."""
    url = f"{Path(path).absolute().as_uri()}?mode=ro"
    # Not an error here: there is no file yet, or it cannot be read without write access.
    with suppress(sqlite3.Error), closing(sqlite3.connect(url, uri=True, timeout=0)) as connection:
        _refuse_others(connection, path)


def _refuse_others(connection: sqlite3.Connection, path: str) -> None:
    """Refuse a database of another program, or of a later Keystead."""
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    version = _pragma(connection, "user_version")
    if (tables or version) and _pragma(connection, "application_id") != APPLICATION_ID:
        raise StoreDamaged(f"{path} is a SQLite database of another program; choose another file. It was not changed")
    if version > SCHEMA_VERSION:
        raise StoreDamaged(f"{path} was written by a later Keystead (schema {version}); upgrade this one to use it")


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    value: int = connection.execute(f"PRAGMA {name}").fetchone()[0]
    return value


def is_locked(error: Exception) -> bool:
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def explain(error: sqlite3.Error | OverflowError, path: str) -> StoreError:
    """An error of SQLite as an error of Keystead."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if is_locked(error):
        return StoreUnavailable(f"{path} stays locked by another process; find it and end it")
    if code == sqlite3.SQLITE_READONLY or (code == sqlite3.SQLITE_CANTOPEN and not _is_writable(path)):
        return StoreReadOnly(f"{path} is read-only ({error}); check the permissions of the file and of its folder")
    if code == sqlite3.SQLITE_FULL:
        return StoreFull(f"the disk of {path} is full; free some space. Stored data is unchanged")
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return StoreDamaged(f"{path} is not a SQLite database, or damaged ({error}); choose another or restore a copy")
    if code == sqlite3.SQLITE_CANTOPEN:
        return StoreUnavailable(f"cannot open {path} ({error}); check that it is a file in a writable folder")
    if code == sqlite3.SQLITE_TOOBIG or isinstance(error, sqlite3.DataError | OverflowError):
        return StoreFull(f"a value is too large for SQLite ({error})")
    return StoreUnavailable(f"{path} failed: {error}", "unknown")


def _is_writable(path: str) -> bool:
    """Whether this user may write the file, and create the log beside it."""
    return os.access(Path(path).parent, os.W_OK) and (not Path(path).exists() or os.access(path, os.W_OK))
