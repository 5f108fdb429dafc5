"""What a derived command turns into: steps of the store's own language, or an exchange of several round trips."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from keystead.errors import Contended
from keystead.stores.commands import Reply
from keystead.stores.store_contract import Outcome, Step, Store, keys_of

ATTEMPTS: Final = 64
_LONGEST_S: Final = 0.05


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


class Attempt(NamedTuple):
    """What one attempt at an exchange has read, and what it would write.

    guards   hold as long as nothing that was read has changed
    writes   empty: there is nothing to write
    """

    guards: Sequence[Step]
    writes: Sequence[Step]
    reply: Reply

    @property
    def steps(self) -> Sequence[Step]:
        return [*self.guards, *self.writes]


@dataclass(frozen=True, slots=True)
class Exchange:
    """A command that reads first, and then writes in one atomic step if nothing has changed since; else it starts over.

    attempt   reads what the command depends on. It uses only `run` and `scan` of the store. None: something changed
              while it read. Raises CommandError

    To make it part of a larger atomic step, add the steps of an attempt, and start over if one of its guards stops it.
    A command without keys, such as KEYS, can only run by itself.
    """

    keys: Sequence[bytes]
    writes: bool
    attempt: Callable[[Store], Awaitable[Attempt | None]]

    async def run(self, store: Store) -> Reply:
        """Raises CommandError, or Contended if it lost every race."""
        async for _ in attempts(self.keys):
            made = await self.attempt(store)
            if made is not None and (not made.writes or await store.atomically(made.steps)):
                return made.reply
        raise AssertionError  # pragma: no cover - the last attempt raises Contended


async def attempts(keys: Sequence[bytes]) -> AsyncIterator[int]:
    """The numbers of attempts, with a growing pause before each but the first. Raises Contended after the last."""
    for number in range(ATTEMPTS):
        if number:
            await asyncio.sleep(random.random() * min(0.0005 * 2**number, _LONGEST_S))  # noqa: S311 - spreads callers
        yield number
    raise Contended(f"{keys[0][:60]!r} was changed by other callers {ATTEMPTS} times in a row; try again")


Build: TypeAlias = Callable[[Sequence[bytes]], Derived | Exchange]
