"""One read transaction for all reads of a turn of the event loop.

To begin and to end a read transaction takes SQLite about as long as to find a row. So it is kept open until the turn
is over, and used again as long as nobody has committed meanwhile. That is seen by the header of the wal-index, which
every commit changes, in whichever process: SQLite looks at the same bytes when a transaction begins. They stand,
twice, at the beginning of the file `-shm` (https://www.sqlite.org/walformat.html, 2.1); they are only read here.
"""

from __future__ import annotations

import asyncio
import mmap
import sqlite3
from contextlib import suppress

HEADER_BYTES = 96


class Snapshot:
    def __init__(self, connection: sqlite3.Connection, path: str, loop: asyncio.AbstractEventLoop) -> None:
        self._execute = connection.execute
        self._loop = loop
        self._index: mmap.mmap | None = None
        self._header = b""
        self._held = False
        self._ending = False
        with suppress(OSError, ValueError), open(f"{path}-shm", "rb") as file:
            self._index = mmap.mmap(file.fileno(), HEADER_BYTES, access=mmap.ACCESS_READ)

    def hold(self) -> None:
        """Let what is read from here to the end of the turn see all that is committed by now."""
        # Read before the transaction begins: a commit in between makes the next call begin anew, once too often.
        header = b"" if self._index is None else self._index[:HEADER_BYTES]
        if self._held:
            if header == self._header and header:
                return
            self.release()
        self._execute("BEGIN")
        self._held = True
        self._header = header
        if not self._ending:
            self._ending = True
            self._loop.call_soon(self._end)

    def release(self) -> None:
        """End the transaction. A log cannot start over while somebody reads from it."""
        if self._held:
            self._held = False
            self._execute("ROLLBACK")

    def close(self) -> None:
        self.release()
        if self._index is not None:
            self._index.close()
            self._index = None

    def _end(self) -> None:
        self._ending = False
        with suppress(sqlite3.ProgrammingError):  # closed meanwhile
            self.release()
