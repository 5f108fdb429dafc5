"""The keys that a scan has returned so far, in bounded memory: a scan may return a key twice."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from typing import Final, Self

from keystead.stores.transfer.transfer_errors import BackupError

_CACHE_KIB: Final = 16_384


class SeenKeys:
    """A set of keys in an anonymous temporary file, which is deleted with the process."""

    def __init__(self, cache_kib: int = _CACHE_KIB) -> None:
        self._connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        for line in (
            "PRAGMA journal_mode = OFF",
            "PRAGMA synchronous = OFF",
            f"PRAGMA cache_size = -{cache_kib}",
            "CREATE TABLE seen (key BLOB PRIMARY KEY) WITHOUT ROWID",
            "BEGIN",  # and no commit: there is no other reader
        ):
            self._connection.execute(line)

    def add(self, keys: Iterable[bytes]) -> list[bytes]:
        """Add keys and return the new ones. Raises BackupError if the disk is full."""
        insert = self._connection.execute
        try:
            return [key for key in keys if insert("INSERT OR IGNORE INTO seen VALUES (?)", (key,)).rowcount]
        except sqlite3.OperationalError as error:
            raise BackupError(
                f"cannot record which keys were saved: {error}; free space in the folder for temporary files, or set "
                "another with SQLITE_TMPDIR"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with closing(self._connection):
            pass
