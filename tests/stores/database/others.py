"""What other programs do to the tables of a store, in the SQL of its server."""

import dataclasses
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from keystead import connect
from keystead.stores.database.database_schema import SchemaChange
from keystead.stores.database.database_session import Statement
from keystead.stores.database.database_store import DatabaseStore
from keystead.stores.mysql import mysql_dialect as mysql
from keystead.stores.postgres import postgres_dialect as postgres
from tests.servers import DatabaseServer, MariadbServer, PostgresServer
from tests.stores.sqlite.processes import until


class Other:
    """A separate connection to the server, in one transaction."""

    def __init__(self, server: DatabaseServer) -> None:
        self._postgres = isinstance(server, PostgresServer)
        assert isinstance(server, PostgresServer | MariadbServer)
        self._connection: Any = server._connect(server.database)
        self.do("SET deadlock_timeout = '60s'" if self._postgres else "SET innodb_lock_wait_timeout = 60")
        self.do("BEGIN")

    def do(self, words: str) -> list[Any]:
        if self._postgres:
            cursor = self._connection.execute(words)
            return list(cursor.fetchall()) if cursor.description else []
        with self._connection.cursor() as cursor:
            cursor.execute(words)
            return list(cursor.fetchall())

    def lock_key(self, key: bytes) -> None:
        """As a writer of this key does first of all."""
        if self._postgres:
            self.do(f"SELECT pg_advisory_xact_lock({postgres.lock_number(key)})")
        else:
            self.do(f"SELECT n FROM keystead_locks WHERE n = {mysql.lock_number(key)} FOR UPDATE")

    def touch_row(self, key: str) -> None:
        if self._postgres:
            self.do(f"UPDATE keystead.keys SET size = size WHERE key = '{key}'::bytea")
        else:
            self.do(f"UPDATE keystead_keys SET size = size + 0, kind = kind WHERE `key` = '{key}'")

    def touch_fields(self) -> None:
        table = "keystead.fields" if self._postgres else "keystead_fields"
        self.do(f"UPDATE {table} SET value = value")
        if not self._postgres:  # which ends the transaction that changed less
            self.do("INSERT INTO keystead_garbage VALUES (-1, 2), (-2, 2), (-3, 2), (-4, 2), (-5, 2), (-6, 2)")

    def close(self) -> None:
        self.do("ROLLBACK")
        self._connection.close()


@contextmanager
def other(server: DatabaseServer) -> Iterator[Other]:
    somebody = Other(server)
    try:
        yield somebody
    finally:
        somebody.close()


def waiting(server: DatabaseServer) -> int:
    """The number of sessions that wait for a lock."""
    if isinstance(server, PostgresServer):
        return int(server.query("SELECT count(*) FROM pg_locks WHERE NOT granted")[0][0])
    return int(server.query("SHOW GLOBAL STATUS LIKE 'Innodb_row_lock_current_waits'")[0][1])


def deadlocks(server: DatabaseServer) -> int:
    if isinstance(server, PostgresServer):
        return int(
            server.query("SELECT pg_stat_get_db_deadlocks(oid) FROM pg_database WHERE datname = 'keystead'")[0][0]
        )
    return int(server.query("SHOW GLOBAL STATUS LIKE 'Innodb_deadlocks'")[0][1])


def in_a_thread(job: Any) -> threading.Thread:
    thread = threading.Thread(target=job)
    thread.start()
    return thread


async def until_one_waits(server: DatabaseServer) -> None:
    await until(lambda: waiting(server) > 0, "somebody waits for a lock")


def fresh(server: DatabaseServer) -> str:
    """The URL of a new database."""
    force = " WITH (FORCE)" if isinstance(server, PostgresServer) else ""
    server.query(f"DROP DATABASE IF EXISTS fresh{force}")
    server.query("CREATE DATABASE fresh")
    return server.url.replace("/keystead", "/fresh")


def garbage_table(url: str) -> str:
    return "keystead.garbage" if url.startswith("postgresql:") else "keystead_garbage"


def next_version(url: str) -> DatabaseStore:
    """The store of the next version of Keystead: the same, plus one migration that is not idempotent."""
    store = connect(url)
    assert isinstance(store, DatabaseStore)
    added = Statement(f"ALTER TABLE {garbage_table(url)} ADD COLUMN since bigint")
    step = SchemaChange(2, "remembers since when", (added,))
    store.schema = dataclasses.replace(store.schema, changes=(*store.schema.changes, step))
    return store


def connections(server: DatabaseServer) -> int:
    """The number of connections, except those of the test."""
    if isinstance(server, PostgresServer):
        words = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'keystead'"
    else:
        words = "SELECT count(*) - 1 FROM information_schema.processlist WHERE db = 'keystead'"
    return int(server.query(words)[0][0])


def end_connections(server: DatabaseServer) -> None:
    """End what stores that were never closed have left: their worker shares this server with other tests."""
    if isinstance(server, PostgresServer):
        server.query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'keystead'")
        return
    for (number,) in server.query(
        "SELECT id FROM information_schema.processlist WHERE db = 'keystead' AND id <> connection_id()"
    ):
        server.query(f"KILL {number}")
