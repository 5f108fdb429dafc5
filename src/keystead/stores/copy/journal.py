"""The progress file: what all copies from one store into another have written, key by key.

With it a killed copy resumes, and a later copy knows which keys an earlier one wrote.

It is an SQLite database with a write-ahead log. An entry is written *before* its key, so after a kill every key that
may have been written has one: entries of a batch that started but did not end are `uncertain`, and the store is asked.
A crash of the whole machine may lose the last entries, nothing else: their keys are then found at the target, equal.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import sqlite3
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from enum import IntEnum
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from keystead.errors import printable
from keystead.stores.globs import compile_glob
from keystead.stores.sqlite.bulk_insert import insert_rows
from keystead.stores.transfer.records import EXAMPLES
from keystead.stores.transfer.transfer_errors import CopyError, NoProgress

FORMAT: Final = 3
_PENDING_ROWS: Final = 4_000  # pending entries in memory
_CERTAIN: Final = 0  # the batch number of entries that are not uncertain
_CACHE_KIB: Final = 16_384
_CHECKPOINT_PAGES: Final = 8_192  # 32 MB of log: the copy waits for each checkpoint

_TABLES: Final = """
CREATE TABLE about (what TEXT NOT NULL);
CREATE TABLE begun (batch INTEGER PRIMARY KEY);
CREATE TABLE notes (
    id INTEGER PRIMARY KEY,
    key BLOB NOT NULL UNIQUE,
    state INTEGER NOT NULL,
    written BLOB NOT NULL,
    ends_at_ms INTEGER,
    before BLOB,
    before_ends_at_ms INTEGER,
    before_is_ours INTEGER NOT NULL,
    batch INTEGER NOT NULL
);
"""
_INSERT: Final = "INSERT INTO notes"
_UPDATE: Final = """
UPDATE notes
SET state = ?, written = ?, ends_at_ms = ?, before = ?, before_ends_at_ms = ?, before_is_ours = ?, batch = ?
WHERE id = ?
"""


class State(IntEnum):
    """The owner of a key at the target."""

    OURS = 0  # written by a copy
    EQUAL = 1  # existed before, equal
    IN_THE_WAY = 2  # existed before, different
    CHANGED = 3  # written by a copy, then changed at the target
    DELETED = 4  # written by a copy, then deleted at the target
    UNFIT = 5  # the target cannot hold it


_STATES: Final = tuple(State)  # by their numbers


class Entry(NamedTuple):
    """The record of one key. `written` and `before` are fingerprints: of what this copy wrote last, or was about to
    write, and of the previous value, which a copy may have written (`before_is_ours`).

    `id` is 0 until the key is in the journal. An `uncertain` entry without `before` is for a key that was not at the
    target when it was checked.
    """

    id: int
    key: bytes
    state: State
    written: bytes
    ends_at_ms: int | None
    before: bytes | None = None
    before_ends_at_ms: int | None = None
    before_is_ours: bool = False
    uncertain: bool = False

    def is_ours(self, held: bytes) -> bool:
        """Whether a copy wrote the value now at the target; `held` is its fingerprint."""
        if self.state is not State.OURS:
            return False
        return held == self.written or (self.uncertain and self.before_is_ours and held == self.before)


class Journal:
    """The journal of all copies from one store into another. One process at a time.

    Everything except `is_empty` covers only keys that match the pattern `match`.
    """

    def __init__(self, path: Path, source: str, target: str, match: str = "*", *, start_over: bool = False) -> None:
        """Create or open it; `start_over` deletes its entries.

        Raises NoProgress if the file belongs to another copy or process, or is not a progress file.
        """
        self.path = path
        self._pending: list[tuple[str, list[tuple[Any, ...]]]] = []
        self._pending_rows = 0
        self.is_new = _create_private(path)
        try:
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
        except sqlite3.Error as error:
            raise NoProgress(f"cannot open {path}: {error}") from None
        try:
            self._open({"format": FORMAT, "from": source, "to": target}, start_over)
        except sqlite3.DatabaseError as error:
            self._connection.close()
            if "locked" in str(error):
                raise NoProgress(f"another process uses {path}; wait for it, or name another with --progress") from None
            raise NoProgress(
                f"{path} is not a progress file of a copy, or is damaged: {error}. Name another file with --progress, "
                "or remove it and add --start-over"
            ) from None
        except BaseException:
            self._connection.close()
            raise
        self._matching = "1"
        if match != "*":
            glob = compile_glob(match.encode())
            self._connection.create_function("matches", 1, lambda key: glob.fullmatch(key) is not None)
            self._matching = "matches(key)"

    def _open(self, expected: dict[str, Any], start_over: bool) -> None:
        ask = self._connection.execute
        # The file is exclusive from here on; and without other readers there is no shared-memory file beside it.
        for pragma in (
            "locking_mode = EXCLUSIVE",
            "journal_mode = WAL",
            "synchronous = NORMAL",
            f"cache_size = -{_CACHE_KIB}",
            f"wal_autocheckpoint = {_CHECKPOINT_PAGES}",
        ):
            ask(f"PRAGMA {pragma}")
        ask("BEGIN EXCLUSIVE")
        if self.is_new or not ask("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            for line in _TABLES.split(";"):
                ask(line)
            ask("INSERT INTO about VALUES (?)", (json.dumps({**expected, "id": secrets.token_hex(8)}),))
        about = json.loads(ask("SELECT what FROM about").fetchone()[0])
        if about.get("format") != FORMAT:
            raise NoProgress(
                f"{self.path} was written by another version of Keystead; remove it, or name another file with "
                "--progress"
            )
        if {name: about.get(name) for name in expected} != expected:
            raise NoProgress(
                f"{self.path} is the progress file of another copy, from {about.get('from')} to {about.get('to')}; "
                "name another file with --progress"
            )
        if start_over:
            ask("DELETE FROM notes")
            ask("DELETE FROM begun")
            about["id"] = secrets.token_hex(8)
            ask("UPDATE about SET what = ?", (json.dumps(about),))
        self.id: str = about["id"]
        # Keys in the way may have been removed since.
        ask("DELETE FROM notes WHERE state IN (?, ?)", (State.IN_THE_WAY, State.UNFIT))
        self._begun = {batch for (batch,) in ask("SELECT batch FROM begun")}
        self._batch: int = ask(
            "SELECT max(ifnull(max(batch), 0), ?) FROM notes", (max(self._begun, default=0),)
        ).fetchone()[0]
        self.last_id: int = ask("SELECT ifnull(max(id), 0) FROM notes").fetchone()[0]
        self.earlier_id = self.last_id  # the last entry of all runs before this one
        ask("COMMIT")

    # --- reading -------------------------------------------------------------------------------------------

    def find(self, keys: Sequence[bytes]) -> dict[bytes, Entry]:
        """The entries of these keys, at most 900; keys without an entry are left out."""
        rows = self._select("*", f"key IN ({','.join('?' * len(keys))})", *keys)
        return {row[1]: self._entry(row) for row in rows}

    def pages(self, size: int, seen: SeenIds | None = None) -> Iterator[list[Entry]]:
        """All entries, page by page, except `seen` ones. Entries may change meanwhile."""
        last = 0
        while ids := [number for (number,) in self._select("id", "id > ? ORDER BY id LIMIT ?", last, size)]:
            # Usually all of them were seen, and no entry is read.
            if wanted := ids if seen is None else [number for number in ids if number not in seen]:
                yield [self._entry(row) for row in self._select("*", f"id IN ({','.join('?' * len(wanted))})", *wanted)]
            last = ids[-1]

    def _entry(self, row: Sequence[Any]) -> Entry:
        number, key, state, *rest, is_ours, batch = row
        return Entry._make((number, key, _STATES[state], *rest, bool(is_ours), batch in self._begun))

    def count_lasting(self, last_id: int, now_ms: int, *states: State) -> int:
        """The number of unexpired keys in these states, up to this entry."""
        where = f"id <= ? AND ifnull(ends_at_ms > ?, 1) AND state IN ({','.join('?' * len(states))})"
        return int(self._select("count(*)", where, last_id, now_ms, *states)[0][0])

    def counts(self) -> dict[State, int]:
        rows = self._select("state, count(*)", "1 GROUP BY state")
        return dict.fromkeys(State, 0) | {State(state): count for state, count in rows}

    def examples(self, state: State) -> list[str]:
        """The first keys of a state, readable."""
        return [printable(key) for (key,) in self._select("key", "state = ? LIMIT ?", state, EXAMPLES)]

    def _select(self, what: str, where: str, *values: Any) -> list[Any]:
        """Select from matching keys. `what` and `where` are constants and question marks."""
        with self._explain_errors():
            query = f"SELECT {what} FROM notes WHERE {self._matching} AND {where}"  # noqa: S608
            return self._connection.execute(query, values).fetchall()

    @property
    def is_empty(self) -> bool:
        """Whether there is no entry, of any pattern."""
        with self._explain_errors():
            return self._connection.execute("SELECT 1 FROM notes LIMIT 1").fetchone() is None

    # --- writing -------------------------------------------------------------------------------------------

    def begin(self, entries: Iterable[Entry]) -> tuple[int, list[int]]:
        """Record keys before they are written; returns the number of the batch, and the id of each entry."""
        self._batch += 1
        batch, ids = self._batch, []
        new: list[tuple[Any, ...]] = []
        known: list[tuple[Any, ...]] = []
        for entry in entries:
            number = entry.id
            if number:
                known.append((*entry[2:8], batch, number))
            else:
                number = self.last_id = self.last_id + 1
                new.append((number, *entry[1:8], batch))
            ids.append(number)
        self._begun.add(batch)
        self._pending += (("INSERT INTO begun VALUES (?)", [(batch,)]), (_INSERT, new), (_UPDATE, known))
        self.flush()
        return batch, ids

    def end(self, batch: int, states: Iterable[tuple[int, State]] = ()) -> None:
        """Record that the batch was written, except for these. On disk with the next `flush`."""
        self._begun.discard(batch)
        self._pending.append(("DELETE FROM begun WHERE batch = ?", [(batch,)]))
        self.mark(states)

    def mark(self, states: Iterable[tuple[int, State]]) -> None:
        """Record the owners of these keys. On disk with the next `flush`."""
        changed = [(state, _CERTAIN, number) for number, state in states]
        self._add_pending("UPDATE notes SET state = ?, batch = ? WHERE id = ?", changed)

    def settle(self, entries: Iterable[Entry]) -> None:
        """Record that the target holds exactly this. On disk with the next `flush`."""
        self._add_pending(_UPDATE, [(*entry[2:5], None, None, False, _CERTAIN, entry.id) for entry in entries])

    def forget(self, ids: Iterable[int]) -> None:
        """Remove these entries. On disk with the next `flush`."""
        self._add_pending("DELETE FROM notes WHERE id = ?", [(number,) for number in ids])

    def _add_pending(self, statement: str, rows: list[tuple[Any, ...]]) -> None:
        if rows:
            self._pending.append((statement, rows))
            self._pending_rows += len(rows)
        if self._pending_rows > _PENDING_ROWS:
            self.flush()

    def flush(self) -> None:
        """Write the pending records to the file, in one transaction."""
        pending, self._pending, self._pending_rows = self._pending, [], 0
        with self._explain_errors():
            self._connection.execute("BEGIN")
            try:
                for statement, rows in pending:
                    if statement is _INSERT:
                        insert_rows(self._connection.execute, statement, rows)
                    elif rows:
                        self._connection.executemany(statement, rows)
                self._connection.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise CopyError(f"cannot record the progress in {self.path}: {error}") from None

    def remove(self) -> None:
        """Delete the file, if nothing was copied."""
        self.close()
        for ending in ("", "-wal", "-shm", "-journal"):
            with suppress(OSError):
                self.path.with_name(self.path.name + ending).unlink(missing_ok=True)

    def close(self) -> None:
        with suppress(CopyError, sqlite3.Error):
            self.flush()
        with suppress(sqlite3.Error):
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SeenIds:
    """The entries seen in a pass, as one bit each."""

    def __init__(self) -> None:
        self._bits = bytearray()

    def add(self, number: int) -> None:
        if number >> 3 >= len(self._bits):
            self._bits.extend(bytes((number >> 3) + 4096 - len(self._bits)))
        self._bits[number >> 3] |= 1 << (number & 7)

    def discard(self, number: int) -> None:
        if number in self:
            self._bits[number >> 3] &= ~(1 << (number & 7))

    def __contains__(self, number: int) -> bool:
        return number >> 3 < len(self._bits) and bool(self._bits[number >> 3] & 1 << (number & 7))


def _create_private(path: Path) -> bool:
    """Create the empty file, readable by its owner only; False: it exists, and is ours alone."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600))
        return True
    except FileExistsError:
        pass
    except FileNotFoundError:
        raise NoProgress(f"cannot create {path}: there is no folder {path.parent}") from None
    except OSError as error:
        raise NoProgress(f"cannot create {path}: {error.strerror or error}") from None
    try:
        found = path.lstat()
        is_ours = stat.S_ISREG(found.st_mode) and found.st_uid == getattr(os, "geteuid", lambda: found.st_uid)()
        if not is_ours or found.st_nlink != 1:  # its creator could read all key names
            raise NoProgress(f"{path} is also accessible to other users; remove it, or name another with --progress")
        path.chmod(0o600)
    except OSError as error:
        raise NoProgress(f"cannot use {path}: {error.strerror or error}") from None
    return False


def progress_path(source: str, target: str) -> Path:
    """The default progress file, in the current folder, named after both URLs without secrets."""
    digest = blake2b(json.dumps([source, target]).encode(), digest_size=4).hexdigest()
    return Path(f"copy-{_short_name(source)}-to-{_short_name(target)}-{digest}.progress")


def _short_name(url: str) -> str:
    """A part of a URL that fits into a file name: its scheme and its end."""
    scheme, *words = re.findall(r"[A-Za-z0-9]+", url)
    return "-".join((scheme, *words[-6:]))[:60]
