"""Keys that grow with each write, which also sets the deadline of their lifetime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from keystead.errors import BadDeclaration, BadValue
from keystead.schema.codec import Codec
from keystead.schema.key import Key, Moment, truth
from keystead.schema.lifetime import Until
from keystead.schema.operation import Compound, NearOperation, Operation
from keystead.stores import Command, Reply, StoreMs, TimedCommand, at_most, more_than
from keystead.stores.commands import read

R = TypeVar("R")


class GrownKey(Key):
    """A key with many writes: a counter, a hash, a set, a list ..."""

    __slots__ = ()

    def _write(
        self,
        verb: str,
        commands: list[Any],
        finish: Callable[[list[Reply]], R],
        until: dict[str, Moment] | None = None,
    ) -> Operation[R]:
        """These commands and the deadline that the family gives the key, as one atomic step."""
        at_ms = self._at_ms(None, until or {}) if until or self.bound.family.has_moment else None
        return self._write_until(verb, commands, finish, at_ms)

    def _write_until(
        self, verb: str, commands: list[Any], finish: Callable[[list[Reply]], R], at_ms: int | None
    ) -> Operation[R]:
        bound = self.bound
        if not bound.family.lifetime.ends and len(commands) == 1 and not is_timed(commands[0]):
            return Operation(bound, verb, commands, finish)
        renewal = self._renewal(bound.now_ms(), at_ms)
        return Compound(self.bound, verb, [*commands, *renewal], finish, atomic=True)

    def _update_until(
        self, verb: str, steps: list[Any], finish: Callable[[list[Reply]], R], at_ms: int | None, *, stopped: Any = None
    ) -> Compound[R]:
        """As `_write_until`, for an existing key: without a new deadline it keeps the one it has."""
        keeps = at_ms is None and isinstance(self.bound.family.lifetime, Until)
        renewal = [] if keeps else self._renewal(self.bound.now_ms(), at_ms)
        return Compound(self.bound, verb, [*steps, *renewal], finish, atomic=True, stopped=stopped)

    def _renewal(self, now_ms: int, at_ms: int | None) -> list[Command]:
        family = self.bound.family
        renewal: list[Command] = family.lifetime.on_write(self.key, now_ms, at_ms)
        if family.has_moment and family.lifetime.field in family.field_names:
            return [renewal[0][:3]]  # the record holds its own deadline, which may be earlier or later than before
        return renewal

    def _read(self, verb: str, command: Command, finish: Callable[[list[Reply]], R]) -> Operation[R]:
        """A command that does not extend the lifetime: a read, or a removal.

        A family that declares `near` may answer reads from a copy in this process; not `see`, which serves as a guard.
        """
        if self.bound.family.near_ms and not verb.startswith("see"):
            call = read(command)
            if not call.spec.writes:
                return NearOperation(self.bound, verb, [call], finish)
        return Operation(self.bound, verb, [command], finish)

    def _timed(self, verb: str, command: TimedCommand, finish: Callable[[list[Reply]], R]) -> Operation[R]:
        """The same, for a command that may use the clock of the store, which needs an atomic step."""
        if is_timed(command):
            return Compound(self.bound, verb, [command], finish, atomic=True)
        return Operation(self.bound, verb, [command], finish)

    def _at_most(self, verb: str, command: TimedCommand, limit: float | StoreMs) -> Operation[bool]:
        """Whether a command that reads an amount replies at most `limit`. Within `atomically` it is a guard."""
        return Compound(self.bound, verb, [at_most(command, limit)], truth, atomic=True, stopped=False)

    def _at_least(self, verb: str, command: Command, least: int) -> Operation[bool]:
        """The opposite: whether it replies at least `least`."""
        return Compound(self.bound, verb, [more_than(command, least - 1)], truth, atomic=True, stopped=False)

    def _count_at_most(self, verb: str, command: Command, limit: int) -> Operation[bool]:
        if type(limit) is not int or not 0 <= limit < 2**63:
            raise BadValue(f"{self.key}: a limit must be a whole number from 0")
        return self._at_most(verb, command, limit)


def is_timed(command: TimedCommand) -> bool:
    """Whether an argument of this command is the clock of the store."""
    return StoreMs in map(type, command)


def refuse_container(pattern: str, member: Codec[Any]) -> None:
    """Members are plain values: a model or a list cannot be looked up by value."""
    if member.json_schema().get("type") in ("object", "array") or "$ref" in member.json_schema():
        raise BadDeclaration(
            f"{pattern}: a member must be a plain value such as str or int, or packed(...), not {member.describe()}",
            "bad-value-type",
        )


def refuse_wrong_keep(pattern: str, keep: int | None) -> None:
    if keep is not None and (type(keep) is not int or keep < 1):
        raise BadDeclaration(f"{pattern}: keep must be a whole number from 1, not {keep!r}")
