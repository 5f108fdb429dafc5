"""Driver errors: whether to retry, and otherwise a message for people, without secrets."""

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
        return StoreError(f"{url} did not take a row that breaks a rule of its table ({found})")
    if isinstance(found, sqlite3.Error):
        return explain(found, url.removeprefix("sqlite:///"))
    said, state, number = _said(found), _state(found), _number(found)
    if isinstance(error, IntegrityError):  # MySQL repeats the value in its own sentence
        return StoreError(f"{url} did not take a row that breaks a rule of its table ({state or number})")
    if state == "57014":
        return StoreUnavailable(f"{url} did not finish in time; try again")
    if state == "25006" or number in (1290, 1792, 1836):
        return StoreReadOnly(f"{url} cannot be written ({said}); give the address of its primary, or another user")
    if state == "42501" or number in (1044, 1142, 1143, 1227):
        return StoreRefused(f"{url} does not let this user do that: {said}")
    if state in ("53100", "53200") or number in (1021, 1041, 1114, 1153, 1406):
        return StoreFull(f"{url} has no room for this: {said}")
    return StoreUnavailable(f"{url} did not do what was asked: {said} ({state or number})")


def no_connection(error: Exception, settings: DatabaseSettings) -> StoreError:
    """Why a server cannot be connected to."""
    said, state, number = settings.without_secrets(_said(error)), _state(error), _number(error)
    if state.startswith("28") or number in (1044, 1045, 1130, 1698) or "password" in said or "role " in said:
        return StoreRefused(f"{settings.url} does not let this user in; check user and password of the URL ({said})")
    if state == "3D000" or number == 1049 or ("database " in said and "does not exist" in said):
        return StoreRefused(f"{settings.url}: there is no such database; create it first ({said})")
    if "SSL" in said or "certificate" in said:
        return StoreRefused(f"no TLS connection to {settings.url}: {said}; check tls, ca and verify")
    return StoreUnavailable(f"cannot reach {settings.url}: {said}; is the server running there?")


def _said(error: BaseException | None) -> str:
    text = error.args[1] if _is_mysql(error) and error is not None and len(error.args) > 1 else error
    # A server's details repeat values of the row, each on a line of its own behind the first.
    return str(text).strip().partition("\n")[0]


def _state(error: BaseException | None) -> str:
    return getattr(error, "sqlstate", None) or ""


def _number(error: BaseException | None) -> int:
    first = error.args[0] if error is not None and error.args else 0
    return first if isinstance(first, int) else 0


def _is_mysql(error: BaseException | None) -> bool:
    return type(error).__module__.startswith("pymysql")
