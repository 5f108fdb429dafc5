"""Statements that each database words in its own way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Table
from sqlalchemy import insert as plain_insert
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import Insert


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
