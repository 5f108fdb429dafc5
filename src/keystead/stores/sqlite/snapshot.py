"""One read transaction for the reads of one turn of the event loop.

To begin and to end a read transaction takes SQLite about as long as to find a row, so it is kept open until the turn
is over, for a third of a millisecond at most, and never across a commit of this process. What another process
has committed is seen from the next turn on: whatever tells of it, a socket, a pipe or a timer, comes with a later turn.
(The file `-shm` would tell sooner, but must not be opened here: closing it drops the locks that SQLite holds on it.)
"""

from __future__ import annotations

import asyncio
import sqlite3
import time
from contextlib import suppress

LONGEST_NS = 300_000


class Snapshot:
    def __init__(self, connection: sqlite3.Connection, loop: asyncio.AbstractEventLoop) -> None:
        self._connection = connection
        self._loop = loop
        self._held_since_ns = 0  # 0: not held
        self._ending = False

    def hold(self) -> None:
        """Let what is read from here to the end of the turn see one state: all that is committed by now."""
        now_ns = time.monotonic_ns()
        if self._held_since_ns:
            if now_ns - self._held_since_ns < LONGEST_NS:
                return
            self.release()
        self._connection.execute("BEGIN")
        self._held_since_ns = now_ns
        if not self._ending:
            self._ending = True
            self._loop.call_soon(self._end)

    def release(self) -> None:
        """End the transaction, if one is held. A log cannot start over while somebody reads from it."""
        if self._held_since_ns:
            self._held_since_ns = 0
            with suppress(sqlite3.Error):  # after an error of the disk SQLite has ended it, or it was closed
                self._connection.execute("ROLLBACK")

    def _end(self) -> None:
        self._ending = False
        self.release()
