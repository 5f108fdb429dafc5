"""Which keys were met already, in bounded memory: a store may name a key twice while it is scanned."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from typing import Final, Self

from keystead.stores.backup.errors import BackupError

_CACHE_KIB: Final = 16_384


class Seen:
    """A set of keys on disk: in a temporary file that has no name, and goes with the process."""

    def __init__(self, cache_kib: int = _CACHE_KIB) -> None:
        self._connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for line in (
            "PRAGMA journal_mode = OFF",
            "PRAGMA synchronous = OFF",
            f"PRAGMA cache_size = -{cache_kib}",
            "CREATE TABLE seen (key BLOB PRIMARY KEY) WITHOUT ROWID",
            "BEGIN",  # and no commit: nobody else reads it
        ):
            self._connection.execute(line)

    def new(self, keys: Iterable[bytes]) -> list[bytes]:
        """Those of the keys that were never met; from now on they were. Raises BackupError where the disk is full."""
        insert = self._connection.execute
        try:
            return [key for key in keys if insert("INSERT OR IGNORE INTO seen VALUES (?)", (key,)).rowcount]
        except sqlite3.OperationalError as error:
            raise BackupError(
                f"cannot remember which keys were met: {error}; make room in the folder for temporary files, or name "
                "another with SQLITE_TMPDIR"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with closing(self._connection):
            pass
