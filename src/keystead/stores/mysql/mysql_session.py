"""A connection to MySQL or MariaDB, with PyMySQL.

Statements are sent together as one multi-statement text. Values are hexadecimal literals: they mean the same in every
SQL mode and character set of a server, and prevent SQL injection.
"""

from __future__ import annotations

import math
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import pymysql
from pymysql.constants import CLIENT

from keystead.errors import StoreError, StoreFull, StoreReadOnly, StoreRefused, StoreUnavailable
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
from keystead.stores.mysql.mysql_replies import MysqlReplies

_LOST = {1053, 1158, 1159, 1160, 1161, 1927, 2006, 2013, 2014, 2055, 4031}
_TRY_AGAIN = {1020, 1205, 1213, 1969, 3024, 3572}
_READ_ONLY = {1290, 1792, 1836}
_REFUSED = {1044, 1045, 1095, 1142, 1143, 1227, 1370, 1410, 1698}
_FULL = {1021, 1041, 1114, 1118, 1153, 1301, 1406}
_SENT_AT_ONCE = 1 << 14  # bytes that the buffer of an idle socket has room for
_MODE = "NO_AUTO_VALUE_ON_ZERO,STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION"


def connect(settings: DatabaseSettings) -> MysqlSession:
    """Raises StoreError, without the password in its message."""
    where: dict[str, Any] = (
        {"unix_socket": settings.socket} if settings.socket else {"host": settings.host, "port": settings.port}
    )
    try:
        connection = pymysql.connect(
            user=settings.user,
            password=settings.password or "",
            database=settings.database,
            charset="utf8mb4",
            autocommit=True,
            client_flag=CLIENT.MULTI_STATEMENTS | CLIENT.FOUND_ROWS,
            connect_timeout=max(1, math.ceil(settings.connect_timeout)),
            read_timeout=math.ceil(settings.timeout) + 1,
            write_timeout=math.ceil(settings.timeout) + 1,
            sql_mode=_MODE,
            init_command="SET SESSION time_zone = '+00:00', innodb_lock_wait_timeout = "
            f"{max(1, math.ceil(settings.timeout)):d}",
            **where,
            **settings.tls,
        )
        session = MysqlSession(connection, settings)
    except (pymysql.Error, OSError, UnicodeError) as error:
        raise _no_connection(error, settings) from None
    try:
        session.ask([Statement("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED")])
        session.largest = session.ask([Statement("SELECT @@max_allowed_packet")])[0].fetchone()[0]
    except (DatabaseConnectionLost, Conflict) as error:
        session.close()
        raise StoreUnavailable(f"{settings.url} closed the connection: {error}") from None
    except StatementFailed as failed:
        session.close()
        raise failed.error from None
    return session


def _no_connection(error: Exception, settings: DatabaseSettings) -> StoreError:
    code, message = _code_and_message(error)
    message = settings.without_secrets(message)
    if code in (1044, 1045, 1698, 1130):
        return StoreRefused(f"{settings.url} denies access; check user and password of the URL ({message})")
    if code == 1049:
        return StoreRefused(f"{settings.url}: there is no such database; create it first ({message})")
    if "SSL" in message or "certificate" in message:
        return StoreRefused(f"no TLS connection to {settings.url}: {message}; check tls, ca and verify")
    return StoreUnavailable(f"cannot reach {settings.url}: {message}; is the server running there?")


def _code_and_message(error: Exception) -> tuple[int, str]:
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    return code, " ".join(str(error.args[1] if len(error.args) > 1 else error).split())


class MysqlSession(Session):
    largest = 1 << 22  # the server's max_allowed_packet

    def __init__(self, connection: Any, settings: DatabaseSettings) -> None:
        self.ids = []
        self._connection = connection
        self._replies = MysqlReplies(connection)
        self._settings = settings
        self._in_transaction = False
        self._lost = False
        if type(connection._sock) is socket.socket:  # without TLS
            self.descriptor = connection._sock.fileno()

    def ask(self, statements: Sequence[Statement]) -> list[Result]:
        if self._lost:
            raise DatabaseConnectionLost("the connection was lost before")
        results: list[Result] = []
        for text, count in self._packets(statements):
            try:
                results += self._replies.ask(text, count)
            except BaseException as error:
                raise self._explain(error) from None
        if statements[-1].words in ("COMMIT", "ROLLBACK"):
            self._in_transaction = False
        return results

    def begin(self, statement: Statement) -> bool:
        text = _render(statement)
        if self._lost or len(text) > _SENT_AT_ONCE:
            return False
        try:
            self._replies.begin(text)
        except (OSError, AttributeError):
            self.close()
            return False
        return True

    def receive(self) -> Result | None:
        try:
            return self._replies.receive()
        except BaseException as error:
            raise self._explain(error) from None

    def _packets(self, statements: Sequence[Statement]) -> Iterator[tuple[str, int]]:
        """All statements as one text, or as several if one would be too large for the server."""
        texts: list[str] = []
        size = 0
        for statement in statements:
            if statement.words.startswith("START"):
                self._in_transaction = True
            text = _render(statement)
            if len(text) > self.largest - 1024:
                raise StatementFailed(
                    StoreFull(
                        f"{self._settings.url} takes statements of at most {self.largest:,} bytes (its"
                        f" max_allowed_packet), and a value takes twice its length; this one has {len(text):,}"
                    )
                )
            if texts and size + len(text) > self.largest - 1024:
                yield ";".join(texts), len(texts)
                texts, size = [], 0
            texts.append(text)
            size += len(text) + 1
        if texts:
            yield ";".join(texts), len(texts)

    def _explain(self, error: BaseException) -> BaseException:
        if isinstance(error, pymysql.Error):
            return self._error(error)
        self.close()
        # Without its socket, PyMySQL raises any of these.
        return DatabaseConnectionLost(str(error)) if isinstance(error, OSError | AttributeError | EOFError) else error

    def _error(self, error: pymysql.Error) -> Exception:
        code, message = _code_and_message(error)
        url = self._settings.url
        if code in _LOST or isinstance(error, pymysql.InterfaceError) or code == 0:
            self.close()
            return DatabaseConnectionLost(message)
        if code in _TRY_AGAIN:
            return Conflict(message)
        if code == 1146:
            return NoSuchTable(message)
        if code in _READ_ONLY:
            return StatementFailed(
                StoreReadOnly(f"{url} is read-only ({message}); use the address of its primary, or another user")
            )
        if code in _REFUSED:
            return StatementFailed(StoreRefused(f"{url} denies this to the user: {message}"))
        if code in _FULL:
            return StatementFailed(StoreFull(f"{url} is full: {message}"))
        return StatementFailed(StoreUnavailable(f"{url} failed: {message} ({code})"))

    def roll_back(self) -> None:
        if not self._lost and self._in_transaction:
            with suppress(Conflict, StatementFailed, DatabaseConnectionLost):
                self.ask([Statement("ROLLBACK")])

    def close(self) -> None:
        self._lost = True
        with suppress(pymysql.Error, OSError):
            self._connection.close()

    def sever(self) -> None:
        sock = getattr(self._connection, "_sock", None)
        if sock is not None:
            with suppress(OSError, ValueError), socket.socket(fileno=os.dup(sock.fileno())) as copy:
                copy.shutdown(socket.SHUT_RDWR)


def _render(statement: Statement) -> str:
    """A statement with its parameters inserted."""
    words, parameters = statement
    if not parameters:
        return words
    parts = words.split("?")
    if len(parts) != len(parameters) + 1:
        raise ValueError(f"{len(parameters)} parameters do not fit: {words[:200]}")
    written = [parts[0]]
    for value, part in zip(parameters, parts[1:], strict=True):
        written += (_literal(value), part)
    return "".join(written)


def _literal(value: Any) -> str:
    match value:
        case bytes():
            return f"X'{value.hex()}'"
        case None:
            return "NULL"
        case int():
            return str(int(value))
        case str():
            return f"X'{value.encode().hex()}'"
    raise TypeError(f"not a parameter of a statement: {type(value).__name__}")
