"""Statements whose SQL differs between databases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Connection, Row, Select, Table
from sqlalchemy import insert as plain_insert
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import Insert

from keystead.errors import Contended

_ATTEMPTS: Final = 8


def insert_new(connection: Connection, into: Table, row: Mapping[str, Any]) -> bool:
    """Insert a row unless its key exists; an existing row is left alone. Returns whether it was inserted.

    It waits for another transaction that inserts the same key, and so of N at once one says True.
    """
    options = {"preserve_rowcount": True}
    statement = _insert_if_new(connection, into)
    return connection.execute(statement.values(**row), execution_options=options).rowcount == 1


def _insert_if_new(connection: Connection, into: Table) -> Insert:
    match connection.dialect.name:
        case "postgresql":
            return postgresql.insert(into).on_conflict_do_nothing()
        case "sqlite":
            return sqlite.insert(into).on_conflict_do_nothing()
        case _:
            # IGNORE makes warnings of other faults, too; what a column cannot hold, its type has refused before.
            return plain_insert(into).prefix_with("IGNORE")


def locked_row(connection: Connection, asked: Select[Any], into: Table, fresh: Mapping[str, Any]) -> Row[Any]:
    """The one row that is asked for, locked until the end of the transaction; made of `fresh` where there is none.

    It looks before it inserts: on MySQL an insert that finds its row there holds it together with others who did, and
    none of them could lock it for itself.
    """
    for _ in range(_ATTEMPTS):
        row = connection.execute(asked.with_for_update()).first()
        if row is not None:
            return row
        # Of two at once, one inserts, and the other waits for it and finds its row, unless that was erased meanwhile.
        insert_new(connection, into, fresh)
    raise Contended(f"a row of {into.name} was erased again and again; try again")


def locked_rows(
    connection: Connection, asked: Select[Any], into: Table, fresh: Sequence[Mapping[str, Any]]
) -> list[Row[Any]]:
    """The rows that are asked for, locked in the order of their keys; those of `fresh` are made where they are missing.

    As `locked_row`, for many at once: transactions that lock many rows in this way do not wait for each other in turn.
    `asked` holds the primary key, which is one column.
    """
    [key] = into.primary_key.columns
    ordered = asked.order_by(key).with_for_update()
    for _ in range(_ATTEMPTS):
        rows = connection.execute(ordered).all()
        there = {row._mapping[key] for row in rows}
        missing = [row for row in fresh if row[key.name] not in there]
        if not missing:
            return list(rows)
        connection.execute(_insert_if_new(connection, into), sorted(missing, key=lambda one: one[key.name]))
    raise Contended(f"rows of {into.name} were erased again and again; try again")
