"""Reads without a thread: the event loop sends one statement, and goes on when the reply has arrived.

A thread costs two switches for each group of batches. It is only needed for what may take several statements.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from keystead.stores.database.batch_reads import BatchReads
from keystead.stores.database.cached_tables import CachedTables
from keystead.stores.database.database_session import Result
from keystead.stores.database.dialect import Dialect, Wanted
from keystead.stores.database.pooled_connection import BatchGroup, PooledConnection
from keystead.stores.sql import Interpreter

_ROWS_MAX: Final = 64  # larger replies come in many pieces, for which a thread waits better


class LoopRead:
    """The reads of a group, as one statement that was sent."""

    __slots__ = ("_group", "_needs", "_tables", "_wanted")

    def __init__(self, group: BatchGroup, tables: CachedTables, needs: BatchReads, wanted: Wanted) -> None:
        self._group = group
        self._tables = tables
        self._needs = needs
        self._wanted = wanted

    @classmethod
    def begin(
        cls,
        connection: PooledConnection,
        group: BatchGroup,
        dialect: Dialect,
        ahead_ms: Callable[[], int],
        on_data: Callable[[PooledConnection], None],
    ) -> LoopRead | None:
        """Send it. None: the thread of the connection must do it."""
        session, batches = connection.session, group.batches
        if group.writes or session is None or session.descriptor < 0:
            return None
        if any(batch.snapshot or not batch.calls for batch in batches):
            return None
        calls = [call for batch in batches for call in batch.calls]
        needs = BatchReads(calls, (key for batch in batches for key in batch.keys))
        if not needs.one_read_is_enough or needs.rows_max > _ROWS_MAX or not connection.listen(on_data):
            return None
        wanted = needs.wanted(timeless=len(batches) == 1 and batches[0].timeless)
        if not session.begin(dialect.look(wanted)):
            return None
        return cls(group, CachedTables(session, dialect, ahead_ms), needs, wanted)

    def results_of(self, found: Result) -> list[Any]:
        """The result of each batch."""
        tables = self._tables
        tables.know(self._needs, self._wanted, found)
        interpreter = Interpreter(tables, lambda: tables.now_ms)
        return [batch.result(interpreter) for batch in self._group.batches]
