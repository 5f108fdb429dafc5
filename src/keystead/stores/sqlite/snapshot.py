"""One read transaction for the reads of one turn of the event loop.

Beginning and ending a read transaction takes SQLite about as long as finding a row, so it is kept open until the turn
ends, for a third of a millisecond at most, and never across a commit of this process. Commits of other processes are
seen from the next turn on: any signal of them (a socket, a pipe, a timer) arrives in a later turn. (The `-shm` file
would show them sooner, but must not be opened here: closing it drops SQLite's locks on it.)
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import suppress

LONGEST_NS = 300_000


class Snapshot:
    """What the reads of this turn see."""

    def __init__(self, connection: sqlite3.Connection, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._loop = loop
        self._held_since_ns = 0  # 0: not held
        self._version, self._version_since_ns = 0, 0  # 0: not known in this turn
        self._ending = False

    def hold(self) -> None:
        """Until the end of the turn, reads see one state: everything committed by now."""
        now_ns = time.monotonic_ns()
        if self._held_since_ns:
            if now_ns - self._held_since_ns < LONGEST_NS:
                return
            self.release()
        self._connection.execute("BEGIN")
        self._held_since_ns = now_ns
        self._end_with_turn()

    def version(self) -> int:
        """The version of the database, which any commit changes: reads of this turn see it or a later one.

        It is asked once a turn, outside of a transaction unless one is open: that takes a fifth of the time.
        """
        now_ns = time.monotonic_ns()
        if not self._version_since_ns or now_ns - self._version_since_ns >= LONGEST_NS:
            [self._version] = self._connection.execute("PRAGMA data_version").fetchone()
            self._version_since_ns = now_ns
            self._end_with_turn()
        return self._version

    def release(self) -> None:
        """End the transaction, if one is open. The log cannot restart while a reader uses it."""
        self._version_since_ns = 0
        if self._held_since_ns:
            self._held_since_ns = 0
            with suppress(sqlite3.Error):  # after a disk error SQLite has ended it, or it was closed
                self._connection.execute("ROLLBACK")

    def _end_with_turn(self) -> None:
        if not self._ending:
            self._ending = True
            self._loop.call_soon(self._end)

    def _end(self) -> None:
        self._ending = False
        self.release()
