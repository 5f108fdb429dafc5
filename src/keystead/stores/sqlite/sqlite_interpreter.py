"""The interpreter on SQLite, with its fast paths."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from keystead.stores.command_options import PLAIN_SET
from keystead.stores.commands import Call, Reply
from keystead.stores.sql import Interpreter
from keystead.stores.sqlite import sqlite_full_copy
from keystead.stores.sqlite.buffered_strings import COMMANDS as STRING_COMMANDS
from keystead.stores.sqlite.buffered_strings import BufferedStrings
from keystead.stores.sqlite.compiled_strings import CompiledStrings
from keystead.stores.sqlite.sqlite_tables import SqliteTables, TooWide
from keystead.stores.store_contract import Outcome, Planned, WholeKey

Change = tuple[bytes, int, bytes]  # value, id, key

# A read of more entries than this leaves the event loop for a thread.
INLINE_WIDTH = 256
INLINE_ENTRIES = 2_048  # in one batch
INLINE_KEYS = 64  # in one command: each is on another page of the file


class SqliteInterpreter(Interpreter[SqliteTables]):
    def __init__(self, tables: SqliteTables, clock: Callable[[], int]) -> None:
        super().__init__(tables, clock)
        self._strings = BufferedStrings(tables)
        # Atomic steps are buffered: `flush` before each commit, and `forget` after each rollback.
        self.flush = self._strings.flush
        self.forget = self._strings.forget

    def replies(self, calls: list[Call]) -> list[Reply]:
        self.flush()
        return super().replies(calls)

    def atomically(self, steps: list[Planned]) -> Outcome:
        for step in steps:
            if step.call.spec.name not in STRING_COMMANDS:
                self.flush()
                return self._step(self.tables, steps)
        return self._step(self._strings, steps)

    def run_compiled(self, steps: CompiledStrings, given: Sequence[bytes]) -> Outcome:
        """`atomically`, for prepared steps."""
        self._strings.now_ms = self.clock()
        return steps.run(self._strings, given)

    def changes(self, works: Sequence[object], start: int) -> list[Change]:
        """The changes of the first batches from `start` on, while each is one plain SET of a string known to exist."""
        known, changes = self.tables.string_ids, []
        for place in range(start, len(works)):
            work: Any = works[place]
            if type(work) is not list or len(work) != 1 or work[0].options is not PLAIN_SET:
                break
            key, value = work[0].args
            row_id = known.get(key)
            if row_id is None:
                break
            changes.append((value, row_id, key))
        return changes

    def change(self, changes: Sequence[Change]) -> bool:
        """Apply these changes in one call of SQLite, which takes half the time. Their replies are all OK.

        False if one of them found its row deleted, or with a deadline: each batch must then run separately. The others
        have already been applied, which is harmless: they are repeated in the same order.
        """
        self.flush()
        return self.tables.change_lasting(changes) == len(changes)

    def whole_keys(self, keys: Sequence[bytes]) -> tuple[list[WholeKey], list[bytes]]:
        self.flush()
        self.tables.now_ms = self.clock()
        return sqlite_full_copy.read(self.tables, keys)

    def add_whole_keys(self, keys: Sequence[WholeKey]) -> list[bool]:
        self.flush()
        self.tables.now_ms = self.clock()
        return sqlite_full_copy.add(self.tables, keys)

    def narrow_replies(self, calls: list[Call]) -> list[Reply]:
        """`replies` for reads, but raises TooWide instead of reading a large collection or many keys."""
        tables = self.tables
        tables.now_ms = self.clock()
        room = INLINE_ENTRIES
        for call in calls:
            if call.spec.wide:
                room -= INLINE_WIDTH if call.spec.keys else INLINE_ENTRIES + 1
            elif len(call.keys) > INLINE_KEYS:
                raise TooWide
            else:
                room -= 8 + len(call.args)  # a separate query costs more than an entry
        if room < 0:
            raise TooWide
        replies = []
        try:
            for call in calls:
                tables.width = INLINE_WIDTH if call.spec.wide else None
                replies.append(self.reply(call))
        finally:
            tables.width = None
        return replies
