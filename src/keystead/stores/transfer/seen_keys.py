"""Which keys a scan has named already, in bounded memory: a store may name a key twice."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from typing import Final, Self

from keystead.stores.transfer.transfer_errors import BackupError

_CACHE_KIB: Final = 16_384


class SeenKeys:
    """A set of keys on disk, in a temporary file without a name that is deleted with the process."""

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
        """Returns those that are new. Raises BackupError where the disk is full."""
        insert = self._connection.execute
        try:
            return [key for key in keys if insert("INSERT OR IGNORE INTO seen VALUES (?)", (key,)).rowcount]
        except sqlite3.OperationalError as error:
            raise BackupError(
                f"cannot remember which keys were saved: {error}; make room in the folder for temporary files, or name "
                "another with SQLITE_TMPDIR"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with closing(self._connection):
            pass
