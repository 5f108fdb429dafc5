"""Contents that contradict their family: a key of another kind, unreadable values, old versions and old seals."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from keystead.errors import BadValue, Unreadable
from keystead.schema.chunked_reading import AT_ONCE, UNKNOWN, whole
from keystead.schema.codec import Codec
from keystead.schema.doctor import guarded_changes
from keystead.schema.doctor.guarded_changes import StoreGuard
from keystead.schema.doctor.key_state import KeyState, look_again
from keystead.schema.doctor.suspicion import Suspicion
from keystead.schema.quarantine import set_aside, set_entries_aside
from keystead.schema.seal import KeyRing
from keystead.stores import Command, Still, field_holds, holds

_SEALED: Final = re.compile(rb"sealed\.[A-Za-z0-9_-]{1,32}\.[A-Za-z0-9_-]{16}\.[A-Za-z0-9_-]{22,}")
_AT_ONCE: Final = 200  # entries quarantined in one step
_LARGEST: Final = 2 * AT_ONCE  # entries of a log that the doctor trims
_KINDS: Final = {"zset": "sorted set", "stream": "log"}


class KindSuspicion(Suspicion):
    """A key of another kind than its family."""

    code = "wrong-kind"
    removes = True
    sets_aside = True
    _kind = ""

    @property
    def sentence(self) -> str:
        return f"it is a {_KINDS.get(self._kind, self._kind)}, but the family is a {self.family.kind_name}"

    async def confirm(self) -> bool:
        [kind, self.look.left_ms] = await self.look.store.run([("TYPE", self.look.key), ("PTTL", self.look.key)])
        self._kind = kind.decode()
        return self._kind not in ("none", self.family.kind)

    async def fix(self) -> bool:
        look, content = self.look, None
        if self._kind == "string":
            [content] = await look.store.run([("MGET", look.key)])
            content = content[0]
        self.note = await set_aside(
            look.store, look.key.encode(), self._kind, self.code, look.now_ms, look.left_ms, content
        )
        return not self.note


class UnreadableValue(Suspicion):
    """A value, or the record in a hash, that does not fit its family."""

    code = "unreadable"
    removes = True

    @property
    def sets_aside(self) -> bool:  # type: ignore[override]
        return not self._left_alone

    @property
    def _left_alone(self) -> str:
        return reason_to_leave(self.look.problem or "", self.family.codecs.get("value"), self.look.raw)

    @property
    def sentence(self) -> str:
        return self.look.problem or "it cannot be read"

    async def confirm(self) -> bool:
        again = await look_again(self.look)
        if again is None or again.problem is None:
            return False
        self.look = again
        return True

    async def fix(self) -> bool:
        look = self.look
        self.note = self._left_alone or await set_aside(
            look.store, look.key.encode(), self.family.kind, self.code, look.now_ms, look.left_ms, look.raw
        )
        return not self.note


class UnreadableEntries(Suspicion):
    """Entries of a key that do not fit its family. The others are kept."""

    code = "unreadable"
    sets_aside = True

    @property
    def size(self) -> int:
        return len(self.entries)

    def __init__(self, look: KeyState, entries: list[Any], problem: str) -> None:
        super().__init__(look)
        self.entries = entries
        self._problem = problem

    @property
    def place(self) -> object:
        return id(self.look.store), self.look.key, repr(self.entries[0])

    @property
    def sentence(self) -> str:
        count = "one of its entries" if len(self.entries) == 1 else f"{len(self.entries)} of its entries"
        return f"{count} cannot be read: {self._problem}"

    async def confirm(self) -> bool:
        return True  # they were read by one command

    async def fix(self) -> bool:
        look = self.look
        for start in range(0, len(self.entries), _AT_ONCE):
            some = self.entries[start : start + _AT_ONCE]
            self.note = await set_entries_aside(look.store, look.key, self.family.kind, some, look.now_ms, look.left_ms)
            if self.note:
                return False
        return True


class ClosedEntries(UnreadableEntries):
    """Entries that another key ring may open. They are left alone."""

    sets_aside = False

    def __init__(self, look: KeyState, entries: list[Any], problem: str, why: str) -> None:
        super().__init__(look, entries, problem)
        self._why = why

    async def fix(self) -> bool:
        self.note = self._why
        return False


def reason_to_leave(problem: str, codec: Codec[Any] | None, data: bytes) -> str:
    """Why an unreadable value is not quarantined: a program with another schema or key ring may read it."""
    if "not on the key ring" in problem:
        return "it may be valid: add the key it is sealed with to the key ring"
    if codec is not None and codec.versions is not None:
        version = codec.version_of(data)
        if version is not None and version > codec.versions.current:
            return "it may be valid: run the doctor of the newer program"
    return ""


# --- too many entries --------------------------------------------------------------------------------------


class TooLong(Suspicion):
    """A list or a log with more entries than its family keeps."""

    code = "too-long"

    @property
    def sentence(self) -> str:
        return f"it has {self.look.size:,} entries, but the family keeps {self.family.keep:,}"

    async def confirm(self) -> bool:
        again = await look_again(self.look)
        if again is None or again.size <= self.family.keep:
            return False
        self.look = again
        return True

    async def fix(self) -> bool:
        look = self.look
        if self.family.kind == "list":
            self.note = "only the program knows which end has the oldest items; its next write drops them"
            return False
        if look.size > _LARGEST:
            self.note = "it is too long to read in one step; the next write of the program drops the oldest"
            return False
        everything = whole("stream", look.key)
        [entries] = await look.store.run([everything])
        trim: Command = ("XTRIM", look.key, "MAXLEN", "=", self.family.keep)
        # The next append drops the same ones. A concurrent append wins: the whole log is compared in this step.
        same = StoreGuard(look.store, Still(everything, entries))
        return len(entries) > self.family.keep and await guarded_changes.change(look.store, [same], [trim])


# --- old forms ---------------------------------------------------------------------------------------------


def find_old_form(look: KeyState) -> Suspicion | None:
    """A readable record that is stored in an old schema version or sealed with an old key."""
    if look.value is UNKNOWN:
        return None
    family = look.bound.family
    if family.kind == "hash":
        fields = [name for name in family.fields if _old_seals(family.fields[name], look, look.fields, name)]
        return OldFields(look, fields) if fields else None
    codec = family.codecs["value"]
    if codec.versions is not None:
        version = codec.version_of(look.raw)
        if version is not None and version != codec.versions.current:
            return OldValue(
                look, "old-version", f"it has version {version}, the current one is {codec.versions.current}"
            )
    ring = look.bound.ring
    old = _old_texts(codec, look.raw, ring)
    if ring is not None and old and _are_real_seals(old, _rewrite(look)):
        return OldValue(look, "old-seal", _sealed_with(old, ring))
    return None


class OldEntries(Suspicion):
    """Items of a list or a log that are sealed with an old key. They cannot be rewritten in place."""

    code = "old-seal"
    note = "items of a list or a log cannot be rewritten in place; keep the old key until they are gone"

    def __init__(self, look: KeyState, old: list[bytes], ring: KeyRing) -> None:
        super().__init__(look)
        self._sentence = _sealed_with(old, ring)

    @property
    def sentence(self) -> str:
        return self._sentence

    async def confirm(self) -> bool:
        return True

    async def fix(self) -> bool:
        return False


def old_entries(look: KeyState, entries: Iterable[Any]) -> OldEntries | None:
    """The items that are sealed with an old key."""
    family, ring = look.bound.family, look.bound.ring
    codec = family.codecs.get("item")
    if codec is None or ring is None or not codec.sealed:
        return None
    items = (entry[1][1] if family.kind == "stream" else entry for entry in entries)
    old = [text for item in items for text in _old_texts(codec, item, ring)]
    return OldEntries(look, old, ring) if old else None


class OldValue(Suspicion):
    def __init__(self, look: KeyState, code: str, sentence: str) -> None:
        super().__init__(look)
        self.code = code
        self._sentence = sentence

    @property
    def sentence(self) -> str:
        return self._sentence

    async def confirm(self) -> bool:
        return True  # it was read by one command

    async def fix(self) -> bool:
        look = self.look
        fresh = _rewrite(look)
        if fresh is None:
            self.note = "its value cannot be written in the new form"
            return False
        command: Command = ("SET", look.key, fresh, "KEEPTTL")
        return await guarded_changes.change(look.store, [StoreGuard(look.store, holds(look.key, look.raw))], [command])


class OldFields(Suspicion):
    """A hash with fields that are sealed with an old key."""

    code = "old-seal"

    def __init__(self, look: KeyState, fields: list[str]) -> None:
        super().__init__(look)
        self._fields = fields

    @property
    def sentence(self) -> str:
        ring = self.look.bound.ring
        old = [text for name in self._fields for text in _SEALED.findall(self.look.fields[name.encode()])]
        return _sealed_with(old, ring) if ring else ""

    async def confirm(self) -> bool:
        return True

    async def fix(self) -> bool:
        look, family, ring = self.look, self.family, self.look.bound.ring
        guards, changes = [], []
        for name in self._fields:
            data, codec = look.fields[name.encode()], family.codecs[name]
            guards.append(StoreGuard(look.store, field_holds(look.key, name, data)))
            changes += [name, codec.encode(codec.decode(data, look.key, ring, name), look.key, ring, name)]
        return await guarded_changes.change(look.store, guards, [("HSET", look.key, *changes)])


def _old_seals(codec: Codec[Any], look: KeyState, fields: dict[bytes, bytes], name: str) -> list[bytes]:
    data = fields.get(name.encode())
    return [] if data is None else _old_texts(codec, data, look.bound.ring)


def _old_texts(codec: Codec[Any], data: bytes, ring: KeyRing | None) -> list[bytes]:
    """The texts in it that are sealed with an old key, and plain texts that look sealed."""
    if ring is None or not codec.sealed or b"sealed." not in data:
        return []
    current = b"sealed." + ring.current.encode() + b"."
    return [text for text in _SEALED.findall(data) if not text.startswith(current)]


def _rewrite(look: KeyState) -> bytes | None:
    """The value in its current form; None: it can be read but not written."""
    codec: Codec[Any] = look.bound.family.codecs["value"]
    try:
        return codec.encode(look.value, look.key, look.bound.ring)
    except (BadValue, Unreadable):
        return None


def _are_real_seals(old: list[bytes], fresh: bytes | None) -> bool:
    """Whether they are real seals: a plain text that only looks like one would be rewritten unchanged."""
    return fresh is None or any(text not in fresh for text in old)


def _sealed_with(old: list[bytes], ring: KeyRing) -> str:
    ids = sorted({text.split(b".")[1].decode() for text in old})
    return f"it is sealed with the key {', '.join(ids)}, the current one is {ring.current}"
