"""Driver errors: whether to retry, and otherwise a readable message without secrets."""

from __future__ import annotations

import sqlite3
from typing import Final

from sqlalchemy.exc import DBAPIError, IntegrityError, InterfaceError, OperationalError

from keystead.errors import StoreError, StoreFull, StoreReadOnly, StoreRefused, StoreUnavailable
from keystead.stores.database.database_settings import DatabaseSettings
from keystead.stores.sqlite.database_file import explain, is_locked

_AGAIN_POSTGRES: Final = {"40001", "40P01", "55P03"}  # serialization, deadlock, a lock that was not free in time
_AGAIN_MYSQL: Final = {1020, 1205, 1213}  # changed since it was read, a lock not free in time, deadlock
_LOST_POSTGRES: Final = ("08", "57P")
_LOST_MYSQL: Final = {0, 1053, 1158, 1159, 1160, 1161, 1927, 2006, 2013, 2014, 2055, 4031}


def is_conflict(error: DBAPIError) -> bool:
    """Whether this is a conflict, so that a retry of the transaction may succeed."""
    found = error.orig
    if isinstance(found, sqlite3.Error):
        return is_locked(found)
    return _state(found) in _AGAIN_POSTGRES or (_is_mysql(found) and _number(found) in _AGAIN_MYSQL)


def is_lost(error: DBAPIError) -> bool:
    """Whether the connection was lost."""
    found = error.orig
    if error.connection_invalidated:
        return True
    if _is_mysql(found):
        return _number(found) in _LOST_MYSQL
    if isinstance(found, sqlite3.Error) or not isinstance(error, OperationalError | InterfaceError):
        return False
    state = _state(found)
    return not state or state.startswith(_LOST_POSTGRES)


def in_words(error: DBAPIError, url: str) -> StoreError:
    """An error a person can act on. The statement and its values are not in it."""
    found = error.orig
    if isinstance(found, sqlite3.IntegrityError):
        return StoreError(f"{url} refused a row that violates a constraint of its table ({found})")
    if isinstance(found, sqlite3.Error):
        return explain(found, url.removeprefix("sqlite:///"))
    message, state, number = _message_of(found), _state(found), _number(found)
    if isinstance(error, IntegrityError):  # MySQL's message contains the value
        return StoreError(f"{url} refused a row that violates a constraint of its table ({state or number})")
    if state == "57014":
        return StoreUnavailable(f"{url} timed out; try again")
    if state == "25006" or number in (1290, 1792, 1836):
        return StoreReadOnly(f"{url} is read-only ({message}); use the address of its primary, or another user")
    if state == "42501" or number in (1044, 1142, 1143, 1227):
        return StoreRefused(f"{url} denies this to the user: {message}")
    if state in ("53100", "53200") or number in (1021, 1041, 1114, 1153, 1406):
        return StoreFull(f"{url} is full: {message}")
    return StoreUnavailable(f"{url} failed: {message} ({state or number})")


def no_connection(error: Exception, settings: DatabaseSettings) -> StoreError:
    """Why a server cannot be connected to."""
    message, state, number = settings.without_secrets(_message_of(error)), _state(error), _number(error)
    if state.startswith("28") or number in (1044, 1045, 1130, 1698) or "password" in message or "role " in message:
        return StoreRefused(f"{settings.url} denies access; check user and password of the URL ({message})")
    if state == "3D000" or number == 1049 or ("database " in message and "does not exist" in message):
        return StoreRefused(f"{settings.url}: there is no such database; create it first ({message})")
    if "SSL" in message or "certificate" in message:
        return StoreRefused(f"no TLS connection to {settings.url}: {message}; check tls, ca and verify")
    return StoreUnavailable(f"cannot reach {settings.url}: {message}; is the server running there?")


def _message_of(error: BaseException | None) -> str:
    text = error.args[1] if _is_mysql(error) and error is not None and len(error.args) > 1 else error
    # The lines after the first contain values of the row.
    return str(text).strip().partition("\n")[0]


def _state(error: BaseException | None) -> str:
    return getattr(error, "sqlstate", None) or ""


def _number(error: BaseException | None) -> int:
    first = error.args[0] if error is not None and error.args else 0
    return first if isinstance(first, int) else 0


def _is_mysql(error: BaseException | None) -> bool:
    return type(error).__module__.startswith("pymysql")
