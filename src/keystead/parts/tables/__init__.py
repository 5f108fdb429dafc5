"""Relational tables on SQLite, PostgreSQL, MySQL and MariaDB, for data that is queried by more than its key.

`open_tables(url, *sets)` opens them, `read` and `write` run a function in a transaction, and a `TableSet` declares
tables and their schema migrations.

**SQLAlchemy's sync engine in our own threads, not its async engine.** The async engine needs another driver for each
database (aiosqlite, asyncpg or async psycopg, aiomysql) and greenlet; the thread of aiosqlite can keep a process from
exiting. `sqlite3`, `psycopg` and `PyMySQL` are already the drivers of the stores, and a `WorkerThread` never keeps a
process alive. A transaction is a plain function from a connection to a result, so it can be retried as a whole.

**A list of versioned steps, not Alembic.** Several kits have tables in one database, each with its own version; two
processes that start at the same moment must take turns, which Alembic leaves to the caller; and no folder of scripts
has to be found in an installed package. The stores do the same (`stores/database/database_schema.py`).
"""

from typing import TYPE_CHECKING

from keystead.deprecation import forward_old_names
from keystead.extras import from_extra

with from_extra("tables", "keystead.parts.tables"):
    from keystead.parts.tables.changes import Belongings, TableChange, TableSet, TableUpgrade, create, extend
    from keystead.parts.tables.columns import Name, Words, checked_name, table
    from keystead.parts.tables.engines import url_beside
    from keystead.parts.tables.statements import insert_new, locked_row, locked_rows
    from keystead.parts.tables.tables import Tables, open_tables

__all__ = [
    "Belongings",
    "Name",
    "TableChange",
    "TableSet",
    "TableUpgrade",
    "Tables",
    "Words",
    "checked_name",
    "create",
    "extend",
    "insert_new",
    "locked_row",
    "locked_rows",
    "open_tables",
    "table",
    "url_beside",
]

if not TYPE_CHECKING:  # type checkers still report misspelt names
    __getattr__ = forward_old_names(__name__, {"Change": "TableChange", "Plan": "TableUpgrade"})
