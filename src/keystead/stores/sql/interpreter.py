"""Runs calls on tables, alone or as one atomic step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from keystead.errors import CommandError
from keystead.stores.commands import Call, Reply
from keystead.stores.sql import (
    hash_commands,
    key_commands,
    list_commands,
    set_commands,
    sorted_set_commands,
    stream_commands,
    string_commands,
)
from keystead.stores.sql.key_tables import KeyTables, StringKeys
from keystead.stores.store_contract import Outcome, Planned

Handler = Callable[[KeyTables, Call], Reply]
T = TypeVar("T", bound=StringKeys)

HANDLERS: dict[str, Handler] = {
    **string_commands.HANDLERS,
    **key_commands.HANDLERS,
    **hash_commands.HANDLERS,
    **set_commands.HANDLERS,
    **sorted_set_commands.HANDLERS,
    **list_commands.HANDLERS,
    **stream_commands.HANDLERS,
}


class Interpreter(Generic[T]):
    """Turns calls into replies. The caller opens and ends the transaction.

    `handlers`: of a store that has only some of the commands, those.
    """

    def __init__(
        self, tables: T, clock: Callable[[], int], handlers: Mapping[str, Callable[[Any, Call], Reply]] = HANDLERS
    ) -> None:
        self.tables = tables
        self.clock = clock
        self.handlers = handlers

    def replies(self, calls: list[Call]) -> list[Reply]:
        """One reply per call, with a CommandError in place of each failure, which had no effect."""
        self.tables.now_ms = self.clock()
        if len(calls) == 1:
            return [self.reply(calls[0])]
        return [self.reply(call) for call in calls]

    def atomically(self, steps: list[Planned]) -> Outcome:
        """Run the steps as one: if one stops or fails, the tables are unchanged.

        After an error of the database itself the caller must roll back the transaction, unless that has happened.
        """
        return self._step(self.tables, steps)

    def _step(self, tables: Any, steps: list[Planned]) -> Outcome:
        now_ms = tables.now_ms = self.clock()
        tables.begin_step([step.call for step in steps])
        handlers = self.handlers
        replies: list[Reply] = []
        try:
            for place, step in enumerate(steps):
                call = step.call_at(now_ms) if step.times else step.call
                reply = handlers[call.spec.name](tables, call)
                if step.guard:
                    reply = step.verdict(reply, now_ms)
                replies.append(reply)
                if (step.guard or step.required) and step.stops(reply):
                    tables.undo_step()
                    return Outcome(replies, stopped_at=place)
        except CommandError as error:
            tables.undo_step()
            raise step.call.blame(error) from None
        tables.keep_step()
        return Outcome(replies)

    def reply(self, call: Call) -> Reply:
        """The reply of this call, or its CommandError."""
        try:
            return self.handlers[call.spec.name](self.tables, call)
        except CommandError as error:
            return call.blame(error)
