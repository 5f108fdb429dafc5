"""Pace: how a long walk through a store shares the event loop with other tasks."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from time import perf_counter
from typing import Final, TypeVar

from keystead.errors import StoreError, WrongKind
from keystead.stores import Command, Reply, Store

STRETCH_S: Final = (
    0.0003  # how long to hold the event loop while there are other tasks: about 30 reads of an embedded store
)
ALONE_S: Final = 0.003  # the same without other tasks; also how long a signal or a new task may have to wait
SHARE: Final = 4  # other tasks, if any, get this many times the time that the walk took
FEWEST: Final = 8
_FIRST: Final = 16
_BESIDE_OTHERS: Final = 32
_SURELY_WAITED: Final = 3
_COMMAND_S: Final = 0.000003
_ASK_EVERY_S: Final = 0.1
_CLOCK_EVERY: Final = 8  # keys or entries, a few microseconds each, between two looks at the clock

T = TypeVar("T")


class Pace:
    """Limits the size of batches, and leaves most of the time to other tasks, if there are any.

    A store that replies in this thread (SQLite) gets small batches: as many keys as fit into a short time. A remote
    store gets larger ones, because other tasks run during the wait; but medium ones while there are other tasks, whose
    commands share the connection.
    """

    def __init__(self, most: int) -> None:
        self.size = min(_FIRST, most)  # keys per batch
        self._most = most
        self._since = perf_counter()
        self._worked = 0.0  # before `since`
        self._waited = 0
        self._alone = False
        self._stretch_s = STRETCH_S
        self._counted_at = 0.0

    async def run(self, store: Store, commands: list[Command], keys: int) -> list[Reply]:
        """The replies, with a WrongKind in place of the reply of each command on a key of another kind."""
        if not commands:
            return []
        turns: list[None] = []
        asyncio.get_running_loop().call_soon(turns.append, None)
        began = perf_counter()
        replies = await replies_of(store, commands)
        now = perf_counter()
        if turns:
            # Waiting is not work, but writing the commands and reading the replies is.
            self._worked += began - self._since + len(commands) * _COMMAND_S
            self._since = now
            self._waited += 1
            # An embedded store occasionally yields as well, so one wait proves nothing.
            if self._waited >= _SURELY_WAITED:
                self.size = self._most if self._alone else min(self._most, _BESIDE_OTHERS)
        else:
            self._waited = 0
            fitting = int(STRETCH_S * max(keys, 1) / (now - began))
            # Only half way: one slow batch proves little.
            self.size = max(min(FEWEST, self._most), min(self._most, (self.size + fitting) // 2))
        return replies

    def pieces(self, things: Sequence[T]) -> Iterator[Sequence[T]]:
        """Slices of the current batch size, which may change between two of them."""
        at = 0
        while at < len(things):
            size = self.size
            yield things[at : at + size]
            at += size

    def is_due_at(self, number: int) -> bool:
        """Whether to yield after this item of a loop. Cheaper than `turn`: only every few items look at the clock."""
        return not number % _CLOCK_EVERY and self._worked + perf_counter() - self._since >= self._stretch_s

    async def turn(self) -> None:
        """Yield to other tasks, if it is time to."""
        now = perf_counter()
        worked = self._worked + now - self._since
        if worked < self._stretch_s:
            return
        if now - self._counted_at > _ASK_EVERY_S:  # counting tasks takes time in proportion to their number
            self._alone, self._counted_at = len(asyncio.all_tasks()) < 2, now
            self._stretch_s = ALONE_S if self._alone else STRETCH_S
        # Anything longer was spent waiting, while other tasks already had their turns.
        await asyncio.sleep(0 if self._alone else min(worked, 3 * STRETCH_S) * SHARE)
        self._since, self._worked = perf_counter(), 0.0


async def replies_of(store: Store, commands: list[Command]) -> list[Reply]:
    """As `store.run`, but with a WrongKind in place of the reply of each command on a key of another kind."""
    try:
        return await store.run(commands)
    except WrongKind as error:
        if error.replies is None:
            raise
        replies = error.replies
    for reply in replies:
        if isinstance(reply, StoreError) and not isinstance(reply, WrongKind):
            raise reply
    return replies
