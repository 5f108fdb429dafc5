"""The tables of a store on a server: created when it is first opened, and migrated by later versions.

The version of the tables is stored in a separate table. Each step leads from one version to the next. Processes that
open the store at the same moment take turns; all but the first find nothing to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from keystead.errors import StoreDamaged, StoreUnavailable
from keystead.stores.database.database_session import DatabaseConnectionLost, NoSuchTable, Session, Statement


@dataclass(frozen=True)
class SchemaChange:
    """A migration to a version: a description and its statements, each of which is idempotent."""

    version: int
    what: str
    statements: Sequence[Statement]


@dataclass(frozen=True)
class SchemaUpgrade:
    """An upgrade, planned or done."""

    found: int  # the version of the tables; 0: none yet
    changes: tuple[SchemaChange, ...]

    @property
    def version(self) -> int:
        """The version of the tables afterwards."""
        return self.changes[-1].version if self.changes else self.found


@dataclass(frozen=True)
class Schema:
    """The migrations, and the statements that track them on one server."""

    changes: Sequence[SchemaChange]
    find: Statement  # selects the version
    note: str  # stores the version; one placeholder
    begin: Sequence[Statement]  # excludes other processes
    end: Sequence[Statement]
    transactional: bool  # whether tables are created in the transaction that `begin` opens

    @property
    def version(self) -> int:
        return self.changes[-1].version

    def plan(self, session: Session, url: str) -> SchemaUpgrade:
        """The upgrade that is due. Raises StoreDamaged if a later Keystead created the tables."""
        return self._make_plan(self._read_version(session), url)

    def upgrade(self, session: Session, url: str) -> SchemaUpgrade:
        """Upgrade the tables to the version of this Keystead; returns what was done."""
        if not (plan := self.plan(session, url)).changes:
            return plan
        locked = session.ask(self.begin)
        if locked[-1].rows and locked[-1].rows[0][0] == 0:
            raise StoreUnavailable(f"another process is still upgrading {url}; try again")
        try:
            # Checked again: another process may have upgraded meanwhile.
            plan = self._make_plan(self._read_version(session, inside=self.transactional), url)
            for change in plan.changes:
                session.ask(change.statements)
                session.ask([Statement(self.note, (change.version,))])
        except BaseException:
            session.roll_back()
            if not self.transactional:
                with suppress(DatabaseConnectionLost):  # also releases the lock
                    session.ask(self.end)
            raise
        session.ask(self.end)
        return plan

    def _read_version(self, session: Session, *, inside: bool = False) -> int:
        """The version of the tables; 0: none. `inside` a transaction, which a failed query would abort."""
        if inside:
            session.ask([Statement("SAVEPOINT look")])
        try:
            [result] = session.ask([self.find])
        except NoSuchTable:
            if inside:
                session.ask([Statement("ROLLBACK TO SAVEPOINT look")])
            return 0
        found = result.fetchone()
        return 0 if found is None else int(found[0])

    def _make_plan(self, found: int, url: str) -> SchemaUpgrade:
        if found > self.version:
            raise StoreDamaged(
                f"the tables of {url} were created by a later Keystead (version {found}, this one knows"
                f" {self.version}); upgrade this one to use them. Nothing was changed"
            )
        return SchemaUpgrade(found, tuple(change for change in self.changes if change.version > found))


def statements_of(text: str) -> tuple[Statement, ...]:
    """The statements of a script, separated by semicolons."""
    return tuple(Statement(words) for part in text.split(";") if (words := " ".join(part.split())))
