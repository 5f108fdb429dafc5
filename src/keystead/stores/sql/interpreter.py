"""Runs calls on tables, alone or as one atomic step."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable

from keystead.errors import CommandError
from keystead.stores.base import Outcome, Planned
from keystead.stores.commands import PLAIN_SET, Call, Reply
from keystead.stores.sql import hashes, keys, lists, sets, sorted_sets, streams, strings
from keystead.stores.sql.tables import Tables, TooWide

Handler = Callable[[Tables, Call], Reply]
Change = tuple[bytes, int, bytes]  # value, id, key

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

    def changes(self, works: Iterable[object]) -> list[Change]:
        """What the first batches change, as long as each is one plain SET of a string that is known to be there."""
        known, changes = self.tables.string_ids, []
        for work in works:
            if type(work) is not list or len(work) != 1 or work[0].options is not PLAIN_SET:
                break
            key, value = work[0].args
            row_id = known.get(key)
            if row_id is None:
                break
            changes.append((value, row_id, key))
        return changes

    def change(self, changes: list[Change]) -> bool:
        """Make these changes in one call of SQLite, which takes half the time. Their replies are all OK.

        False where one of them found its row gone, or with a deadline: each batch is then to be run on its own. It is
        no harm that the others were made already: they are made again, in the same order.
        """
        return strings.change_lasting(self.tables, changes) == len(changes)

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
                    reply = step.verdict(reply)
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
