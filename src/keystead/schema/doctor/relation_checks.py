"""Broken relations: owners, records, entries and targets that are gone.

A key in quarantine counts as existing: nothing that belongs to it is deleted while it can still be restored.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from keystead.errors import BadKey, BadValue, WrongKind, printable
from keystead.schema import listing
from keystead.schema.chunked_reading import UNKNOWN
from keystead.schema.doctor import guarded_changes
from keystead.schema.doctor.deadlines import CLOCKS_MS
from keystead.schema.doctor.guarded_changes import StoreGuard
from keystead.schema.doctor.key_state import KeyState
from keystead.schema.doctor.suspicion import Suspicion
from keystead.schema.pace import Pace
from keystead.schema.quarantine import quarantine_name
from keystead.schema.relation import Relation
from keystead.stores import TABLE, Call, Command, Required, Store, absent

_EXISTS: Final = TABLE["EXISTS"]


class StoredAt(NamedTuple):
    """A key in a store."""

    store: Store
    key: str

    @property
    def is_gone(self) -> list[StoreGuard]:
        """Guards that hold if it neither exists nor is in quarantine."""
        return [StoreGuard(self.store, absent(self.key)), StoreGuard(self.store, absent(quarantine_name(self.key)))]


# --- owners ------------------------------------------------------------------------------------------------


class Orphan(Suspicion):
    code = "orphan"
    removes = True
    deletes = True

    def __init__(self, look: KeyState, owners: list[StoredAt]) -> None:
        super().__init__(look)
        self._owners = owners
        self._guards = [guard for owner in owners for guard in owner.is_gone]

    @property
    def sentence(self) -> str:
        return f"it is owned by {' or '.join(printable(owner.key) for owner in self._owners)}, which is gone"

    async def confirm(self) -> bool:
        return await guarded_changes.holds_now(self.look.store, [*self._guards, self.look.there]) is not None

    async def fix(self) -> bool:
        # A concurrent creation of the owner wins: its absence is a guard of the step that deletes.
        return await guarded_changes.delete(self.look.bound, self.look.key, self._guards)


# --- mappings ----------------------------------------------------------------------------------------------


def target(look: KeyState, relation: Relation) -> StoredAt | None:
    """The key that the value leads to; None: it leads to none, or to an impossible one."""
    value = None if look.value is UNKNOWN else look.value
    where = relation.target_values(look.values, value)
    if where is None:
        return None
    led_to = look.bound.related(relation.target)
    try:
        return StoredAt(led_to.store, led_to(**where).key)
    except BadKey:
        return None


class LeadsNowhere(Suspicion):
    code = "leads-nowhere"
    removes = True
    deletes = True

    def __init__(self, look: KeyState, relation: Relation, target: StoredAt) -> None:
        super().__init__(look)
        self._target = target
        self._guards = [*target.is_gone, *look.unchanged_guards(fields_of(relation))]

    @property
    def sentence(self) -> str:
        return f"it leads to {printable(self._target.key)}, which is gone"

    async def confirm(self) -> bool:
        return await guarded_changes.holds_now(self.look.store, self._guards) is not None

    async def fix(self) -> bool:
        return await guarded_changes.delete(self.look.bound, self.look.key, self._guards)


# --- indexes -----------------------------------------------------------------------------------------------


def existence_command(entry: listing.ListedEntry) -> Command:
    """The command that tells whether the entry exists: nil or 0 if not."""
    return ("SISMEMBER" if entry.index.family.kind == "set" else "ZSCORE", entry.key, entry.member)


def score_of(look: KeyState, entry: listing.ListedEntry) -> float | None:
    """The score that an entry should have; None: the record does not determine it."""
    value = None if look.value is UNKNOWN else look.value
    try:
        put = listing.put(entry, look.values, value, look.now_ms, look.now_ms)[0]
    except (BadValue, AttributeError):
        return None
    return float(put[-2])


class WrongScore(Suspicion):
    """An index entry whose score differs from its record."""

    code = "wrong-score"

    def __init__(self, look: KeyState, entry: listing.ListedEntry, score: float) -> None:
        super().__init__(look)
        self._entry = entry
        self._score = score
        self._guards = [*look.unchanged_guards(_score_fields(entry.relation)), look.there]

    @property
    def place(self) -> object:
        return id(self.look.store), self.look.key, self._entry.key

    @property
    def sentence(self) -> str:
        wanted = score_of(self.look, self._entry)
        return f"its score in {printable(self._entry.key)} is {self._score:.17g}, but the record has {wanted:.17g}"

    async def confirm(self) -> bool:
        replies = await guarded_changes.holds_now(self.look.store, self._guards, existence_command(self._entry))
        if not replies or replies[0] is None or replies[0] == score_of(self.look, self._entry):
            return False
        self._score = replies[0]
        return True

    async def fix(self) -> bool:
        entry = self._entry
        # A concurrent write of the record also writes its entry: the record must still be the same.
        put: Command = ("ZADD", entry.key, "XX", score_of(self.look, entry) or 0, entry.member)
        return await guarded_changes.change(self.look.store, self._guards, [put])


class NotListed(Suspicion):
    code = "not-listed"

    def __init__(self, look: KeyState, entry: listing.ListedEntry) -> None:
        super().__init__(look)
        self._entry = entry
        self.removes = self.deletes = entry.relation.admits
        self._guards = look.unchanged_guards(fields_of(entry.relation)) if entry.relation.needs_value else [look.there]

    @property
    def place(self) -> object:
        return id(self.look.store), self.look.key, self._entry.key

    @property
    def sentence(self) -> str:
        ended = ", so it has ended" if self._entry.relation.admits else ""
        return f"{printable(self._entry.key)} does not name it{ended}"

    async def confirm(self) -> bool:
        replies = await guarded_changes.holds_now(self.look.store, self._guards, existence_command(self._entry))
        return replies is not None and (replies[0] is None or (type(replies[0]) is int and replies[0] == 0))

    async def fix(self) -> bool:
        look, entry = self.look, self._entry
        if entry.relation.admits:
            # Listing it would resurrect a record that was ended; nothing lists it any more, so it stays dead.
            return await guarded_changes.delete(look.bound, look.key, self._guards)
        value = None if look.value is UNKNOWN else look.value
        dies_ms = look.now_ms + look.left_ms if look.left_ms >= 0 else None
        try:
            put, *renewal, _count = listing.put(entry, look.values, value, look.now_ms, dies_ms)
        except (BadValue, AttributeError) as error:
            self.note = str(error)
            return False
        if put[0] == "ZADD":
            put = ("ZADD", entry.key, "NX", *put[2:])
        # A concurrent delete of the record removes its entry: the record must exist in this very step.
        return await guarded_changes.change(look.store, self._guards, [put, *renewal])


class DeadEntry(Suspicion):
    code = "dead-entry"

    def __init__(self, look: KeyState, data: bytes, names: list[str]) -> None:
        super().__init__(look)
        self._data = data
        self._names = names

    @property
    def place(self) -> object:
        return id(self.look.store), self.look.key, self._data

    @property
    def sentence(self) -> str:
        member = printable(self._data)
        if not self._names:
            return f"its entry {member} cannot be the name of a key"
        return f"its entry {member} names {' or '.join(map(printable, self._names))}, which is gone"

    async def confirm(self) -> bool:
        command = "SISMEMBER" if self.family.kind == "set" else "ZSCORE"
        listed = StoreGuard(self.look.store, Required((command, self.look.key, self._data)))
        gone = [guard for name in self._names for guard in StoredAt(self.look.store, name).is_gone]
        return await guarded_changes.holds_now(self.look.store, [*gone, listed]) is not None

    async def fix(self) -> bool:
        return await listing.remove_dead(self.look.bound, self.look.key, self._data, self._names)


class NamedEntry(NamedTuple):
    """An index entry, as bytes, and the keys that it names."""

    data: bytes
    names: list[str]


def keys_named_by(look: KeyState, data: bytes, member: Any) -> NamedEntry | None:
    """The keys that an entry names; None if that cannot be determined."""
    try:
        names = listing.sources(look.bound, look.values, member)
    except BadKey:
        return NamedEntry(data, [])  # no record can have this name
    return NamedEntry(data, names) if names else None


def has_expired(look: KeyState, score: float) -> bool:
    """Whether the score of an entry is the deadline of its record, and has passed: the next reader prunes it.

    The record expired as declared, so this is not a finding.
    """
    return score <= look.now_ms + CLOCKS_MS and all(
        relation.score is None and relation.source.lifetime.ends for relation in look.bound.family.lists
    )


def _score_fields(relation: Relation) -> list[str]:
    return [relation.score.name] if relation.score is not None and relation.score.kind == "field" else []


def fields_of(relation: Relation) -> list[str]:
    """The fields of the source's value that a relation depends on."""
    return [origin.name for origin in relation.origins.values() if origin is not None and origin.kind == "field"]


async def all_exist(pace: Pace, store: Store, names: list[bytes]) -> bool:
    """Whether all of these keys exist: one command, and usually true in a healthy store."""
    [count] = await pace.run(store, [Call(_EXISTS, names, None)], len(names))  # type: ignore[list-item]
    return bool(count == len(names))


def is_missing(reply: Any) -> bool:
    """Whether a reply of `existence_command` or EXISTS means that nothing is there."""
    return not isinstance(reply, WrongKind) and (reply is None or (type(reply) is int and reply == 0))
