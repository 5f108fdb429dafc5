"""The state of a key: its content, its TTL, and the guards for a later change."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from keystead.errors import WrongKind
from keystead.schema.chunked_reading import SIZES, SMALL, UNKNOWN, entries_of, read, read_hash, whole
from keystead.schema.doctor.guarded_changes import StoreGuard
from keystead.schema.family import Bound
from keystead.schema.family_lookup import Member
from keystead.schema.kinds import Hash
from keystead.schema.pace import Pace
from keystead.stores import TABLE, Call, Command, Reply, Required, Store, field_holds, holds

GONE = -2
_PTTL, _MGET = TABLE["PTTL"], TABLE["MGET"]


@dataclass(slots=True)
class KeyState:
    """A key as it was read. `left_ms` is the reply of PTTL: -1 means no deadline."""

    bound: Bound[Any]
    key: str
    values: dict[str, Any]
    now_ms: int = 0  # the store's clock
    left_ms: int = GONE
    raw: bytes = b""  # of a string
    size: int = 0  # of all others
    fields: dict[bytes, bytes] = field(default_factory=dict)  # of a hash of a model
    entries: list[Any] | None = None  # of the other kinds, where they are few
    value: Any = UNKNOWN
    problem: str | None = None  # why it cannot be read
    wrong_kind: bool = False

    @property
    def store(self) -> Store:
        return self.bound.store

    @property
    def is_record(self) -> bool:
        """Whether it holds one value, which may determine relations and deadlines."""
        return self.bound.family.kind == "string" or is_model(self.bound)

    def unchanged_guards(self, names: Iterable[str] = ()) -> list[StoreGuard]:
        """Guards that hold while its value is unchanged; for a hash, while these fields are."""
        if self.bound.family.kind == "string":
            return [StoreGuard(self.store, holds(self.key, self.raw))]
        stored = [self.bound.family.field_name(name, self.key) for name in names]
        if not stored:
            return [self.there]
        return [StoreGuard(self.store, field_holds(self.key, name, self.fields.get(name))) for name in stored]

    @property
    def there(self) -> StoreGuard:
        return StoreGuard(self.store, Required(("EXISTS", self.key)))

    def read(self) -> None:
        """Decode what was read."""
        family = self.bound.family
        if family.kind == "string":
            self.value, self.problem = read(family.codecs["value"], self.raw, self.bound, self.key)
        elif is_model(self.bound):
            self.value, self.problem = read_hash(self.bound, self.key, self.fields)


def is_model(bound: Bound[Any]) -> bool:
    """Whether it is a hash of a model: one record, and not many entries."""
    return isinstance(bound.family, Hash) and bool(bound.family.fields)


async def look_at(members: Sequence[Member], store: Store, pace: Pace) -> list[KeyState]:
    """The keys that exist, with their values, and their entries if they are few. At most two round trips.

    One command reads all strings. It replies nil both for a key of another kind and for a missing one; the TTL
    distinguishes them.
    """
    strings = [member for member in members if member.bound.family.kind == "string"]
    others = [member for member in members if member.bound.family.kind != "string"]
    names = [member.key.encode() for member in (*strings, *others)]
    commands: list[Any] = [("TIME",), *[Call(_PTTL, (name,), None) for name in names]]
    if strings:
        commands.append(Call(_MGET, names[: len(strings)], None))
    sizes = [SIZES[member.bound.family.kind] for member in others]
    commands += [Call(TABLE[size], (name,), None) for size, name in zip(sizes, names[len(strings) :], strict=True)]
    time, *replies = await pace.run(store, commands, len(members))
    now_ms = ms_of(time)
    left = replies[: len(names)]
    values = replies[len(names)] if strings else []
    held = replies[-len(others) :] if others else []
    looks = []
    for member, left_ms, value in zip(strings, left, values, strict=False):
        if left_ms != GONE:
            looks.append(KeyState(*member, now_ms, left_ms, value or b"", wrong_kind=value is None))
    for member, left_ms, size in zip(others, left[len(strings) :], held, strict=True):
        if left_ms != GONE:
            looks.append(_look(KeyState(*member, now_ms, left_ms), size))
    await _read_small([look for look in looks if look.size and look.size <= SMALL], store, pace)
    return [look for look in looks if look.left_ms != GONE]


async def look_again(look: KeyState) -> KeyState | None:
    """The same key now, value and deadline read atomically; None: it is gone, or of another kind by now."""
    kind = look.bound.family.kind
    held: Command = whole(kind, look.key) if look.is_record else (SIZES[kind], look.key)
    reads: list[Command] = [("TIME",), ("PTTL", look.key), held]
    try:
        if look.store.guarantees.updates:
            time, left_ms, reply = (await look.store.atomically(reads)).replies
        else:  # a key is one record there, so one batch reads it at one moment
            time, left_ms, reply = await look.store.run(reads)
    except WrongKind:
        return None
    if left_ms == GONE or reply is None:
        return None
    fresh = replace(
        look, now_ms=ms_of(time), left_ms=left_ms, entries=None, value=UNKNOWN, problem=None, wrong_kind=False
    )
    if kind == "string":
        fresh.raw = reply
    elif look.is_record:
        fresh.fields, fresh.size = reply, len(reply)
    else:
        fresh.size = reply
    fresh.read()
    return fresh


def ms_of(time: Reply) -> int:
    """The reply of TIME in milliseconds."""
    return int(time[0]) * 1000 + int(time[1]) // 1000


def _look(look: KeyState, held: Reply) -> KeyState:
    if isinstance(held, WrongKind):
        look.wrong_kind = True
    else:
        look.size = held
    return look


async def _read_small(looks: list[KeyState], store: Store, pace: Pace) -> None:
    at_once = max(8, pace.size // 2)
    for start in range(0, len(looks), at_once):
        group = looks[start : start + at_once]
        replies = await pace.run(store, [whole(look.bound.family.kind, look.key) for look in group], len(group))
        for look, reply in zip(group, replies, strict=True):
            if isinstance(reply, WrongKind) or not reply:
                look.left_ms = GONE  # since it was counted: now it is a new key
                continue
            look.entries = entries_of(look.bound.family.kind, reply)
            look.size = len(look.entries)
            if is_model(look.bound):
                look.fields = reply
        await pace.turn()
