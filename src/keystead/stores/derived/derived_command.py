"""What a derived command turns into: steps of the store's own language, or an exchange of several round trips."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from keystead.stores.commands import Reply
from keystead.stores.store_contract import Outcome, Step, Store, keys_of


def last(replies: list[Reply]) -> Reply:
    return replies[-1]


@dataclass(frozen=True, slots=True)
class Derived:
    """A command as steps: pass one to `Store.run`, and several or a guard to `Store.atomically`.

    steps      empty: the reply needs no store, as of PING
    finish     makes the reply from the replies of the steps
    stopped    the reply if a guard stops the steps; used only if `is_guarded`
    """

    steps: Sequence[Step]
    finish: Callable[[list[Reply]], Reply] = last
    stopped: Reply = None
    is_guarded: bool = False

    @property
    def keys(self) -> list[str | bytes]:
        return [key for step in self.steps for key in keys_of(step)]

    def reply(self, outcome: Outcome) -> Reply:
        return self.finish(outcome.replies) if outcome else self.stopped


@dataclass(frozen=True, slots=True)
class Exchange:
    """A command that reads first, and then writes in one atomic step if nothing has changed since; else it starts over.

    Its effect is atomic, but it cannot be part of another atomic step. `run` uses only `run`, `atomically` and `scan`
    of the store it gets. It raises CommandError, or Contended if it lost every race.
    """

    keys: Sequence[bytes]
    writes: bool
    run: Callable[[Store], Awaitable[Reply]]


Build: TypeAlias = Callable[[Sequence[bytes]], Derived | Exchange]
