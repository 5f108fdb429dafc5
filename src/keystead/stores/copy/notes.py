"""The progress file: what all copies from one store into another have written, key by key, on disk.

It is what lets a killed copy go on, and what tells a later copy which keys were brought by an earlier one.

It is an SQLite database with a write-ahead log. A note is written *before* the key is, so that after a kill every key
that may have been written has one: notes of a batch that was begun and not ended are `uncertain`, and the store is
asked. A crash of the whole machine may lose the last notes, and nothing else: such keys are then found there, the same.
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

from keystead.errors import shown
from keystead.stores.copy.errors import CopyError, NoProgress
from keystead.stores.globs import compile_glob
from keystead.stores.sqlite.bulk_insert import insert_rows

FORMAT: Final = 3
_PENDING_ROWS: Final = 4_000  # more are not kept in memory
CERTAIN: Final = 0  # the batch of notes that are not in doubt
_CACHE_KIB: Final = 16_384
_CHECKPOINT_PAGES: Final = 8_192  # 32 MB of log: each checkpoint waits for the disk, and so does the copy
_EXAMPLES: Final = 10

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
    """Whose a key is, at the store that is written to."""

    OURS = 0  # this copy wrote it
    EQUAL = 1  # it was there, the same
    IN_THE_WAY = 2  # it was there, another one
    CHANGED = 3  # this copy wrote it, and somebody changed it there since
    DELETED = 4  # this copy wrote it, and somebody deleted it there since
    UNFIT = 5  # the store cannot hold it


_STATES: Final = tuple(State)  # by their numbers


class Note(NamedTuple):
    """What is known of one key. `written` and `before` are fingerprints: of what this copy wrote last, or was about to
    write, and of what was there until then; that was either a copy's own work (`before_is_ours`) or somebody else's.
    An `uncertain` note without `before` is of a key that was looked for, and was not there.
    """

    id: int
    key: bytes
    state: State
    written: bytes
    ends_at_ms: int | None
    before: bytes | None
    before_ends_at_ms: int | None
    before_is_ours: bool
    uncertain: bool

    def is_ours(self, held: bytes) -> bool:
        """Whether what the target holds now is what a copy wrote there: `held` is its fingerprint."""
        if self.state is not State.OURS:
            return False
        return held == self.written or (self.uncertain and self.before_is_ours and held == self.before)


class Intent(NamedTuple):
    """What is about to be written. `id` is None where there is no note of the key yet."""

    id: int | None
    key: bytes
    written: bytes
    ends_at_ms: int | None
    before: bytes | None = None
    before_ends_at_ms: int | None = None
    before_is_ours: bool = False
    state: State = State.OURS


class Notes:
    """The notes of all copies from one store into another. One process at a time.

    `match` narrows `pages`, `counts` and `examples` to keys that match this pattern.
    """

    def __init__(self, path: Path, source: str, target: str, match: str = "*", *, start_over: bool = False) -> None:
        """Begin, or go on; with `start_over`, without what was noted before.

        Raises NoProgress where the file is another copy's, another process's, or none at all.
        """
        self.path = path
        self._pending: list[tuple[str, list[tuple[Any, ...]]]] = []
        self._pending_rows = 0
        self.is_new = not (known := _made(path))
        try:
            self._connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=0)
        except sqlite3.Error as error:
            raise NoProgress(f"cannot open {path}: {error}") from None
        try:
            self._open({"format": FORMAT, "from": source, "to": target}, known, start_over)
            self._narrow(match)
        except sqlite3.DatabaseError as error:
            self._connection.close()
            if "locked" in str(error):
                raise NoProgress(
                    f"another process is copying with {path}; wait for it, or name another file with --progress"
                ) from None
            raise NoProgress(
                f"{path} is not a progress file of a copy, or is damaged: {error}. Name another file with --progress, "
                "or remove it and add --start-over"
            ) from None
        except BaseException:
            self._connection.close()
            raise

    def _open(self, expected: dict[str, Any], known: bool, start_over: bool) -> None:
        ask = self._connection.execute
        # The file is ours alone from here on; and with no reader beside us there is no shared memory beside the file.
        ask("PRAGMA locking_mode = EXCLUSIVE")
        ask("PRAGMA journal_mode = WAL")
        ask("PRAGMA synchronous = NORMAL")
        ask(f"PRAGMA cache_size = -{_CACHE_KIB}")
        ask(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        ask("BEGIN EXCLUSIVE")
        is_new = not known or not ask("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if is_new:
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
                f"{self.path} is the progress of another copy, from {about.get('from')} to {about.get('to')}; name "
                "another file with --progress"
            )
        if start_over and not is_new:
            ask("DELETE FROM notes")
            ask("DELETE FROM begun")
            about["id"] = secrets.token_hex(8)
            ask("UPDATE about SET what = ?", (json.dumps(about),))
        self.id: str = about["id"]
        # What was in the way may have been moved out of it since.
        ask("DELETE FROM notes WHERE state IN (?, ?)", (State.IN_THE_WAY, State.UNFIT))
        self._begun = {batch for (batch,) in ask("SELECT batch FROM begun")}
        self._batch: int = ask(
            "SELECT max(ifnull((SELECT max(batch) FROM begun), 0), ifnull(max(batch), 0)) FROM notes"
        ).fetchone()[0]
        self._id: int = ask("SELECT ifnull(max(id), 0) FROM notes").fetchone()[0]
        self.earlier_id = self._id  # the last note of all runs before this one
        ask("COMMIT")

    def _narrow(self, match: str) -> None:
        self._matching = "1"
        if match != "*":
            glob = compile_glob(match.encode())
            self._connection.create_function("matches", 1, lambda key: glob.fullmatch(key) is not None)
            self._matching = "matches(key)"

    # --- looking -------------------------------------------------------------------------------------------

    def of(self, keys: Sequence[bytes]) -> dict[bytes, Note]:
        """The notes of those keys that have one. At most 900 keys at once."""
        asked = f"SELECT * FROM notes WHERE key IN ({','.join('?' * len(keys))})"  # noqa: S608 - only question marks
        with self._told():
            return {row[1]: self._note(row) for row in self._connection.execute(asked, tuple(keys))}

    def pages(self, size: int) -> Iterator[list[Note]]:
        """All notes of keys that match, page by page, while they may be changed."""
        after = 0
        while True:
            with self._told():
                rows = self._connection.execute(
                    f"SELECT * FROM notes WHERE id > ? AND {self._matching} ORDER BY id LIMIT ?",  # noqa: S608
                    (after, size),
                ).fetchall()
            if not rows:
                return
            after = rows[-1][0]
            yield [self._note(row) for row in rows]

    def unseen(self, seen: SeenIds, size: int) -> Iterator[list[Note]]:
        """As `pages`, but only notes that were not met."""
        after = 0
        while True:
            with self._told():
                rows = self._connection.execute(
                    f"SELECT id FROM notes WHERE id > ? AND {self._matching} ORDER BY id LIMIT ?",  # noqa: S608
                    (after, size),
                ).fetchall()
                if not rows:
                    return
                after = rows[-1][0]
                ids = [number for (number,) in rows if number not in seen]
                if not ids:
                    continue
                asked = f"SELECT * FROM notes WHERE id IN ({','.join('?' * len(ids))})"  # noqa: S608
                found = [self._note(row) for row in self._connection.execute(asked, ids)]
            yield found

    def _note(self, row: Sequence[Any]) -> Note:
        number, key, state, written, ends_at_ms, before, before_ends_at_ms, is_ours, batch = row
        uncertain = batch in self._begun
        return Note(
            number, key, _STATES[state], written, ends_at_ms, before, before_ends_at_ms, bool(is_ours), uncertain
        )

    @property
    def is_empty(self) -> bool:
        """Whether no key is known, of any pattern."""
        with self._told():
            return not self._connection.execute("SELECT EXISTS (SELECT 1 FROM notes)").fetchone()[0]

    @property
    def last_id(self) -> int:
        return self._id

    def count_lasting(self, last_id: int, now_ms: int, *states: State) -> int:
        """How many keys, up to this note, are of these states and have not expired by now."""
        asked = (
            f"SELECT count(*) FROM notes WHERE id <= ? AND state IN ({','.join('?' * len(states))}) "  # noqa: S608
            f"AND (ends_at_ms IS NULL OR ends_at_ms > ?) AND {self._matching}"
        )
        with self._told():
            return int(self._connection.execute(asked, (last_id, *states, now_ms)).fetchone()[0])

    def counts(self) -> dict[State, int]:
        with self._told():
            rows = self._connection.execute(
                f"SELECT state, count(*) FROM notes WHERE {self._matching} GROUP BY state"  # noqa: S608 - a constant
            ).fetchall()
        return dict.fromkeys(State, 0) | {State(state): count for state, count in rows}

    def examples(self, state: State) -> list[str]:
        """The first keys of a state, as a person can read them."""
        with self._told():
            rows = self._connection.execute(
                f"SELECT key FROM notes WHERE state = ? AND {self._matching} LIMIT ?",  # noqa: S608 - a constant
                (state, _EXAMPLES),
            )
            return [shown(key) for (key,) in rows]

    # --- noting --------------------------------------------------------------------------------------------

    def begin(self, intents: Iterable[Intent]) -> tuple[int, list[int]]:
        """Note what is about to be written, before it is; returns the number of this batch, and the id of each."""
        self._batch += 1
        batch, ids = self._batch, []
        new: list[tuple[Any, ...]] = []
        known: list[tuple[Any, ...]] = []
        for intent in intents:
            number = intent.id
            if number is None:
                number = self._id = self._id + 1
                new.append((number, intent.key, intent.state, *intent[2:7], batch))
            else:
                known.append((intent.state, *intent[2:7], batch, number))
            ids.append(number)
        self._begun.add(batch)
        self._pending += (
            ("INSERT INTO begun VALUES (?)", [(batch,)]),
            (_INSERT, new),
            (_UPDATE, known),
        )
        self.flush()
        return batch, ids

    def end(self, batch: int, states: Iterable[tuple[int, State]] = ()) -> None:
        """The batch is done: what it was about to write is there, but for these. On disk with the next `flush`."""
        self._begun.discard(batch)
        self._pending.append(("DELETE FROM begun WHERE batch = ?", [(batch,)]))
        self.mark(states)

    def mark(self, states: Iterable[tuple[int, State]]) -> None:
        """Note whose these keys are. On disk with the next `flush`."""
        changed = [(state, CERTAIN, number) for number, state in states]
        self._add_pending("UPDATE notes SET state = ?, batch = ? WHERE id = ?", changed)

    def settle(self, intents: Iterable[Intent]) -> None:
        """Note that the target was found to hold exactly this. On disk with the next `flush`."""
        known = [(intent.state, *intent[2:4], None, None, False, CERTAIN, intent.id) for intent in intents]
        self._add_pending(_UPDATE, known)

    def forget(self, ids: Iterable[int]) -> None:
        """No longer know these keys. On disk with the next `flush`."""
        self._add_pending("DELETE FROM notes WHERE id = ?", [(number,) for number in ids])

    def _add_pending(self, statement: str, rows: list[tuple[Any, ...]]) -> None:
        if rows:
            self._pending.append((statement, rows))
            self._pending_rows += len(rows)
        if self._pending_rows > _PENDING_ROWS:
            self.flush()

    def flush(self) -> None:
        """All that was noted goes to the file, in one transaction."""
        pending, self._pending, self._pending_rows = self._pending, [], 0
        with self._told():
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
    def _told(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise CopyError(f"cannot note the progress in {self.path}: {error}") from None

    # --- ending --------------------------------------------------------------------------------------------

    def remove(self) -> None:
        """Nothing was copied, so there is nothing to know."""
        self.close()
        for name in (self.path.name, f"{self.path.name}-wal", f"{self.path.name}-shm", f"{self.path.name}-journal"):
            with suppress(OSError):
                self.path.with_name(name).unlink(missing_ok=True)

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
    """Which notes were met in a pass: one bit each."""

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


def _made(path: Path) -> bool:
    """Make the file for its owner alone, before anything is in it; True: it is there already, and it is ours."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0), 0o600))
        return False
    except FileExistsError:
        pass
    except FileNotFoundError:
        raise NoProgress(f"cannot make {path}: there is no folder {path.parent}") from None
    except OSError as error:
        raise NoProgress(f"cannot make {path}: {error.strerror or error}") from None
    try:
        found = path.lstat()
        is_ours = stat.S_ISREG(found.st_mode) and found.st_uid == getattr(os, "geteuid", lambda: found.st_uid)()
        if not is_ours or found.st_nlink != 1:  # whoever laid it there could read all names of keys
            raise NoProgress(f"{path} is not a file of yours alone; remove it, or name another with --progress")
        path.chmod(0o600)
    except OSError as error:
        raise NoProgress(f"cannot use {path}: {error.strerror or error}") from None
    return True


def progress_path(source: str, target: str) -> Path:
    """The name of the progress file, in the current folder: made of both URLs without secrets, which a store tells."""
    digest = blake2b(json.dumps([source, target]).encode(), digest_size=4).hexdigest()
    return Path(f"copy-{_name(source)}-to-{_name(target)}-{digest}.progress")


def _name(url: str) -> str:
    """As much of a URL as a name of a file has room for: its scheme, and its last words."""
    scheme, *words = re.findall(r"[A-Za-z0-9]+", url)
    return "-".join((scheme, *words[-6:]))[:60]
