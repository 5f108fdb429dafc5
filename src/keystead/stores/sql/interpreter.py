"""Runs calls on tables, alone or as one atomic step."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from keystead.errors import CommandError
from keystead.stores.base import Outcome, Planned
from keystead.stores.commands import Call, Reply
from keystead.stores.sql import hashes, keys, lists, sets, sorted_sets, streams, strings
from keystead.stores.sql.tables import Tables, TooWide

Handler = Callable[[Tables, Call], Reply]

HANDLERS: dict[str, Handler] = {
    **strings.HANDLERS,
    **keys.HANDLERS,
    **hashes.HANDLERS,
    **sets.HANDLERS,
    **sorted_sets.HANDLERS,
    **lists.HANDLERS,
    **streams.HANDLERS,
}

# A read of more entries than this leaves the event loop for a thread.
INLINE_WIDTH = 256
INLINE_ENTRIES = 2_048  # in one batch


class Interpreter:
    """Turns calls into replies. The caller opens and ends the transaction."""

    def __init__(self, tables: Tables, clock: Callable[[], int]) -> None:
        self.tables = tables
        self.clock = clock

    def replies(self, calls: list[Call]) -> list[Reply]:
        """One reply a call; a CommandError in the place of each that failed, which then had no effect."""
        self.tables.now_ms = self.clock()
        if len(calls) == 1:
            return [self._reply(calls[0])]
        return [self._reply(call) for call in calls]

    def narrow_replies(self, calls: list[Call]) -> list[Reply]:
        """As `replies`, of reads only, but raises TooWide rather than read a large collection."""
        tables = self.tables
        tables.now_ms = self.clock()
        room = INLINE_ENTRIES
        for call in calls:
            if call.spec.wide:
                room -= INLINE_WIDTH if call.spec.keys else INLINE_ENTRIES + 1
            else:
                room -= 8 + len(call.args)  # a look of its own costs more than an entry
        if room < 0:
            raise TooWide
        replies = []
        try:
            for call in calls:
                tables.width = INLINE_WIDTH if call.spec.wide else None
                replies.append(self._reply(call))
        finally:
            tables.width = None
        return replies

    def atomically(self, steps: list[Planned]) -> Outcome:
        """Run the steps inside a savepoint: where one stops or fails, the tables are as they were before.

        After an error of the database itself the transaction is the caller's to roll back: SQLite may have done it.
        """
        tables = self.tables
        tables.now_ms = self.clock()
        published = tables.published
        tables.execute("SAVEPOINT step")
        undo = True
        replies: list[Reply] = []
        try:
            for place, step in enumerate(steps):
                reply = HANDLERS[step.call.spec.name](tables, step.call)
                if step.guard:
                    reply = int(reply == step.expected)
                replies.append(reply)
                if step.stops(reply):
                    return Outcome(replies, stopped_at=place)
            undo = False
            tables.execute("RELEASE step")
            return Outcome(replies)
        except CommandError as error:
            raise step.call.blame(error) from None
        except sqlite3.Error:
            undo = False
            raise
        finally:
            if undo:
                tables.published = published
                tables.execute("ROLLBACK TO step")
                tables.execute("RELEASE step")

    def _reply(self, call: Call) -> Reply:
        try:
            return HANDLERS[call.spec.name](self.tables, call)
        except CommandError as error:
            return call.blame(error)
