"""Pace: how a long walk through a store shares the event loop with whoever else is there."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import Final

from keystead.errors import StoreError, WrongKind
from keystead.stores import Command, Reply, Store

STRETCH_S: Final = 0.0003  # how long the loop is held beside other tasks; about thirty reads of an embedded store
ALONE_S: Final = 0.003  # how long it is held where there are none, so that a signal or a new task waits no longer
SHARE: Final = 4  # others get so many times as long as it took itself, if there are any
FEWEST: Final = 8
_FIRST: Final = 16
_BESIDE_OTHERS: Final = 32
_SURELY_WAITED: Final = 3
_COMMAND_S: Final = 0.000003
_ASK_EVERY_S: Final = 0.1


class Pace:
    """Asks for so much at once that no stretch is long, and leaves most of the time to other tasks, if there are any.

    A store that answers in this thread (SQLite) is asked for few keys at a time: as many as fit into a stretch. One
    that is waited for is asked for more, because others have their turns meanwhile; beside other tasks for a few only,
    which share a connection with what they ask for.
    """

    def __init__(self, most: int) -> None:
        self.size = min(_FIRST, most)  # keys to ask for at once
        self._most = most
        self._since = perf_counter()
        self._worked = 0.0  # before `since`
        self._waited = 0
        self._alone = False
        self._stretch_s = STRETCH_S
        self._asked = 0.0

    async def run(self, store: Store, commands: list[Command], keys: int) -> list[Reply]:
        """The replies, with a WrongKind in the place of each command that met another kind of key."""
        if not commands:
            return []
        turns: list[None] = []
        asyncio.get_running_loop().call_soon(turns.append, None)
        began = perf_counter()
        replies = await replies_of(store, commands)
        now = perf_counter()
        if turns:
            # To wait is no work, but to write the commands and to read the replies is.
            self._worked += began - self._since + len(commands) * _COMMAND_S
            self._since = now
            self._waited += 1
            # Now and then an embedded store lets others go first, too: that alone says nothing.
            if self._waited >= _SURELY_WAITED:
                self.size = self._most if self._alone else min(self._most, _BESIDE_OTHERS)
        else:
            self._waited = 0
            fitting = int(STRETCH_S * max(keys, 1) / (now - began))
            # Half way only: one slow batch says little.
            self.size = max(min(FEWEST, self._most), min(self._most, (self.size + fitting) // 2))
        return replies

    @property
    def is_due(self) -> bool:
        """Whether it is time to let others work, for whoever asks often: `turn` costs more."""
        return self._worked + perf_counter() - self._since >= self._stretch_s

    async def turn(self) -> None:
        """Let others work, if it is time to."""
        now = perf_counter()
        worked = self._worked + now - self._since
        if worked < self._stretch_s:
            return
        if now - self._asked > _ASK_EVERY_S:  # to count tasks takes longer the more there are
            self._alone, self._asked = len(asyncio.all_tasks()) < 2, now
            self._stretch_s = ALONE_S if self._alone else STRETCH_S
        # What took longer was spent waiting elsewhere, while others had their turns already.
        await asyncio.sleep(0 if self._alone else min(worked, 3 * STRETCH_S) * SHARE)
        self._since, self._worked = perf_counter(), 0.0


async def replies_of(store: Store, commands: list[Command]) -> list[Reply]:
    """As `store.run`, but a command on a key of another kind does not hide the replies of the others."""
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
