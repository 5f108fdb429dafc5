"""Statements that each database words in its own way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Connection, Row, Select, Table
from sqlalchemy import insert as plain_insert
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import Insert

from keystead.errors import Contended

_ATTEMPTS: Final = 8


def insert_new(connection: Connection, into: Table, row: Mapping[str, Any]) -> bool:
    """Insert a row unless one with its key is there, which is left as it is. Whether it was inserted.

    It waits for another transaction that inserts the same key, and so of N at once one says True.
    """
    statement: Insert
    match connection.dialect.name:
        case "postgresql":
            statement = postgresql.insert(into).on_conflict_do_nothing()
        case "sqlite":
            statement = sqlite.insert(into).on_conflict_do_nothing()
        case _:
            # IGNORE makes warnings of other faults, too; what a column cannot hold, its type has refused before.
            statement = plain_insert(into).prefix_with("IGNORE")
    options = {"preserve_rowcount": True}
    return connection.execute(statement.values(**row), execution_options=options).rowcount == 1


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
