"""What keys that grow write by write have in common: each write is followed by what their lifetime says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from keystead.schema.key import Key, Moment
from keystead.schema.operation import Operation
from keystead.stores import Command, Reply

R = TypeVar("R")


class GrownKey(Key):
    """A key that is written to again and again: a counter, a hash, a set, a list ..."""

    __slots__ = ()

    def _write(
        self,
        commands: list[Any],
        finish: Callable[[list[Reply]], R],
        until: dict[str, Moment] | None = None,
        *,
        stopped: Any = None,
        guarded: bool = False,
    ) -> Operation[R]:
        """These commands and the deadline that the family gives the key, as one atomic step."""
        at_ms = self._at_ms(None, until or {})
        renewal: list[Command] = self.bound.family.lifetime.on_write(self.key, self.bound.now_ms(), at_ms)
        if not renewal and len(commands) == 1 and not guarded:
            return Operation(self.bound.store, commands, finish)
        return Operation(self.bound.store, [*commands, *renewal], finish, atomic=True, stopped=stopped)

    def _read(self, command: Command, finish: Callable[[list[Reply]], R]) -> Operation[R]:
        """A command that does not make the key live longer: a read, or a removal."""
        return Operation(self.bound.store, [command], finish)
