"""Table sets and their schema migrations.

The version of each set is stored in `keystead_tables`. Processes that open the tables at the same moment take turns;
all but the first find nothing to do. A database user without the right to create tables can use up-to-date ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    MetaData,
    Table,
    insert,
    inspect,
    select,
    text,
    update,
)
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateColumn, CreateIndex, CreateTable

from keystead.errors import BadDeclaration, StoreDamaged, StoreUnavailable
from keystead.parts.tables.columns import Name, table

UPGRADE_LOCK: Final = 0x4B53_5445_4144_0010  # of PostgreSQL; unique among Keystead's locks
APPLICATION_ID: Final = 0x4B535454  # "KSTT", marks a SQLite file with tables; a store has another
_WAIT_S: Final = 20

_VERSIONS: Final = table(
    "tables",
    MetaData(),
    Column("name", Name(64), primary_key=True),
    Column("version", BigInteger, nullable=False),
)


@dataclass(frozen=True)
class TableChange:
    """A migration to a version: its description and its function.

    MySQL cannot roll back DDL, so an interrupted step runs again and must be idempotent. Never edit a step after a
    release: it defines a table as it was then, even if the table changes later.
    """

    version: int
    what: str
    do: Callable[[Connection], None]


# The rows of a subject: tables with a condition on each, in the order in which they can be deleted. The last is the
# parent of the others.
Belongings = Sequence[tuple[Table, ColumnElement[bool]]]


@dataclass(frozen=True)
class TableSet:
    """The tables of one owner, such as a kit, and the migrations that create them.

    member_of   the rows that belong to a subject, for `keystead erase user:42`: a function from the id for each kind of
                subject, `{"user": rows_of_user}`. The parent table of the others comes last; empty for an impossible id
    known_as    the identity of a subject of another identity space in this one: `teamwork:7` for `login:42`. Its rows
                are erased too
    """

    name: str
    changes: Sequence[TableChange]
    member_of: Mapping[str, Callable[[str], Belongings]] = field(default_factory=dict)
    known_as: Callable[[Connection, str], Sequence[str]] = lambda connection, subject: ()

    def __post_init__(self) -> None:
        if [change.version for change in self.changes] != list(range(1, len(self.changes) + 1)) or not self.changes:
            raise BadDeclaration(f"the changes of the tables {self.name!r} must be numbered 1, 2, 3 and so on")

    @property
    def version(self) -> int:
        return self.changes[-1].version


@dataclass(frozen=True)
class TableUpgrade:
    """What an upgrade of a set does, or did."""

    name: str
    found: int  # the version of the tables; 0: there are none yet
    changes: tuple[TableChange, ...]

    @property
    def version(self) -> int:
        """The version of the tables afterwards."""
        return self.changes[-1].version if self.changes else self.found


def create(*tables: Table) -> Callable[[Connection], None]:
    """A step that creates tables, with their indexes."""

    def do(connection: Connection) -> None:
        for one in tables:
            connection.execute(CreateTable(one, if_not_exists=True))
            for index in one.indexes:
                # Checked first, since MySQL has no IF NOT EXISTS here.
                if not inspect(connection).has_index(one.name, str(index.name)):
                    connection.execute(CreateIndex(index))

    return do


def extend(*tables: Table) -> Callable[[Connection], None]:
    """A step that adds missing columns, which may be NULL, and indexes. A missing table is created."""

    def do(connection: Connection) -> None:
        create(*(one for one in tables if not inspect(connection).has_table(one.name)))(connection)
        for one in tables:
            existing = {column["name"] for column in inspect(connection).get_columns(one.name)}
            for column in one.columns:
                if column.name not in existing:
                    added = CreateColumn(column).compile(dialect=connection.dialect)
                    connection.execute(text(f"ALTER TABLE {one.name} ADD COLUMN {added}"))
        create(*tables)(connection)

    return do


def plan_upgrades(connection: Connection, sets: Sequence[TableSet], url: str) -> list[TableUpgrade]:
    """The pending upgrades. Raises StoreDamaged if a later Keystead created the tables. Writes nothing."""
    known = inspect(connection).has_table(_VERSIONS.name)
    rows = connection.execute(select(_VERSIONS.c.name, _VERSIONS.c.version)) if known else ()
    found = {name: int(version) for name, version in rows}
    plans = []
    for one in sets:
        at = found.get(one.name, 0)
        if at > one.version:
            raise StoreDamaged(
                f"the tables {one.name!r} of {url} were created by a later Keystead (version {at}, this one knows"
                f" {one.version}); upgrade this one to use them. Nothing was changed"
            )
        plans.append(TableUpgrade(one.name, at, tuple(change for change in one.changes if change.version > at)))
    return plans


def upgrade_all(connection: Connection, sets: Sequence[TableSet], url: str) -> list[TableUpgrade]:
    """Upgrade all sets to the version of this Keystead, in the transaction of this connection."""
    with _upgrade_lock(connection, url):
        plans = plan_upgrades(connection, sets, url)  # read again: another process may have been faster
        if not any(plan.changes for plan in plans):
            return plans
        if connection.dialect.name == "sqlite":
            connection.execute(text(f"PRAGMA application_id = {APPLICATION_ID:d}"))
        connection.execute(CreateTable(_VERSIONS, if_not_exists=True))
        for plan in plans:
            for change in plan.changes:
                change.do(connection)
                _record_version(connection, plan.name, change.version)
        return plans


def _record_version(connection: Connection, name: str, version: int) -> None:
    updated = connection.execute(
        update(_VERSIONS).where(_VERSIONS.c.name == name).values(version=version),
        execution_options={"preserve_rowcount": True},
    )
    if not updated.rowcount:
        connection.execute(insert(_VERSIONS).values(name=name, version=version))


@contextmanager
def _upgrade_lock(connection: Connection, url: str) -> Iterator[None]:
    """Lock out other processes. SQLite's write transaction already does."""
    match connection.dialect.name:
        case "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": UPGRADE_LOCK})
            yield
        case "sqlite":
            yield
        case _:
            lock = "CONCAT('keystead:tables:', SHA1(DATABASE()))"
            # A second at a time: a statement that takes longer than the timeout counts as lost.
            if not any(connection.execute(text(f"SELECT GET_LOCK({lock}, 1)")).scalar() for _ in range(_WAIT_S)):
                raise StoreUnavailable(f"another process is still upgrading {url}; try again")
            try:
                yield
                # Commit before the lock is released: the next process must see the versions.
                connection.exec_driver_sql("COMMIT")
            finally:
                with suppress(DBAPIError):  # a lost connection has released the lock
                    connection.execute(text(f"SELECT RELEASE_LOCK({lock})"))
