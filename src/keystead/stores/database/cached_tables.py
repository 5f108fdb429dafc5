"""The tables on a server, as one transaction sees them: read before the commands run, written after.

The commands of a batch determine what it reads, so all of that is loaded at once (`load`). Changes stay in memory until
a query could depend on them, or until the commit; then they are sent together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from keystead.stores.commands import Call
from keystead.stores.database.batch_reads import LOADED, BatchReads
from keystead.stores.database.cached_entries import CachedEntries
from keystead.stores.database.database_session import Result, Session, Statement
from keystead.stores.database.dialect import IDS_AT_ONCE, Dialect, FoundKeys, NewRow, StoredKey, Wanted
from keystead.stores.database.hashed_names import LONGEST, name_of, rest_of, text_of
from keystead.stores.sql.key_tables import DELETE_AT_ONCE, ENTRY_TABLES, STRING, KeyRow, KeyTables, in_order


class CachedTables(KeyTables):
    """For one transaction of a session. `ahead_ms`: how far a test has advanced the clock."""

    def __init__(self, session: Session, dialect: Dialect, ahead_ms: Callable[[], int]) -> None:
        self.execute = self._execute
        self.later = self._later
        self.wall_ms = lambda: self._server_ms
        self.now_ms = 0
        self.published = False
        self._session = session
        self._dialect = dialect
        self._ahead_ms = ahead_ms
        self._server_ms = 0
        self._stored: dict[bytes, StoredKey | None] = {}
        self._held: dict[bytes, StoredKey | None] = {}
        self._dirty: dict[bytes, None] = {}
        self._fields = CachedEntries("fields")
        self._scores = CachedEntries("scored")
        self._complete: set[int] = set()  # owners whose fields are all known
        self._new: set[int] = set()  # owners created by this transaction
        self._dead: set[int] = set()  # owners whose entries are deleted, or about to be
        self._listening: dict[bytes, int] = {}
        self._messages = 0
        self._log: list[Statement] = []  # to be sent with the next query, or the commit
        self._undo: list[Callable[[], None]] | None = None  # of the current step
        self._step_at = -1  # its savepoint in the log; -1: already sent, or not needed
        self._in_memory = True  # whether the current step needs no savepoint

    # --- beginning and ending ------------------------------------------------------------------------------

    def load(
        self,
        calls: Iterable[Call],
        keys: Iterable[bytes] = (),
        *,
        writes: bool,
        more: bool = False,
        timeless: bool = False,
    ) -> None:
        """Begin, and read what these calls need. `keys`: others to lock and read. `more`: further queries follow.

        Reads that need nothing more are one statement, without a transaction, and done when this returns.
        """
        dialect, needs = self._dialect, BatchReads(calls, keys)
        before: Sequence[Statement] = ()
        if writes:
            missing = needs.writes - len(self._session.ids)
            if missing > 0:
                self.take_ids(-(-missing // IDS_AT_ONCE))
            before = [dialect.begin, *dialect.lock(needs.sorted_keys(), publishes=needs.publishes)]
        elif more or not needs.one_read_is_enough:
            before = dialect.begin_reading
        wanted = needs.wanted(timeless=timeless)
        self.know(needs, wanted, self._session.ask([*before, dialect.look(wanted)])[-1])

    def know(self, needs: BatchReads, wanted: Wanted, result: Result) -> None:
        """Keep what was read."""
        found = self._dialect.parse_found(result, wanted)
        self._know_rows([*needs.with_value, *needs.without_value()], found)
        self._know_entries(self._fields, needs.fields, {(owner, name): (value,) for owner, name, value in found.fields})
        self._know_entries(self._scores, needs.members, {(owner, name): score for owner, name, score in found.members})
        self._know_wholes(needs.wholes, found)

    def take_ids(self, blocks: int = 1) -> None:
        """Reserve ids for new keys of this session."""
        starts = self._session.ask(self._dialect.allocate(blocks))[-1]
        for [start] in starts:
            self._session.ids.extend(range(start, start + IDS_AT_ONCE))

    def _know_rows(self, keys: Sequence[bytes], found: FoundKeys) -> None:
        self._server_ms = found.now_ms
        self.now_ms = self._server_ms + self._ahead_ms()
        self._stored.update(dict.fromkeys(keys))
        texts = {name_of(key): key for key in keys if len(key) > LONGEST}
        for name, held in found.rows:
            self._stored[texts.get(name, name)] = held
        self._held.update((key, self._stored[key]) for key in keys)

    def _know_entries(
        self, entries: CachedEntries, wanted: Iterable[tuple[bytes, bytes]], found: Mapping[tuple[int, bytes], Any]
    ) -> None:
        for key, text in wanted:
            row = self._stored[key]
            if row is not None:
                entries.know(row.id, text, found.get((row.id, name_of(text))))

    def _know_wholes(self, keys: Iterable[bytes], found: FoundKeys) -> None:
        for key in keys:
            if (row := self._stored[key]) is not None:
                self._complete.add(row.id)
                self._fields.held.setdefault(row.id, {})
        for owner, name, rest, value in found.wholes:
            self._fields.know(owner, text_of(name, rest), (value,))

    def _read(self, entries: CachedEntries, value: Any) -> Any:
        """A value as held in memory: of a field in a tuple, as members of a set have None; a score unchanged."""
        return (value,) if entries is self._fields else self._dialect.decode_score(value)

    @property
    def changes(self) -> bool:
        """Whether there is anything to write."""
        return bool(self._log or self._dirty or self._fields.dirty or self._scores.dirty)

    def commit(self) -> None:
        self._settle()
        self._session.ask([*self._log, self._dialect.commit])
        self._log.clear()

    # --- queries -------------------------------------------------------------------------------------------

    def _execute(self, statement: str, parameters: Sequence[Any] = ()) -> Result:
        """Run a query now, after all earlier changes."""
        if self._undo is not None and self._in_memory:
            raise RuntimeError(f"a step that should run in memory sends a query: {statement}")
        result = self.ask(Statement(self._dialect.translate(statement), parameters))
        if not statement.startswith("SELECT"):
            # Scores are the only entries held here that handlers also change by statement; and a new owner may now
            # have entries that are not held here.
            self._scores.clear()
            self._new.clear()
        return result

    def ask(self, statement: Statement) -> Result:
        """`execute`, for a statement in the dialect of the server."""
        self._settle()
        [*_, result] = self._session.ask([*self._log, statement])
        self._log.clear()
        self._step_at = -1
        return result

    def _fetch(self, statement: str, parameters: Sequence[Any]) -> Result:
        """Run a query that does not depend on changes of this transaction."""
        [result] = self._session.ask([Statement(self._dialect.translate(statement), parameters)])
        return result

    def _later(self, statement: str, parameters: Sequence[Any] = ()) -> None:
        self._log.append(Statement(self._dialect.translate(statement), parameters))

    def _settle(self) -> None:
        """Turn the changes in memory into statements."""
        if self._dirty:
            self._settle_rows()
        for entries in (self._fields, self._scores):
            if entries.dirty:
                self._settle_entries(entries)

    def _settle_rows(self) -> None:
        gone: list[int] = []
        new: list[NewRow] = []
        changed: list[NewRow] = []
        valued: list[NewRow] = []
        for key in self._dirty:
            before, now = self._stored[key], self._held[key]
            if before == now:
                continue
            self._stored[key] = now
            if before is not None and (now is None or now.id != before.id):
                gone.append(before.id)
                before = None
            if now is not None:
                rows = new if before is None else valued if now.has_new_value(before) else changed
                rest = rest_of(key)
                rows.append(NewRow(now.id, name_of(key), rest, now.kind, now.expires_at, now.size, now.long, now.value))
        self._dirty.clear()
        dialect = self._dialect
        if gone:
            self._log += dialect.delete_rows(gone)
        for write, rows in (
            (dialect.insert_rows, new),
            (dialect.update_rows, changed),
            (dialect.update_values, valued),
        ):
            if rows:
                self._log += write(rows)

    def _settle_entries(self, entries: CachedEntries) -> None:
        put: list[tuple[int, bytes, bytes | None, object]] = []
        drop: list[tuple[int, bytes]] = []
        for owner, text in entries.dirty:
            value = entries.held[owner][text]
            stored = entries.stored.setdefault(owner, {})
            if owner in self._dead or stored.get(text) == value:
                continue
            if value is None:
                drop.append((owner, name_of(text)))
            else:
                stored_value = value[0] if entries is self._fields else self._dialect.encode_score(value)
                put.append((owner, name_of(text), rest_of(text), stored_value))
            stored[text] = value
        entries.dirty.clear()
        if drop:
            self._log += self._dialect.drop_entries(entries.table, drop)
        if put:
            self._log += self._dialect.put_entries(entries.table, put)

    # --- whole keys ----------------------------------------------------------------------------------------

    def _load_row(self, key: bytes) -> StoredKey | None:
        if key not in self._held:
            wanted = Wanted(others=[name_of(key)])
            [result] = self._session.ask([self._dialect.look(wanted)])
            server_ms, now_ms = self._server_ms, self.now_ms
            self._know_rows([key], self._dialect.parse_found(result, wanted))
            self._server_ms, self.now_ms = server_ms, now_ms
        return self._held[key]

    def _change(self, key: bytes, held: StoredKey | None) -> None:
        if self._undo is not None:
            self._undo.append(
                _Restore(key, self._held[key], self._stored[key], self._held, self._stored, self._dirty, key)
            )
        self._held[key] = held
        self._dirty[key] = None

    def live(self, key: bytes) -> KeyRow | None:
        held = self._load_row(key)
        if held is None or (held.expires_at is not None and held.expires_at <= self.now_ms):
            return None
        return KeyRow(held.id, held.kind, held.expires_at, held.size)

    def value(self, key: bytes, row: KeyRow) -> bytes:
        held = self._load_row(key)
        if held is None:
            return b""
        if not held.loaded:
            [value] = self._fetch("SELECT value FROM keys WHERE id = ?", (row.id,)).fetchone()
            for where in (self._held, self._stored):
                there = where[key]
                if there is not None and there.id == row.id and not there.loaded:
                    where[key] = there._replace(value=value, loaded=True)
            return value or b""
        return held.value or b""

    def string(self, key: bytes) -> bytes | None:
        row = self.holding(key, STRING)
        return None if row is None else self.value(key, row)

    def put(self, key: bytes, value: bytes, expires_at: int | None) -> None:
        held = self._load_row(key)
        if held is not None and held.kind == STRING:
            row_id = held.id
        else:
            if held is not None:
                self._discard(held)
            row_id = self._session.ids.pop()
        self._change(key, StoredKey(row_id, STRING, expires_at, 0, 0, value, True))

    def create(self, key: bytes, kind: int) -> int:
        held = self._load_row(key)
        if held is not None:
            self._discard(held)
        row_id = self._session.ids.pop()
        self._new.add(row_id)
        self._change(key, StoredKey(row_id, kind, None, 0, 0, None, True))
        return row_id

    def delete(self, key: bytes) -> bool:
        held = self._load_row(key)
        if held is None:
            return False
        self._discard(held)
        self._change(key, None)
        return held.expires_at is None or held.expires_at > self.now_ms

    def bury(self, key: bytes) -> int:
        """Remove a key if it has expired; returns the number of its entries, or -1 if it is live or missing."""
        held = self._load_row(key)
        if held is None or held.expires_at is None or held.expires_at > self.now_ms:
            return -1
        self.delete(key)
        return held.size

    def _discard(self, held: StoredKey) -> None:
        """Delete the entries of a key whose row is deleted."""
        if held.kind == STRING:
            return
        self._dead.add(held.id)
        if self._undo is not None:
            self._undo.append(lambda: self._dead.discard(held.id))
        if held.size <= DELETE_AT_ONCE:
            self._later(f"DELETE FROM {ENTRY_TABLES[held.kind]} WHERE owner = ?", (held.id,))  # noqa: S608 - a constant
        else:
            self.postpone(held.id, held.kind)

    def postpone(self, owner: int, kind: int) -> None:
        """Leave the entries of a deleted key to the sweep."""
        self._later("INSERT INTO garbage (owner, kind) VALUES (?, ?)", (owner, kind))

    def _row_of(self, key: bytes) -> StoredKey:
        held = self._load_row(key)
        if held is None:
            raise RuntimeError("a key that was found is not there")
        return held

    def set_deadline(self, key: bytes, row: KeyRow, expires_at: int | None) -> None:
        self._change(key, self._row_of(key)._replace(expires_at=expires_at))

    def set_value(self, key: bytes, row: KeyRow, value: bytes) -> None:
        self._change(key, self._row_of(key)._replace(value=value, loaded=True))

    def set_size(self, key: bytes, owner: int, size: int, last: bytes | None = None) -> None:
        held = self._row_of(key)
        if last is None:
            self._change(key, held._replace(size=size))
        else:
            self._change(key, held._replace(size=size, value=last, loaded=True))

    def page(self, after: int, limit: int) -> list[tuple[int, bytes, int, int | None]]:
        found = self._execute(
            f"SELECT id, {self._dialect.key}, rest, kind, expires_at FROM keys WHERE id > ? ORDER BY id LIMIT ?",  # noqa: S608
            (after, limit),
        )
        return [(row_id, text_of(name, rest), kind, at) for row_id, name, rest, kind, at in found]

    def count(self) -> int:
        [every] = self._execute("SELECT count(*) FROM keys").fetchone()
        [dead] = self._execute("SELECT count(*) FROM keys WHERE expires_at <= ?", (self.now_ms,)).fetchone()
        return int(every - dead)

    # --- fields of hashes, members of sets, members of sorted sets -----------------------------------------

    def _entry(self, entries: CachedEntries, owner: int, text: bytes, column: str, value: str) -> Any:
        held = entries.held.setdefault(owner, {})
        if text in held:
            return held[text]
        if owner in self._new or (entries is self._fields and owner in self._complete):
            entries.know(owner, text, None)
            return None
        found = self._fetch(
            f"SELECT {value} FROM {entries.table} WHERE owner = ? AND {column} = ?",  # noqa: S608 - constants
            (owner, name_of(text)),
        ).fetchone()
        entries.know(owner, text, None if found is None else self._read(entries, found[0]))
        return held[text]

    def _set_entry(self, entries: CachedEntries, owner: int, text: bytes, value: Any) -> None:
        held, stored = entries.held.setdefault(owner, {}), entries.stored.setdefault(owner, {})
        if self._undo is not None:
            self._undo.append(
                _Restore(text, held.get(text), stored.get(text), held, stored, entries.dirty, (owner, text))
            )
        held[text] = value
        entries.dirty[owner, text] = None

    def field(self, owner: int, field: bytes) -> tuple[bytes] | None:
        found: tuple[bytes] | None = self._entry(self._fields, owner, field, "field", "value")
        return found

    def fields(self, owner: int) -> list[tuple[bytes, bytes]]:
        if owner not in self._complete and owner not in self._new:
            for name, rest, value in self._fetch("SELECT field, rest, value FROM fields WHERE owner = ?", (owner,)):
                self._fields.know(owner, text_of(name, rest), (value,))
            self._complete.add(owner)
        held = self._fields.held.get(owner, {})
        return [(text, value[0]) for text, value in held.items() if value is not None]

    def put_field(self, owner: int, field: bytes, value: bytes, *, new: bool | None = None) -> bool:
        there = self.field(owner, field) is not None
        self._set_entry(self._fields, owner, field, (value,))
        return not there

    def add_field(self, owner: int, field: bytes, value: bytes | None = None) -> bool:
        if self.field(owner, field) is not None:
            return False
        self._set_entry(self._fields, owner, field, (value,))
        return True

    def drop_field(self, owner: int, field: bytes) -> bool:
        if self.field(owner, field) is None:
            return False
        self._set_entry(self._fields, owner, field, None)
        return True

    def score(self, owner: int, member: bytes) -> float | None:
        found: float | None = self._entry(self._scores, owner, member, "member", "score")
        return found

    def put_score(self, key: bytes, owner: int, member: bytes, score: float, *, new: bool) -> None:
        self._set_entry(self._scores, owner, member, score + 0.0)  # turns -0.0 into 0.0
        held = self._row_of(key)
        if len(member) > LONGEST and not held.long:
            self._change(key, held._replace(long=1))

    def drop_score(self, owner: int, member: bytes) -> bool:
        if self.score(owner, member) is None:
            return False
        self._set_entry(self._scores, owner, member, None)
        return True

    def members(
        self, key: bytes, where: str, parameters: Sequence[Any], *, limit: int, offset: int, reverse: bool = False
    ) -> list[tuple[bytes, float]]:
        decode_score = self._dialect.decode_score
        if not self._row_of(key).long:
            found = self._execute(in_order(where, reverse), (*parameters, limit, offset))
            return [(member, decode_score(score)) for member, score in found]
        # Hashed names do not sort as their texts do, and MySQL sorts by the first thousand bytes only: sorted here.
        rows = self._execute(f"SELECT member, rest, score FROM scored WHERE {where}", parameters)  # noqa: S608
        whole = [(text_of(name, rest), decode_score(score)) for name, rest, score in rows]
        whole.sort(key=lambda pair: (pair[1], pair[0]), reverse=reverse)
        return whole[offset : offset + limit]

    def encode_score(self, score: float) -> float | int:
        return self._dialect.encode_score(score)

    def member_of(self, key: bytes) -> str:
        held = self._load_row(key)
        return self._dialect.whole_member if held is not None and held.long else "member"

    # --- one atomic step -----------------------------------------------------------------------------------

    def begin_step(self, calls: Sequence[Call]) -> None:
        self._in_memory = all(call.spec.name in LOADED for call in calls)
        if not self._in_memory:
            self._settle()
        mark, published = len(self._log), self.published
        self._step_at = mark
        self._undo = [lambda: setattr(self, "published", published)]
        if not self._in_memory:
            self._log.append(Statement("SAVEPOINT step"))

    def keep_step(self) -> None:
        self._undo = None
        if not self._in_memory:
            self._log.append(Statement("RELEASE SAVEPOINT step"))

    def undo_step(self) -> None:
        undo, self._undo = self._undo or [], None
        for restore in reversed(undo):
            restore()
        if self._step_at >= 0:
            del self._log[self._step_at :]
        else:
            self._log += [Statement("ROLLBACK TO SAVEPOINT step"), Statement("RELEASE SAVEPOINT step")]

    # --- messages ------------------------------------------------------------------------------------------

    def publish(self, channel: bytes, data: bytes) -> int:
        if channel not in self._listening:
            [self._listening[channel]] = self._fetch(
                "SELECT count(*) FROM subscribers WHERE channel = ? AND expires_at > ?",
                (name_of(channel), self._server_ms),
            ).fetchone()
        listening = self._listening[channel]
        if listening:
            self._messages += 1
            self._log.append(self._dialect.publish(channel, data, self._messages, self._server_ms))
            self.published = True
        return listening


class _Restore:
    """Restores one entry: its value in memory, its stored value, and whether it was dirty."""

    __slots__ = ("at", "dirty", "held", "in_held", "in_stored", "mark", "stored", "was_dirty")

    def __init__(
        self,
        at: bytes,
        held: Any,
        stored: Any,
        in_held: dict[bytes, Any],
        in_stored: dict[bytes, Any],
        dirty: dict[Any, None],
        mark: Any,
    ) -> None:
        self.at, self.held, self.stored, self.in_held, self.in_stored = at, held, stored, in_held, in_stored
        self.dirty, self.mark, self.was_dirty = dirty, mark, mark in dirty

    def __call__(self) -> None:
        self.in_held[self.at], self.in_stored[self.at] = self.held, self.stored
        if not self.was_dirty:
            self.dirty.pop(self.mark, None)
