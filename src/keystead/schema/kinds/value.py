"""Value: one value under one key."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar, Unpack, overload

from keystead.errors import BadCall, Unreadable
from keystead.schema import deletion, listing
from keystead.schema.codec import Codec, Versions, codec_for
from keystead.schema.contention import attempts
from keystead.schema.family import Family, Options
from keystead.schema.key import Key, Moment, nothing, truth
from keystead.schema.operation import Compound, NearOperation, Operation
from keystead.schema.seal import KeyRing
from keystead.stores import TABLE, Call, Command, Reply, Required, holds

T = TypeVar("T")
R = TypeVar("R")

_GET = TABLE["GET"]
_SAME_LIFETIME = (("KEEPTTL",), ())  # options of a SET that keeps the deadline


@dataclass(slots=True, unsafe_hash=True)  # not frozen, which is slower to create
class Seen(Generic[T]):
    """A value and the bytes it was read from: sealed and versioned values have several stored forms."""

    value: T
    stored: bytes


def seen_or_none(codec: Codec[T], raw: bytes, key: str, ring: KeyRing | None) -> Seen[T | None]:
    """Decode these bytes; the value is None if they are unreadable."""
    try:
        return Seen(codec.decode(raw, key, ring), raw)
    except Unreadable:
        return Seen(None, raw)


def stored_bytes(key: ValueKey[Any]) -> Operation[bytes | None]:
    """Reads the stored form, without decoding it: to compare it with a `Seen`."""
    return Operation(key.bound, "see", [Call(_GET, [key.key.encode()], None)], _first_reply)


def _first_reply(replies: list[Reply]) -> Any:
    return replies[0]


class ValueKey(Key, Generic[T]):
    """One key that holds one value of type T."""

    __slots__ = ()

    def get(self) -> Operation[T | None]:
        """The value; None: there is no such key. Raises Unreadable if it does not fit the family.

        A family that declares `near` may answer from a copy in this process.
        """
        bound = self.bound
        kind = NearOperation if bound.family.near_ms else Operation
        return kind(bound, "get", [Call(_GET, [self.key.encode()], None)], self._read)

    def see(self) -> Operation[Seen[T] | None]:
        """The value for a later `holds`; None: there is no such key. Raises Unreadable as `get` does."""
        return Operation(self.bound, "see", [Call(_GET, [self.key.encode()], None)], self._read_seen)

    def holds(self, seen: Seen[T] | T | None) -> Operation[bool]:
        """Whether the key still holds exactly what was seen, or this value; None: whether it still does not exist.

        For `atomically`: if it does not, nothing in the batch takes effect. So one read can guard any number of
        later steps (optimistic locking). Sealed or versioned values need the `Seen` of a read.
        """
        stored = seen.stored if isinstance(seen, Seen) else None if seen is None else self._stored_form(seen)
        return Compound(self.bound, "holds", [holds(self.key, stored)], truth, atomic=True, stopped=False)

    def set(self, value: T, **until: Moment) -> Operation[None]:
        """Write the value, whether there was one or not, and start a new lifetime. One round trip, atomic.

        It recreates a record that was deleted meanwhile: to change an existing record, use `replace`.
        """
        return self._write("set", value, until, "", nothing)

    def add(self, value: T, **until: Moment) -> Operation[bool]:
        """Write the value only if there is no such key. Of several callers one gets True. One round trip, atomic."""
        return self._write("add", value, until, "NX", _was_written)

    def replace(self, value: T, **until: Moment) -> Operation[bool]:
        """Write the value only if the key exists; a deleted or expired record is not resurrected (False).

        It keeps its deadline, unless its lifetime is sliding or comes with the value. Atomic.
        """
        return self._write("replace", value, until, "XX", _was_written)

    def compare_and_set(self, expected: T, value: T, **until: Moment) -> Operation[bool]:
        """Write the value only if the key holds exactly `expected`. Of several callers one gets True. Atomic.

        It compares stored bytes, so it does not work for sealed or versioned values, which have several stored forms:
        use `change` for those.
        """
        stored = self._stored_form(expected)
        at_ms, now_ms = self._at_ms(value, until), self.bound.now_ms()
        options = self.bound.family.lifetime.on_update(now_ms, at_ms)
        data = self._codec.encode(value, self.key, self.bound.ring)
        steps: list[Any] = [holds(self.key, stored), ("SET", self.key, data, *options)]
        return self._write_guarded("compare_and_set", steps, value, now_ms, at_ms)

    async def change(self, function: Callable[[T], T], **until: Moment) -> T | None:
        """Read, change and write back, with optimistic locking. None: there is no such key.

        `function` gets the value and returns the new one; it may be called several times. At least two round trips.
        """
        if not callable(function):
            raise BadCall(f"{self.key}: change takes a function of the old value, not {type(function).__name__}")
        async for _ in attempts(self.key):
            seen = await self.see()
            if seen is None:
                return None
            value = function(seen.value)
            if await self.replace_seen(seen, value, **until):
                return value
        raise AssertionError  # pragma: no cover - the last attempt raises Contended

    def consume(self) -> Operation[T | None]:
        """Read and delete in one atomic step: of several callers one gets the value, the others None.

        Its cascade follows in a second round trip, unless it follows from the key alone.
        """
        return deletion.consume(self.bound, self.key, self._read)

    def use(self) -> Operation[T | None]:
        """The value; touches it if the last touch was `touch_every` ago. For sliding families.

        One round trip; a second one only if a touch is due, so most reads write nothing. Nothing is recreated.
        """
        lifetime = self._sliding("use")

        def follow(replies: list[Reply]) -> Any:
            left_ms = replies[1]
            if left_ms >= 0 and lifetime.is_due(left_ms):
                return self.touch()
            return None

        return Compound(self.bound, "use", [("GET", self.key), ("PTTL", self.key)], self._read, follow=follow)

    def replace_seen(self, seen: Seen[T], value: T, **until: Moment) -> Operation[bool]:
        """Write the value only if the key still holds exactly what was seen: `compare_and_set` for any kind of value.

        It keeps its deadline, unless its lifetime is sliding or comes with the value. Atomic.
        """
        at_ms, now_ms = self._at_ms(value, until), self.bound.now_ms()
        options = self.bound.family.lifetime.on_update(now_ms, at_ms)
        data = self._codec.encode(value, self.key, self.bound.ring)
        steps: list[Any] = [holds(self.key, seen.stored), ("SET", self.key, data, *options)]
        return self._write_guarded("replace_seen", steps, value, now_ms, at_ms)

    async def delete_seen(self, seen: Seen[T]) -> bool:
        """Delete it with its cascade, only if it still holds exactly what was seen.

        Of several callers one gets True. As many round trips as `delete`.
        """
        guard = self.bound.store, holds(self.key, seen.stored)
        return await deletion.delete_if(self.bound, self.key, "requested", [guard])

    def as_seen(self, value: T) -> Seen[T]:
        """The `Seen` that `see` returns after this value is written, for a later `holds`. Nothing is sent.

        Raises BadCall for a sealed value: its stored form differs each time, so it must be seen.
        """
        if self._codec.sealed:
            raise BadCall(f"{self.bound.family.place} holds sealed values; use see() instead")
        return Seen(value, self._codec.encode(value, self.key))

    @property
    def _codec(self) -> Codec[T]:
        codec: Codec[T] = self.bound.family.codec
        return codec

    def _stored_form(self, value: T) -> bytes:
        """The stored form of this value. Raises BadCall if it has several."""
        codec = self._codec
        if codec.sealed or codec.versions is not None:
            raise BadCall(f"{self.bound.family.place} holds sealed or versioned values; use change(...) instead")
        return codec.encode(value, self.key)

    def _read(self, replies: list[Reply]) -> T | None:
        raw = replies[0]
        if raw is None:
            return None
        bound = self.bound
        value: T = bound.family.codec.decode(raw, self.key, bound.ring)
        return value

    def _read_seen(self, replies: list[Reply]) -> Seen[T] | None:
        try:
            value = self._read(replies)
        except Unreadable as error:
            error.raw = bytes(replies[0])  # so that it can also be a guard
            raise
        return None if value is None else Seen(value, bytes(replies[0]))

    def _write(
        self, verb: str, value: T, until: dict[str, Moment], only: str, finish: Callable[[list[Reply]], R]
    ) -> Operation[R]:
        bound = self.bound
        family, key = bound.family, self.key
        data = family.codec.encode(value, key, bound.ring)
        lifetime = family.lifetime
        at_ms = self._at_ms(value, until) if until or family.has_moment else None
        now_ms = bound.now_ms()
        options = lifetime.on_update(now_ms, at_ms) if only == "XX" else lifetime.on_create(now_ms, at_ms)
        command = ("SET", key, data, *options, only) if only else ("SET", key, data, *options)
        if family.listed_in:
            kept = only == "XX" and options in _SAME_LIFETIME
            steps = [Required(command) if only else command]
            return self._write_listed(verb, steps, value, now_ms, at_ms, finish, kept=kept, new=only != "XX")
        return Operation(bound, verb, [command], finish)

    def _write_guarded(self, verb: str, steps: list[Any], value: T, now_ms: int, at_ms: int | None) -> Operation[bool]:
        if self.bound.family.listed_in:
            kept = steps[-1][3:] in _SAME_LIFETIME
            return self._write_listed(verb, steps, value, now_ms, at_ms, _true, kept=kept, new=False)
        return Compound(self.bound, verb, steps, _true, atomic=True, stopped=False)

    def _write_listed(
        self,
        verb: str,
        record: list[Any],
        value: T,
        now_ms: int,
        at_ms: int | None,
        finish: Any,
        *,
        kept: bool,
        new: bool,
    ) -> Operation[Any]:
        values = self.values
        dies_ms = self.bound.family.lifetime.deadline_ms(now_ms, at_ms)
        writes: list[tuple[listing.ListedEntry, list[Command]]] = [
            (entry, listing.put(entry, values, value, now_ms, dies_ms, kept=kept, new=new))
            for entry in listing.entries(self.bound, values, value)
        ]
        return listing.ListedWrite(self.bound, verb, self.key, record, writes, finish)


class Value(Family[ValueKey[T]], Generic[T]):
    """A family of single values: `Value("sess:{sid}", Session, lifetime=after("30d"))`."""

    kind: ClassVar[str] = "string"
    kind_name: ClassVar[str] = "Value"
    verbs: ClassVar[type[Any]] = ValueKey
    listable: ClassVar[bool] = True

    @overload
    def __init__(
        self, pattern: str, type_: type[T], *, versions: Versions | None = None, **options: Unpack[Options]
    ) -> None: ...
    @overload  # Literal, Annotated and unions are not classes: name the type, as in `mode: Value[Mode] = Value(...)`
    def __init__(
        self: Value[Any], pattern: str, type_: object, *, versions: Versions | None = None, **options: Unpack[Options]
    ) -> None: ...
    def __init__(
        self, pattern: str, type_: Any, *, versions: Versions | None = None, **options: Unpack[Options]
    ) -> None:
        super().__init__(pattern, **options)
        self.codec: Codec[T] = codec_for(type_, versions=versions, where=pattern)

    @property
    def codecs(self) -> Mapping[str, Codec[Any]]:
        return {"value": self.codec}

    @property
    def field_names(self) -> frozenset[str]:
        return self.codec.field_names

    def stored_name(self, field: str) -> str:
        return self.codec.stored_names.get(field, field)

    def read_command(self, key: str) -> Command:
        return ("GET", key)

    def value_of(self, raw: bytes | None, key: str, ring: KeyRing | None) -> T | None:
        return None if raw is None else self.codec.decode(raw, key, ring)


def _was_written(replies: list[Reply]) -> bool:
    return replies[0] is not None


def _true(replies: list[Reply]) -> bool:
    return True
