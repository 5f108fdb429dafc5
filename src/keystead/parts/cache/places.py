"""Places: where the entry of a cache, its mark and its stale copy are, and the atomic steps on them.

Every write of a loader is guarded by its own mark. Whatever drops an entry drops the mark in the same step, so a load
that began before can write nothing after it: its mark is gone, or is another one's.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from keystead.errors import BadValue, Unreadable
from keystead.parts.cache.marks import Mark
from keystead.schema import Bound, Operation
from keystead.schema.key import Key
from keystead.schema.lifetime import Sliding
from keystead.schema.operation import Compound
from keystead.schema.unreadable import log_unreadable
from keystead.stores import Command, Reply, Step, Store, absent, holds, required

# In front of a mark that stands in the place of an entry. No JSON begins so, and no other value is let in that does.
INSIDE = b"\x00keystead mark\x00"


@dataclass(frozen=True, slots=True)
class Looked:
    """What one atomic look found.

    taken   our mark stands: it is for us to load
    entry   what the entry holds; None: there is none, or it does not count
    mark    the mark of another
    stale   what the stale copy holds
    seen    what must still be there for us to take its place
    """

    taken: bool
    entry: Any = None
    mark: bytes | None = None
    stale: Any = None
    seen: bytes | None = None


class Place(ABC):
    """One entry of a cache, and what stands beside it. `entry` is its key, of whichever kind."""

    def __init__(self, entry: Any, marks: Bound[Any], stale: Bound[Any] | None) -> None:
        self.entry = entry
        self.store: Store = entry.bound.store
        self._marks = marks
        self._ours = b""

    def stored(self, mark: Mark) -> bytes:
        """A mark as it is stored."""
        data: bytes = self._marks.family.codec.encode(mark, "")
        return data

    def read(self, mark: bytes) -> Mark | None:
        """A mark; None: it cannot be read."""
        try:
            found: Mark = self._marks.family.codec.decode(mark, self._mark_key(), None)
        except Unreadable as error:
            log_unreadable(self.store, error)
            return None
        return found

    def _mark_key(self) -> str:
        """The key that a mark stands under."""
        key: str = self.entry.key
        return key

    def _renew(self) -> bytes:
        """Our mark for the next look: one whose answer was lost, or that was taken down, is ours no more."""
        self._ours = self.stored(Mark(state="loading", id=secrets.token_hex(16)))
        return self._ours

    @property
    def _loading_ms(self) -> int:
        ms: int = self._marks.family.marked.loading_ms
        return ms

    @abstractmethod
    async def look(self, *, over: bool, instead_of: bytes | None) -> Looked:
        """Read everything, and put up our mark where there is no entry and no mark: one atomic step.

        over         whether an entry that is there does not count
        instead_of   take the place of exactly this, which was seen before
        """

    @abstractmethod
    def filled(self, value: Any, age_ms: int) -> list[Step]:
        """What writes a value that was loaded, if our mark stands. Raises BadValue where it is none of the family.

        age_ms   how long ago the provider was asked: so much less it lives, so that no entry is older than its lifetime
        """

    @abstractmethod
    def nothing(self, lifetime_ms: int | None) -> list[Step]:
        """What remembers for so long that there is nothing, if our mark stands; None: forgets that we asked."""

    async def written(self, steps: list[Step]) -> bool:
        """Take these steps; False: our mark stands no more, and nothing was written."""
        return bool(await self.store.atomically(steps))

    @abstractmethod
    async def failed(self, why: str, retry_ms: int) -> Looked:
        """Remember that it failed, if our mark still stands (`taken`), and read the stale copy in any case."""

    @abstractmethod
    async def give_back(self) -> None:
        """Take our mark down, if it still stands: somebody else may load."""

    def entry_value(self, raw: Any) -> Any:
        """The value of an entry; None: there is none. Raises Unreadable."""
        bound = self.entry.bound
        return bound.family.value_of(raw, self.entry.key, bound.ring)

    def stale_value(self, raw: Any) -> Any:
        """The value of the stale copy; None: there is none. Raises Unreadable."""
        return None

    @abstractmethod
    def put(self, value: Any) -> Operation[None]:
        """Write a value, whatever was there. Loads that began before write nothing any more."""

    def changed(self, fields: Mapping[str, Any]) -> list[Step]:
        """What changes some fields of an entry that is there. Loads that began before write nothing any more."""
        raise AssertionError("a store whose atomic step is about one key keeps no hashes")  # pragma: no cover

    @abstractmethod
    def drop(self) -> Operation[bool]:
        """Delete everything. Loads that began before write nothing any more. Whether there was an entry."""


class Beside(Place):
    """The mark and the stale copy have keys of their own, and atomic steps span all of them."""

    def __init__(self, entry: Any, marks: Bound[Any], stale: Bound[Any] | None) -> None:
        super().__init__(entry, marks, stale)
        values = entry.values
        self._mark: str = marks(**values).key
        self._stale: Any = None if stale is None else stale(**values)

    def _mark_key(self) -> str:
        return self._mark

    async def look(self, *, over: bool, instead_of: bytes | None) -> Looked:
        entry, mark = self.entry.key, self._mark
        # An entry that does not count may be of another kind, so it is not read.
        reads: list[Step] = [("EXISTS", entry) if over else _read(self.entry), ("GET", mark)]
        if self._stale is not None:
            reads.append(_read(self._stale))
        steps = [*reads, *(() if over else (absent(entry),))]
        put: Command = ("SET", mark, self._renew(), "PX", self._loading_ms)
        steps += [required((*put, "NX"))] if instead_of is None else [holds(mark, instead_of), put]
        outcome = await self.store.atomically(steps)
        if outcome:
            return Looked(taken=True)
        found, seen = outcome.replies[0], outcome.replies[1]
        stale = None if self._stale is None else outcome.replies[2]
        return Looked(False, None if over else found, seen, stale, seen)

    def filled(self, value: Any, age_ms: int) -> list[Step]:
        keys = [key for key in (self.entry, self._stale) if key is not None]
        return [holds(self._mark, self._ours), *self._written(value), *_aged(keys, age_ms)]

    def nothing(self, lifetime_ms: int | None) -> list[Step]:
        steps: list[Step] = [holds(self._mark, self._ours), *self._dropped()]
        if lifetime_ms is not None:
            steps.append(("SET", self._mark, self.stored(Mark(state="nothing")), "PX", lifetime_ms))
        return steps

    async def failed(self, why: str, retry_ms: int) -> Looked:
        failure = self.stored(Mark(state="failed", why=why, retry_ms=retry_ms))
        stale: list[Step] = [] if self._stale is None else [_read(self._stale)]
        steps = [*stale, holds(self._mark, self._ours), ("SET", self._mark, failure, "PX", retry_ms)]
        outcome = await self.store.atomically(steps)
        return Looked(bool(outcome), stale=outcome.replies[0] if stale else None)

    async def give_back(self) -> None:
        await self.store.atomically([holds(self._mark, self._ours), ("DEL", self._mark)])

    def put(self, value: Any) -> Operation[None]:
        return Compound(self.entry.bound, "put", self._written(value), _none, atomic=True)

    def changed(self, fields: Mapping[str, Any]) -> list[Step]:
        stale = [] if self._stale is None else self._stale.delete().in_batch()
        return [*self.entry.update(fields).in_batch(), *stale, ("DEL", self._mark)]

    def drop(self) -> Operation[bool]:
        return Compound(self.entry.bound, "drop", self._dropped(), _first, atomic=True)

    def stale_value(self, raw: Any) -> Any:
        """The value of the stale copy; None: there is none. Raises Unreadable."""
        key = self._stale
        return None if key is None else key.bound.family.value_of(raw, key.key, key.bound.ring)

    def _written(self, value: Any) -> list[Any]:
        steps = self.entry.set(value).in_batch()
        if self._stale is not None:
            steps = [*steps, *self._stale.set(value).in_batch()]
        return [*steps, ("DEL", self._mark)]

    def _dropped(self) -> list[Any]:
        stale = [] if self._stale is None else self._stale.delete().in_batch()
        return [*self.entry.delete().in_batch(), *stale, ("DEL", self._mark)]


class Inside(Place):
    """The mark stands in the place of the entry, where an atomic step is about one key (Memcached).

    So the one key says all, and dropping it drops the mark. There is no stale copy: that would be a second key.
    """

    async def look(self, *, over: bool, instead_of: bytes | None) -> Looked:
        key = self.entry.key
        put: Command = ("SET", key, INSIDE + self._renew(), "PX", self._loading_ms)
        steps: list[Step] = [("GET", key)]
        steps += [required((*put, "NX"))] if instead_of is None else [holds(key, instead_of), put]
        outcome = await self.store.atomically(steps)
        if outcome:
            return Looked(taken=True)
        raw = outcome.replies[0]
        if is_mark(raw):
            return Looked(False, mark=raw.removeprefix(INSIDE), seen=raw)
        return Looked(False, entry=raw, seen=raw)

    def filled(self, value: Any, age_ms: int) -> list[Step]:
        return [self._guard, *self._written(value), *_aged([self.entry], age_ms)]

    def nothing(self, lifetime_ms: int | None) -> list[Step]:
        mark, key = INSIDE + self.stored(Mark(state="nothing")), self.entry.key
        return [self._guard, ("DEL", key) if lifetime_ms is None else ("SET", key, mark, "PX", lifetime_ms)]

    async def failed(self, why: str, retry_ms: int) -> Looked:
        mark = INSIDE + self.stored(Mark(state="failed", why=why, retry_ms=retry_ms))
        return Looked(await self.written([self._guard, ("SET", self.entry.key, mark, "PX", retry_ms)]))

    async def give_back(self) -> None:
        await self.store.atomically([self._guard, ("DEL", self.entry.key)])

    def put(self, value: Any) -> Operation[None]:
        return Compound(self.entry.bound, "put", self._written(value), _none, atomic=True)

    def drop(self) -> Operation[bool]:
        # Whether there was an entry or only a mark, a delete cannot say: so it is looked at in the same step.
        steps = [("GET", self.entry.key), ("DEL", self.entry.key)]
        return Compound(self.entry.bound, "drop", steps, _was_entry, atomic=True)

    @property
    def _guard(self) -> Step:
        return holds(self.entry.key, INSIDE + self._ours)

    def _written(self, value: Any) -> list[Any]:
        steps: list[Any] = self.entry.set(value).in_batch()
        if is_mark(steps[0][2]):
            raise BadValue(f"{self.entry.bound.family.place}: this value looks like a mark of the cache")
        return steps


def is_mark(raw: Any) -> bool:
    """Whether what stands in the place of an entry is a mark."""
    return type(raw) is bytes and raw.startswith(INSIDE)


def _read(key: Key) -> Command:
    command: Command = key.bound.family.read_command(key.key)
    return command


def _aged(keys: list[Any], age_ms: int) -> list[Command]:
    """What lets keys that were written now end as if they had been written so long ago.

    One that lives on by use begins with its first use, which is now.
    """
    lifetimes = [(key.key, key.bound.family.lifetime) for key in keys if age_ms > 0]
    return [
        ("PEXPIRE", key, max(1, lifetime.longest_ms - age_ms), "LT")
        for key, lifetime in lifetimes
        if not isinstance(lifetime, Sliding)
    ]


def _none(replies: list[Reply]) -> None:
    return None


def _first(replies: list[Reply]) -> bool:
    return bool(replies[0])


def _was_entry(replies: list[Reply]) -> bool:
    return replies[0] is not None and not is_mark(replies[0])
