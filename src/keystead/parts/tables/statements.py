"""Statements whose SQL differs between databases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, Select, Table
from sqlalchemy import insert as plain_insert
from sqlalchemy.sql.dml import Insert

from keystead.errors import Contended

_ATTEMPTS: Final = 8


def insert_new(connection: Connection, into: Table, row: Mapping[str, Any]) -> bool:
    """Insert a row unless its key exists; an existing row is left alone. Returns whether it was inserted.

    Waits for a concurrent transaction that inserts the same key, so exactly one of them returns True.
    """
    options = {"preserve_rowcount": True}
    statement = _insert_if_new(connection, into)
    return connection.execute(statement.values(**row), execution_options=options).rowcount == 1


def _insert_if_new(connection: Connection, into: Table) -> Insert:
    # Imported here: each dialect takes megabytes, and a process uses one.
    match connection.dialect.name:
        case "postgresql":
            from sqlalchemy.dialects import postgresql

            return postgresql.insert(into).on_conflict_do_nothing()
        case "sqlite":
            from sqlalchemy.dialects import sqlite

            return sqlite.insert(into).on_conflict_do_nothing()
        case _:
            # IGNORE also turns other errors into warnings; the column types have already refused invalid values.
            return plain_insert(into).prefix_with("IGNORE")


def locked_row(connection: Connection, query: Select[Any], into: Table, fresh: Mapping[str, Any]) -> Row[Any]:
    """Select one row and lock it until the end of the transaction; insert `fresh` if there is none.

    It selects before it inserts: on MySQL an insert that finds its row takes a shared lock, and of several transactions
    with that lock none could get an exclusive one.
    """
    for _ in range(_ATTEMPTS):
        row = connection.execute(query.with_for_update()).first()
        if row is not None:
            return row
        # Of two concurrent inserts one waits for the other and finds its row, unless that was erased meanwhile.
        insert_new(connection, into, fresh)
    raise Contended(f"a row of {into.name} kept being erased; try again")


def locked_rows(
    connection: Connection, query: Select[Any], into: Table, fresh: Sequence[Mapping[str, Any]]
) -> list[Row[Any]]:
    """Select rows and lock them in the order of their keys; insert those of `fresh` that are missing.

    As `locked_row`, for many rows: the fixed order prevents deadlocks. `query` must select the primary key, which is
    one column.
    """
    [key] = into.primary_key.columns
    ordered = query.order_by(key).with_for_update()
    for _ in range(_ATTEMPTS):
        rows = connection.execute(ordered).all()
        present = {row._mapping[key] for row in rows}
        missing = [row for row in fresh if row[key.name] not in present]
        if not missing:
            return list(rows)
        connection.execute(_insert_if_new(connection, into), sorted(missing, key=lambda one: one[key.name]))
    raise Contended(f"rows of {into.name} kept being erased; try again")
