"""Storage of a cache entry, its load marker and its stale copy, and the atomic steps on them.

Every write of a load is guarded by its own marker. Dropping an entry drops the marker in the same step, so a load that
started earlier cannot write afterwards: its marker is gone, or belongs to another load.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from keystead.errors import BadValue, Unreadable
from keystead.parts.cache.load_markers import LoadMarker, LoadMarkers
from keystead.schema import Bound, Codec, Operation, Steps, procedure
from keystead.schema.kinds import Seen, ValueKey
from keystead.schema.lifetime import Sliding
from keystead.schema.operation import combine
from keystead.schema.unreadable import log_unreadable

# The prefix of a marker that replaces an entry. No JSON starts with it, and other values that do are refused.
INSIDE = b"\x00keystead mark\x00"


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """The result of one atomic lookup.

    taken   our marker was written: we load
    entry   the entry, or the error if it is unreadable; None: there is none, or it does not count
    mark    the marker that is there instead of ours; its value is None or False if it is not a readable marker
    stale   the stale copy, or the error if it is unreadable
    """

    taken: bool
    entry: Any = None
    mark: Seen[Any] | None = None
    stale: Any = None


class EntryStorage:
    """One cache entry with its marker and its stale copy.

    entry    its key, of any kind
    mark     the key of its marker. If an atomic step covers one key (Memcached) it is the same key: the marker takes
             the place of the entry, and dropping one drops the other. Then there is no stale copy
    stale    the key of its stale copy, if there is one
    """

    def __init__(self, entry: Any, mark: ValueKey[Any], stale: Any, marks: LoadMarkers) -> None:
        self.entry = entry
        self._mark = mark
        self._copies = [entry] if stale is None else [entry, stale]
        self._inside: bool = mark.key == entry.key
        self._loading_ms = marks.marked.loading_ms
        self._ours: Seen[Any] | None = None

    async def look(self, *, over: bool, instead_of: Seen[Any] | None) -> StoredEntry:
        """Read everything, and write our marker if there is no entry and no marker: one atomic step.

        over         ignore an existing entry
        instead_of   replace exactly this marker, which was read before
        """
        # A marker whose reply was lost, or that was removed, is not ours any more: so each lookup has a new one.
        mark = LoadMarker(state="loading", id=secrets.token_hex(16))
        self._ours = self._mark.as_seen(mark)
        done = await self._look(mark, over, instead_of)
        if done:
            return StoredEntry(taken=True)
        entry, seen, *stale = done.before[: 1 + len(self._copies)]
        if isinstance(seen, Unreadable):
            log_unreadable(self._mark.bound.store, seen)
            seen = Seen(None, seen.raw or b"")
        return StoredEntry(False, None if over else entry, seen, *stale)

    @procedure
    def _look(self, ours: LoadMarker, over: bool, instead_of: Seen[Any] | None) -> Steps[None]:
        # An ignored entry may be of another kind, so it is not read.
        entry = self.entry.exists() if over else self.entry.get().or_error()
        reads = [entry, self._mark.see().or_error(), *self._read_stale()]
        guards = [] if over or self._inside else [self.entry.absent()]
        mark = self._mark.lasting(self._loading_ms)
        if instead_of is None:
            return Steps(*reads, *guards, mark.add(ours).required())
        return Steps(*reads, *guards, mark.holds(instead_of), mark.set(ours))

    def check(self, value: Any) -> None:
        """Raise BadValue if it is not a value of the family."""
        self.entry.set(value).close()

    def fill_operations(self, value: Any, age_ms: int) -> list[Operation[Any]]:
        """The operations that write a loaded value if our marker exists. Raises BadValue for a value of another type.

        age_ms   how long ago the load started: the TTL is that much shorter, so that no entry gets older than its
                 lifetime. A sliding lifetime starts now
        """
        operations = self._put_operations(value)
        for copy in self._copies:
            lifetime = copy.bound.family.lifetime
            if age_ms > 0 and not isinstance(lifetime, Sliding):
                operations.append(copy.shorten(max(1, lifetime.longest_ms - age_ms)))
        return [self._mark.holds(self._ours), *operations]

    def nothing_operations(self, lifetime_ms: int | None) -> list[Operation[Any]]:
        """The operations that cache "there is nothing" if our marker exists; None: only remove the marker."""
        mark = LoadMarker(state="nothing")
        remembered = [] if lifetime_ms is None else [self._mark.lasting(lifetime_ms).set(mark)]
        return [self._mark.holds(self._ours), *self._drop_operations(), *remembered]

    async def run_guarded(self, operations: list[Operation[Any]]) -> bool:
        """Run the operations. False: our marker is gone, and nothing was written."""
        return bool(await self._mark.bound.keyspace.atomically(*operations))

    async def record_failure(self, why: str, retry_ms: int) -> StoredEntry:
        """Record the failure if our marker still exists (`taken`), and read the stale copy in any case."""
        failure = LoadMarker(state="failed", why=why, retry_ms=retry_ms)
        done = await self._mark.bound.keyspace.atomically(
            *self._read_stale(), self._mark.holds(self._ours), self._mark.lasting(retry_ms).set(failure)
        )
        stale = (done.values if done else done.before)[: len(self._copies) - 1]
        return StoredEntry(bool(done), None, None, *stale)

    async def give_back(self) -> None:
        """Remove our marker if it still exists: another process may load."""
        await self.run_guarded([self._mark.holds(self._ours), self._mark.delete()])

    def put(self, value: Any) -> Operation[None]:
        """Write a value unconditionally. Loads that started earlier write nothing."""
        return combine("put", self._put_operations(value), lambda *_: None)

    @procedure
    def change(self, fields: Mapping[str, Any]) -> Steps[None]:
        """Change some fields of an existing entry. Loads that started earlier write nothing."""
        return Steps(self.entry.update(fields), *(copy.delete() for copy in self._copies[1:]), self._mark.delete())

    def drop(self) -> Operation[bool]:
        """Delete everything. Loads that started earlier write nothing. Returns whether there was an entry."""
        if not self._inside:
            return combine("drop", self._drop_operations(), lambda deleted, *_: bool(deleted))
        # A delete cannot tell an entry from a marker: so read it in the same step.
        reads = [self.entry.get().or_error(), *self._drop_operations()]
        return combine("drop", reads, lambda found, *_: found is not None)

    def _read_stale(self) -> list[Operation[Any]]:
        return [copy.get().or_error() for copy in self._copies[1:]]

    def _put_operations(self, value: Any) -> list[Operation[Any]]:
        return [*(copy.set(value) for copy in self._copies), *self._delete_mark()]

    def _drop_operations(self) -> list[Operation[Any]]:
        return [*(copy.delete() for copy in self._copies), *self._delete_mark()]

    def _delete_mark(self) -> list[Operation[Any]]:
        return [] if self._inside else [self._mark.delete()]


class EntriesWithMarks(Codec[Any]):
    """Codec for entries that a marker may replace. A marker reads as no entry."""

    def __init__(self, entries: Bound[Any]) -> None:
        self._inner: Codec[Any] = entries.family.codec
        self._place: str = entries.family.place
        self.type, self.sealed, self.versions = self._inner.type, self._inner.sealed, self._inner.versions

    def encode(self, value: Any, key: str, ring: Any = None, name: str = "") -> bytes:
        data = self._inner.encode(value, key, ring, name)
        if data.startswith(INSIDE):
            raise BadValue(f"{self._place}: this value looks like a mark of the cache")
        return data

    def decode(self, data: bytes, key: str, ring: Any = None, name: str = "") -> Any:
        return None if data.startswith(INSIDE) else self._inner.decode(data, key, ring, name)

    def json_schema(self) -> dict[str, Any]:
        return self._inner.json_schema()

    def describe(self) -> str:
        return self._inner.describe()


class MarksInside(EntriesWithMarks):
    """Codec for markers that replace entries. An entry reads as False."""

    def encode(self, value: Any, key: str, ring: Any = None, name: str = "") -> bytes:
        return INSIDE + self._inner.encode(value, key)

    def decode(self, data: bytes, key: str, ring: Any = None, name: str = "") -> Any:
        return data.startswith(INSIDE) and self._inner.decode(data.removeprefix(INSIDE), key)
