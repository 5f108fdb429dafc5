"""Near reads on SQLite: exact, because SQLite tells at the cost of microseconds whether anything has changed."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable

from keystead.stores.commands import Reply
from keystead.stores.near_reads import Copy, NearRead, NearReads, ReadNow


class SqliteNearReads(NearReads):
    """A copy holds for one version of the whole database, which any commit of any process changes.

    version   the version that reads of this turn see, or an earlier one; None: it cannot be told
    now_ms    the clock of the store
    """

    def __init__(self, run: ReadNow, version: Callable[[], int | None], now_ms: Callable[[], int]) -> None:
        super().__init__()
        self._run = run
        self._version = version
        self._now_ms = now_ms

    def read(self, read: NearRead, bound_s: float) -> list[Reply] | Awaitable[list[Reply]]:
        copy = self.copies.find(read)
        if copy is not None and copy.version == self._current() and self._now_ms() < copy.expires_at:
            self.hits += 1
            return copy.replies
        return self._fill(read)

    async def _fill(self, read: NearRead) -> list[Reply]:
        self.misses += 1
        # The version first: if a commit comes between, the copy is newer than its version says, and never used.
        version, began_ms = self._current(), self._now_ms()
        replies, expires_in_ms, _ = read.split(await self._run(read.with_lifetimes))
        if version is not None:
            self.copies.add(Copy(read, replies, began_ms + expires_in_ms, version))
        return replies

    def _current(self) -> int | None:
        try:
            return self._version()
        except sqlite3.Error:  # a read says what is wrong
            return None
