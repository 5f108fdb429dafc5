"""What is wrong with a write, under which condition, and what would correct it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from keystead.schema.family_lookup import Member
from keystead.stores import Call, Command, Reply, Step, required

Cure: TypeAlias = Callable[[Call], bool]


@dataclass(slots=True)
class Condition:
    """The state of the store in which a write is right, although the command alone does not show it.

    guards    steps that stop the batch if the write would be wrong
    look      a read of the same, whose reply `is_wrong` judges: for a guard that only observes
    is_after  whether it is checked after all writes of the batch, not right before this one
    """

    guards: Sequence[Step]
    look: Command
    is_wrong: Callable[[Reply], bool]
    is_after: bool = False


@dataclass(slots=True)
class WriteProblem:
    """One thing that is wrong with a write, by a code of the doctor.

    condition    None: it is wrong, whatever the store holds
    fixes        commands that correct it if they follow in the same step
    instead      the corrected command
    cure         whether this later command of the same batch makes it right
    companion    whether this other command of the same batch, before it or after, makes it right
    """

    code: str
    sentence: str
    condition: Condition | None = None
    fixes: Sequence[Command] = ()
    instead: Command | None = None
    cure: Cure | None = None
    companion: Cure | None = None

    @property
    def can_be_fixed(self) -> bool:
        return bool(self.fixes) or self.instead is not None


@dataclass(slots=True)
class Write:
    """A parsed write to one key of a family."""

    call: Call
    member: Member
    now_ms: int
    value: Any  # of the whole record, if this write determines it; else UNKNOWN

    @property
    def key(self) -> str:
        return self.member.key

    @property
    def name(self) -> str:
        return self.call.spec.name

    @property
    def deletes(self) -> bool:
        """Whether it removes the key, also by a deadline in the past."""
        deadline = getattr(self.call.options, "deadline", None)
        return self.name in ("DEL", "GETDEL") or (deadline is not None and deadline.at_ms(self.now_ms) <= self.now_ms)


def exists(*keys: str, is_after: bool = False) -> Condition:
    """At least one of these keys exists."""
    command: Command = ("EXISTS", *keys)
    return Condition([required(command)], command, lambda reply: not reply, is_after)
