"""A connection to PostgreSQL on the level of libpq.

`psycopg` has a higher level above this one. Measured on one core with a transaction that locks, reads 32 rows and
commits: 0.6 ms of Python time with its cursors (text form of arrays, state per cursor), 0.06 ms here, where statements
are prepared once, the first half of a transaction is sent in one pipeline, and values stay binary.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import psycopg
from psycopg import pq

from keystead.errors import StoreFull, StoreReadOnly, StoreRefused, StoreUnavailable
from keystead.stores.database.database_session import (
    Conflict,
    DatabaseConnectionLost,
    NoSuchTable,
    Result,
    Session,
    Statement,
    StatementFailed,
)
from keystead.stores.database.database_settings import DatabaseSettings
from keystead.stores.postgres.binary_values import decoder_of, encode_parameter

PREPARED = 200  # prepared statements; further ones are rare
# Keys are joined in the written order, by their index, whatever the statistics say: while a new database is filled, the
# statistics are those of empty tables, and their plan is a full scan per key. Measured: ten times the server's time per
# key, and growing. A new plan for each call was measured, too: twice the server's time.
_PLANS = (
    Statement("SET join_collapse_limit = 1"),
    Statement("SET enable_seqscan = off"),
    Statement("SET enable_hashjoin = off"),
    Statement("SET enable_mergejoin = off"),
)
_TRY_AGAIN = {"40001", "40P01", "55P03"}
_GONE = ("08", "57P")  # connection lost, or server shutting down


def connect(settings: DatabaseSettings) -> PostgresSession:
    """Raises StoreError, without the password in its message."""
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
    try:
        connection = psycopg.connect(
            autocommit=True, **{name: value for name, value in parameters.items() if value is not None}
        )
    except psycopg.Error as error:
        raise _no_connection(error, settings) from None
    except UnicodeError:  # an invalid host name
        raise StoreUnavailable(f"cannot reach {settings.url}: the host name is invalid") from None
    session = PostgresSession(connection, settings)
    timeout_ms = int(settings.timeout * 1000)
    limits = (
        ("statement_timeout", timeout_ms),
        ("lock_timeout", timeout_ms),
        ("idle_in_transaction_session_timeout", max(timeout_ms * 2, 1_000)),  # for a suspended process
    )
    try:
        # Not as connection options: a connection pooler may refuse those.
        session.ask([*(Statement(f"SET {name} = {value:d}") for name, value in limits), *_PLANS])
    except (DatabaseConnectionLost, Conflict) as error:
        raise StoreUnavailable(f"{settings.url} closed the connection: {error}") from None
    except StatementFailed as failed:
        session.close()
        raise failed.error from None
    return session


def _no_connection(error: psycopg.Error, settings: DatabaseSettings) -> Exception:
    message = settings.without_secrets(" ".join(str(error).split()))
    code = error.sqlstate or ""
    if code.startswith("28") or "password authentication failed" in message or "no password supplied" in message:
        return StoreRefused(f"{settings.url} denies access; check user and password of the URL ({message})")
    if "no pg_hba.conf entry" in message:
        return StoreRefused(f"{settings.url} denies access from this host: {message}")
    if code == "3D000" or ("database " in message and "does not exist" in message):
        return StoreRefused(f"{settings.url}: there is no such database; create it first ({message})")
    if "role " in message and "does not exist" in message:
        return StoreRefused(f"{settings.url} denies access; check user and password of the URL ({message})")
    if "certificate" in message or "SSL" in message:
        return StoreRefused(f"no TLS connection to {settings.url}: {message}; check tls, ca and verify")
    return StoreUnavailable(f"cannot reach {settings.url}: {message}; is the server running there?")


class _Prepared:
    __slots__ = ("name", "receivers")

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.receivers: list[Callable[[bytes], Any]] | None = None


class PostgresSession(Session):
    def __init__(self, connection: psycopg.Connection[Any], settings: DatabaseSettings) -> None:
        self.ids = []
        self._connection = connection
        self._libpq = connection.pgconn
        self._settings = settings
        self._prepared: dict[str, _Prepared] = {}
        self._lost = False
        self._libpq.nonblocking = 1
        self._poll = select.poll()
        self._poll.register(self._libpq.socket, select.POLLIN)
        self._libpq.enter_pipeline_mode()

    @property
    def libpq(self) -> pq.abc.PGconn:
        return self._libpq

    def ask(self, statements: Sequence[Statement]) -> list[Result]:
        if self._lost:
            raise DatabaseConnectionLost("the connection was lost before")
        try:
            expected = [self._send(statement) for statement in statements]
            self._libpq.pipeline_sync()  # sends everything at once: separate packets would wake the server each time
            return self._receive(expected)
        except (psycopg.OperationalError, OSError) as error:
            self.close()
            raise DatabaseConnectionLost(str(error)) from None

    def _send(self, statement: Statement) -> tuple[_Prepared, bool]:
        """Send one statement; returns whether it was prepared first, which has a separate result."""
        words, parameters = statement
        prepared = self._prepared.get(words)
        new = prepared is None
        if prepared is None:
            if len(self._prepared) >= PREPARED:
                # Not cached: the next one with this text replaces it under the same name.
                prepared = _Prepared(b"")
            else:
                prepared = self._prepared[words] = _Prepared(b"k%d" % len(self._prepared))
            self._libpq.send_prepare(prepared.name, words.encode())
        self._libpq.send_query_prepared(
            prepared.name, [encode_parameter(value) for value in parameters], [1] * len(parameters), 1
        )
        return prepared, new

    def _flush(self) -> None:
        """Flush the send buffer; if the server does not accept it, read its replies meanwhile."""
        while self._libpq.flush():
            both = select.poll()
            both.register(self._libpq.socket, select.POLLIN | select.POLLOUT)
            if any(events & select.POLLIN for _, events in both.poll()):
                self._libpq.consume_input()

    def _receive(self, expected: Sequence[tuple[_Prepared, bool]]) -> list[Result]:
        results: list[Result] = []
        failure: pq.abc.PGresult | None = None
        self._flush()
        for prepared, new in expected:
            if new:
                made = self._next()
                if made.status != pq.ExecStatus.COMMAND_OK:
                    self._forget(prepared)
                    failure = failure or (made if made.status == pq.ExecStatus.FATAL_ERROR else None)
            found = self._next()
            if found.status == pq.ExecStatus.TUPLES_OK:
                results.append(_read(prepared, found))
            elif found.status == pq.ExecStatus.COMMAND_OK:
                results.append(Result([], found.command_tuples or 0))
            elif found.status == pq.ExecStatus.FATAL_ERROR:
                failure = failure or found
        self._next()  # the end of the pipeline
        if failure is not None:
            raise self._error(failure)
        return results

    def _next(self) -> pq.abc.PGresult:
        libpq = self._libpq
        while True:
            while libpq.is_busy():
                self._poll.poll()
                libpq.consume_input()
            result = libpq.get_result()
            if result is not None:
                return result
            if libpq.status == pq.ConnStatus.BAD:
                raise DatabaseConnectionLost("the server closed the connection")

    def _forget(self, prepared: _Prepared) -> None:
        for words, known in list(self._prepared.items()):
            if known is prepared:
                # Its name stays reserved.
                self._prepared[f"-- {len(self._prepared)} {time.monotonic_ns()}"] = self._prepared.pop(words)

    def _error(self, result: pq.abc.PGresult) -> Exception:
        code = (result.error_field(pq.DiagnosticField.SQLSTATE) or b"").decode()
        message = (result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or result.error_message or b"").decode(
            "utf-8", "replace"
        )
        url = self._settings.url
        if code in _TRY_AGAIN:
            return Conflict(message)
        if code == "57014":  # statement_timeout
            return Conflict(f"{url} did not finish within {self._settings.timeout:g} s")
        if not code or code.startswith(_GONE):
            self.close()
            return DatabaseConnectionLost(message)
        if code in ("42P01", "3F000"):
            return NoSuchTable(message)
        if code == "25006" or "during recovery" in message:
            return StatementFailed(
                StoreReadOnly(f"{url} is read-only ({message}); use the address of its primary, or another user")
            )
        if code in ("42501", "28000", "28P01"):
            return StatementFailed(StoreRefused(f"{url} denies this to the user: {message}"))
        if code in ("53100", "53200", "54000", "22001") or message.startswith("invalid memory alloc request"):
            return StatementFailed(StoreFull(f"{url} is full: {message}"))
        if code == "53300":  # too many connections
            return StatementFailed(StoreUnavailable(f"{url} is unavailable: {message}"))
        return StatementFailed(StoreUnavailable(f"{url} failed: {message} ({code})"))

    def roll_back(self) -> None:
        if not self._lost and self._libpq.transaction_status != pq.TransactionStatus.IDLE:
            with suppress(Conflict, StatementFailed):
                self.ask([Statement("ROLLBACK")])

    def close(self) -> None:
        self._lost = True
        with suppress(psycopg.Error, OSError):
            self._connection.close()

    def sever(self) -> None:
        # A socket on a copy of the descriptor: libpq keeps its own, and notices the shutdown.
        with suppress(psycopg.Error, OSError), socket.socket(fileno=os.dup(self._libpq.socket)) as sock:
            sock.shutdown(socket.SHUT_RDWR)


def _read(prepared: _Prepared, found: pq.abc.PGresult) -> Result:
    receivers = prepared.receivers
    if receivers is None or not prepared.name:
        receivers = prepared.receivers = [decoder_of(found.ftype(column)) for column in range(found.nfields)]
    get = found.get_value
    columns = list(enumerate(receivers))
    rows = [
        tuple([None if (value := get(row, column)) is None else read(value) for column, read in columns])
        for row in range(found.ntuples)
    ]
    return Result(rows, len(rows))
