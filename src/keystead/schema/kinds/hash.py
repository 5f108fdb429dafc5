"""Hash: fields under one key that are changed separately. For records with concurrent writers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar, Unpack, cast, get_args, get_origin, overload

from pydantic import BaseModel, ValidationError

from keystead.errors import BadCall, BadDeclaration, BadValue, Unreadable
from keystead.schema import listing
from keystead.schema.codec import Codec, codec_for, without_none
from keystead.schema.codec.hiding import hide_sealed_fields
from keystead.schema.family import Family, Options
from keystead.schema.key import Moment, nothing, number, truth
from keystead.schema.kinds.growing import GrownKey
from keystead.schema.lifetime import Sliding
from keystead.schema.operation import Compound, Operation, taking
from keystead.schema.seal import KeyRing
from keystead.stores import Command, Reply, Required, StoreMs, absent, at_most, field_holds
from keystead.stores.store_contract import ATOMIC_ARGUMENTS

T = TypeVar("T")
F = TypeVar("F")
V = TypeVar("V")
M = TypeVar("M", bound=BaseModel)

_ARGUMENTS = ATOMIC_ARGUMENTS - 1_000  # of one command; even, for pairs


class HashKey(GrownKey, Generic[T, F, V]):
    """One key that holds a record of type T, field by field."""

    __slots__ = ()

    def get(self) -> Operation[T | None]:
        """The whole record; None: there is no such key. Raises Unreadable if it does not fit the family."""
        return self._read("get", ("HGETALL", self.key), self._record)

    def set(self, record: T, **until: Moment) -> Operation[None]:
        """Write the whole record, whether there was one or not; other fields are removed. Atomic.

        It recreates a record that was deleted meanwhile: to change an existing record, use `update`.
        """
        fields = self._fields_of(record)
        return self._record_written(
            "set", [("DEL", self.key), *self._split_command("HSET", fields)], record, until, nothing
        )

    def add(self, record: T, **until: Moment) -> Operation[bool]:
        """Write the whole record only if there is no such key. Of several callers one gets True. Atomic."""
        fields = self._fields_of(record)
        return self._record_written(
            "add", [absent(self.key), *self._split_command("HSET", fields)], record, until, _true
        )

    def update(self, fields: Mapping[F, V | None], **until: Moment) -> Operation[bool]:
        """Change these fields of an existing record, and no others; None removes a field. Atomic.

        False: there is no such record, and none is created: a deleted or expired record is not resurrected.
        """
        steps = [Required(("EXISTS", self.key)), *self._changes(fields)]
        at_ms = self._at_ms(fields, until)
        return self._relist_after(self._update_until("update", steps, _true, at_ms, stopped=False), at_ms, fields)

    def put(self, fields: Mapping[F, V], **until: Moment) -> Operation[None]:
        """Write these fields, whether there is such a key or not. Other fields are kept. Atomic."""
        self._refuse_unlisted("put")
        return self._write_until("put", self._changes(fields), nothing, self._at_ms(fields, until))

    def field(self, name: F) -> Operation[V | None]:
        """One field; None: there is no such field, or no such key."""
        raw = self._name(name)
        return self._read("field", ("HGET", self.key, raw), lambda replies: self._one(raw, replies[0]))

    def fields(self, *names: F) -> Operation[dict[F, V]]:
        """These fields; missing ones are left out."""
        raw = [self._name(name) for name in names]
        if not raw:
            raise BadValue(f"{self.key}: name at least one field")

        def finish(replies: list[Reply]) -> dict[F, V]:
            found = zip(names, raw, replies[0], strict=True)
            return {name: cast("V", self._one(text, data)) for name, text, data in found if data is not None}

        return self._read("fields", ("HMGET", self.key, *raw), finish)

    def has(self, name: F) -> Operation[bool]:
        """Whether there is such a field."""
        return self._read("has", ("HEXISTS", self.key, self._name(name)), truth)

    def count(self) -> Operation[int]:
        """How many fields there are."""
        return self._read("count", ("HLEN", self.key), number)

    def at_most(self, limit: int) -> Operation[bool]:
        """Whether there are at most `limit` fields.

        For `atomically`: if there are more, nothing in the batch takes effect. `at_most(5)` after an `update` or a
        `put` is a hash that never has more than 5 fields, however many callers there are, and still
        allows changes to existing fields.
        """
        return self._count_at_most("at_most", ("HLEN", self.key), limit)

    def add_field(self, name: F, value: V | StoreMs, **until: Moment) -> Operation[bool]:
        """Write a field only if it is missing. Of several callers one gets True. Atomic.

        `store_ms()` is the time of the store, for a field that is a whole number.
        """
        self._refuse_unlisted("add_field")
        if isinstance(value, StoreMs):
            data: Any = value if self._integer(name) else None
        else:
            data = self._encode(self._name(name), value)
        command = ("HSETNX", self.key, self._name(name), data)
        return self._write("add_field", [command], truth, until)

    def increment(self, name: F, by: int = 1) -> Operation[int | None]:
        """Add to an integer field and return the result. Atomic.

        The record of a model must exist; None: it does not, and none is created. A new free field starts at 0.
        """
        if type(by) is not int:
            raise BadValue(f"{self.key}: an increment must be a whole number, not {type(by).__name__}")
        command = ("HINCRBY", self.key, self._integer(name), by)
        if not self.bound.family.fields:
            return self._write_until("increment", [command], number, self._at_ms(None, {}))
        steps = [Required(("EXISTS", self.key)), command]
        return self._relist_after(self._update_until("increment", steps, _second, None, stopped=None), None, {name: by})

    def consume_field(self, name: F) -> Operation[V | None]:
        """Read and remove a field in one atomic step: of several callers one gets it, the others None."""
        raw = self._name(name)
        steps = [("HGET", self.key, raw), ("HDEL", self.key, raw)]
        return Compound(
            self.bound, "consume_field", steps, taking(lambda replies: self._one(raw, replies[0])), atomic=True
        )

    def remove(self, *names: F) -> Operation[int]:
        """Remove fields; returns how many there were. Does not extend the lifetime. Atomic."""
        if not names:
            raise BadValue(f"{self.key}: name at least one field")
        gone = [self._name(name) for name in names]
        for name in gone:
            self.bound.family.refuse_required(name, self.key)
        return self._read("remove", ("HDEL", self.key, *gone), number)

    def use(self) -> Operation[T | None]:
        """The whole record; touches it if the last touch was `touch_every` ago. For sliding families.

        One round trip; a second one only if a touch is due, so most reads write nothing. Nothing is recreated.
        """
        lifetime = self._sliding("use")

        def follow(replies: list[Reply]) -> Any:
            left_ms = replies[1]
            return self.touch() if left_ms >= 0 and lifetime.is_due(left_ms) else None

        steps = [("HGETALL", self.key), ("PTTL", self.key)]
        return Compound(self.bound, "use", steps, self._record, follow=follow)

    def see(self) -> Operation[dict[bytes, bytes]]:
        """All fields as they are stored, for a later `holds` or `copy`; empty: there is no such key."""
        return self._read("see", ("HGETALL", self.key), _fields)

    def holds(self, seen: Mapping[bytes, bytes]) -> Operation[bool]:
        """Whether the key still holds exactly the fields that were seen, and no others; empty: it still does not exist.

        For `atomically`: if it does not, nothing in the batch takes effect.
        """
        steps: list[Any] = [at_most(("HLEN", self.key), len(seen))]
        steps += [field_holds(self.key, name, value) for name, value in seen.items()]
        return Compound(self.bound, "holds", steps, truth, atomic=True, stopped=False)

    def update_seen(
        self, seen: Mapping[bytes, bytes | None], fields: Mapping[F, V | None], **until: Moment
    ) -> Operation[bool]:
        """`update`, only if these fields still hold what `see` returned; None: only if there is still no such field.

        Name the fields that are changed, and those that the change depends on: writers of others do not interfere.
        Atomic.
        """
        guards = [field_holds(self.key, name, value) for name, value in seen.items()]
        steps = [*guards, Required(("EXISTS", self.key)), *self._changes(fields)]
        at_ms = self._at_ms(fields, until)
        return self._relist_after(self._update_until("update_seen", steps, _true, at_ms, stopped=False), at_ms, fields)

    def copy(self, seen: Mapping[bytes, bytes], **until: Moment) -> Operation[None]:
        """Write all fields as they were seen under another key, including unreadable ones. Atomic.

        Raises BadCall for a family with sealed values, which open only under their own key.
        """
        self._refuse_unlisted("copy")
        if self.bound.family.needs_ring or not seen:
            raise BadCall(f"{self.key}: the fields are empty, or sealed for another key")
        commands = [("DEL", self.key), *self._split_command("HSET", [part for pair in seen.items() for part in pair])]
        return self._write_until("copy", commands, nothing, self._at_ms(None, until))

    def field_at_most(self, name: F, limit: int) -> Operation[bool]:
        """Whether an integer field is at most `limit`; a missing field counts as 0.

        For `atomically`: if it is higher, nothing in the batch takes effect.
        """
        if type(limit) is not int or not -(2**63) <= limit < 2**63:
            raise BadValue(f"{self.key}: a limit must be a whole number of at most 64 bits")
        return self._at_most("field_at_most", ("HGET", self.key, self._integer(name)), limit)

    def _refuse_unlisted(self, verb: str) -> None:
        family = self.bound.family
        if family.listed_in:
            raise BadCall(
                f"{family.place} is listed in {family.listed_in[0].target.name}, and {verb} could create a record that "
                "no index lists; use set or add for a whole record, update for an existing one"
            )

    def _relist_after(self, operation: Compound[Any], at_ms: int | None, changed: Mapping[Any, Any]) -> Operation[Any]:
        """Renew the index entries after a change of a listed record."""
        bound, key = self.bound, self.key
        family = bound.family
        if not family.listed_in:
            return operation
        names = {self._name(name) for name in changed}
        for relation in family.listed_in:
            for origin in relation.origins.values():
                if origin is not None and origin.kind == "field" and self._name(cast("F", origin.name)) in names:
                    raise BadValue(
                        f"{key}: {origin.name} determines the {relation.target.name} that lists it; delete the record "
                        "and add it again"
                    )
        kept = at_ms is None and not isinstance(family.lifetime, Sliding)
        operation.steps.append(family.read_command(key))

        def follow(replies: list[Reply]) -> Any:
            record = family.value_of(replies[-1], key, bound.ring)
            return None if record is None else listing.relist(bound, key, record, at_ms, kept=kept)

        operation.follow = follow
        return operation

    def _name(self, name: F) -> bytes:
        text: bytes = self.bound.family.field_name(name, self.key)
        return text

    def _integer(self, name: F) -> bytes:
        """The stored name of an integer field. Raises BadCall for another field."""
        raw = self._name(name)
        codec = self.bound.family.field_codec(raw, self.key)
        if codec.sealed:
            raise BadCall(f"{self.key}: {name} is sealed, so the store cannot add to it")
        if codec.json_schema().get("type") != "integer":
            raise BadCall(f"{self.key}: {name} is not an integer, so nothing can be added to it")
        return raw

    def _encode(self, name: bytes, value: V) -> bytes:
        data: bytes = self.bound.family.field_codec(name, self.key).encode(
            value, self.key, self.bound.ring, name.decode("utf-8", "replace")
        )
        return data

    def _one(self, name: bytes, data: bytes | None) -> V | None:
        if data is None:
            return None
        codec = self.bound.family.field_codec(name, self.key)
        return cast("V", codec.decode(data, self.key, self.bound.ring, name.decode("utf-8", "replace")))

    def _record(self, replies: list[Reply]) -> T | None:
        raw = replies[0]
        return cast("T | None", self.bound.family.record_of(raw, self.key, self.bound.ring) if raw else None)

    def _fields_of(self, record: T) -> list[bytes]:
        fields: list[bytes] = self.bound.family.fields_of(record, self.key, self.bound.ring)
        if not fields:
            raise BadValue(f"{self.key}: a record without fields cannot be stored")
        return fields

    def _changes(self, fields: Mapping[F, V | None]) -> list[Any]:
        if not (hasattr(fields, "items") and fields):
            raise BadValue(f"{self.key}: give fields with their values, as in {{'name': 'Ann'}}, at least one")
        kept: list[bytes] = []
        gone: list[bytes] = []
        for name, value in fields.items():
            raw = self._name(name)
            if value is None:
                self.bound.family.refuse_required(raw, self.key)
                gone.append(raw)
            else:
                kept += (raw, self._encode(raw, value))
        # Fields are written before others are removed: an empty hash is deleted, and loses its
        # deadline.
        return [*self._split_command("HSET", kept), *self._split_command("HDEL", gone)]

    def _split_command(self, command: str, arguments: list[bytes]) -> list[Any]:
        """This command with these arguments, split into several where one cannot take them all."""
        starts = range(0, len(arguments), _ARGUMENTS)
        return [(command, self.key, *arguments[start : start + _ARGUMENTS]) for start in starts]

    def _record_written(
        self, verb: str, steps: list[Any], record: T, until: dict[str, Moment], finish: Any
    ) -> Operation[Any]:
        bound = self.bound
        now_ms, at_ms = bound.now_ms(), self._at_ms(record, until)
        steps += self._renewal(now_ms, at_ms)
        if not bound.family.listed_in:
            return Compound(bound, verb, steps, finish, atomic=True, stopped=False)
        values, dies_ms = self.values, bound.family.lifetime.deadline_ms(now_ms, at_ms)
        writes: list[tuple[listing.ListedEntry, list[Command]]] = [
            (entry, listing.put(entry, values, record, now_ms, dies_ms))
            for entry in listing.entries(bound, values, record)
        ]
        return listing.ListedWrite(bound, verb, self.key, steps, writes, finish)


class Hash(Family[HashKey[T, F, V]], Generic[T, F, V]):
    """A family of hashes, of a model or of free fields.

    `Hash("session:user:{userId}", UserSession, lifetime=...)`: each field of the model is a field of the hash.
    `Hash("{guid:alnum}", dict[str, str], lifetime=...)`: fields of any name; `fields=` restricts the names.
    """

    kind: ClassVar[str] = "hash"
    kind_name: ClassVar[str] = "Hash"
    verbs: ClassVar[type[Any]] = HashKey
    listable: ClassVar[bool] = True

    @overload
    def __init__(self: Hash[M, str, Any], pattern: str, type_: type[M], **options: Unpack[Options]) -> None: ...
    @overload
    def __init__(
        self: Hash[dict[F, V], F, V],
        pattern: str,
        type_: type[dict[F, V]],
        *,
        fields: Codec[F] | None = None,
        **options: Unpack[Options],
    ) -> None: ...
    def __init__(self, pattern: str, type_: Any, *, fields: Any = None, **options: Unpack[Options]) -> None:
        super().__init__(pattern, **options)
        self.type = type_
        self.fields: dict[str, Codec[Any]] = {}
        self._names: dict[str, str] = {}
        if isinstance(type_, type) and issubclass(type_, BaseModel):
            for name, info in type_.model_fields.items():
                stored = info.serialization_alias or info.alias or name
                self._names[name] = stored
                self.fields[stored] = codec_for(without_none(info.rebuild_annotation()), where=f"{pattern}, {name}")
            self._decoders = [
                (name, stored.encode(), stored, self.fields[stored].decode) for name, stored in self._names.items()
            ]
            self._validate = type_.__pydantic_validator__.validate_python
            if any(codec.sealed for codec in self.fields.values()):
                hide_sealed_fields(type_, where=pattern)
        elif get_origin(type_) is dict:
            name_type, value_type = get_args(type_)
            self._field: Codec[Any] = fields or codec_for(name_type, where=pattern)
            self._value: Codec[Any] = codec_for(value_type, where=pattern)
        else:
            raise BadDeclaration(
                f"{pattern}: a Hash holds a Pydantic model or a dict such as dict[str, str], not {type_!r}",
                "bad-value-type",
            )

    @property
    def codecs(self) -> Mapping[str, Codec[Any]]:
        return self.fields or {"field": self._field, "value": self._value}

    @property
    def field_names(self) -> frozenset[str]:
        return frozenset(self._names)

    def stored_name(self, field: str) -> str:
        return self._names.get(field, field)

    @property
    def value_shape(self) -> str:
        if not self.fields:
            return f"fields: {self._field.describe()} → {self._value.describe()}"
        shown_fields = []
        for info, (name, codec) in zip(self.type.model_fields.values(), self.fields.items(), strict=True):
            declared = info.rebuild_annotation()  # a field that is None is not stored
            missing = "" if without_none(declared) == declared else "?"
            shown_fields.append(f"{name}{missing}{' (sealed)' if codec.sealed else ''}")
        return f"fields {{ {', '.join(shown_fields)} }}"

    def field_name(self, name: Any, key: str) -> bytes:
        """The stored name of a field. Raises BadValue if the family has no such field."""
        if not self.fields:
            return self._field.encode(name, key)
        stored = self._names.get(name, name) if isinstance(name, str) else None
        if stored not in self.fields:
            raise BadValue(f"{key}: {name!r} is not a field of {self.type.__name__} ({', '.join(self._names)})")
        return str(stored).encode()

    def refuse_required(self, name: bytes, key: str) -> None:
        """Raises BadValue for a field without which the record could not be read."""
        for own, stored in self._names.items():
            if stored.encode() == name and self.type.model_fields[own].is_required():
                raise BadValue(f"{key}: {own} is required, so it cannot be removed; delete the record instead")

    def field_codec(self, name: bytes, key: str) -> Codec[Any]:
        return self.fields[name.decode()] if self.fields else self._value

    def fields_of(self, record: Any, key: str, ring: Any) -> list[bytes]:
        """Names and values alternating, as HSET takes them. Fields that are None are left out."""
        out: list[bytes] = []
        if self.fields:
            if not isinstance(record, self.type):
                raise BadValue(f"{key}: this family holds {self.type.__name__}, not {type(record).__name__}")
            pairs = [(stored, getattr(record, name)) for name, stored in self._names.items()]
            for stored, value in pairs:
                if value is not None:
                    out += (stored.encode(), self.fields[stored].encode(value, key, ring, stored))
            return out
        if not isinstance(record, dict):
            raise BadValue(f"{key}: this family holds a dict, not {type(record).__name__}")
        for name, value in record.items():
            field = self._field.encode(name, key)
            out += (field, self._value.encode(value, key, ring, field.decode("utf-8", "replace")))
        return out

    def record_of(self, raw: dict[bytes, bytes], key: str, ring: Any) -> Any:
        """The record of these stored fields; unknown ones are ignored. Raises Unreadable."""
        if not self.fields:
            return {
                self._field.decode(field, key): self._value.decode(value, key, ring, field.decode("utf-8", "replace"))
                for field, value in raw.items()
            }
        found = {}
        for name, stored, text, decode in self._decoders:
            data = raw.get(stored)
            if data is not None:
                found[name] = decode(data, key, ring, text)
        try:
            return self._validate(found, by_name=True, by_alias=False)
        except ValidationError as error:
            wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors(include_input=False))
            raise Unreadable(f"this is not a valid {self.type.__name__}: {wrong}", key) from None

    def read_command(self, key: str) -> Command:
        return ("HGETALL", key)

    def value_of(self, raw: dict[bytes, bytes] | None, key: str, ring: KeyRing | None) -> Any:
        return self.record_of(raw, key, ring) if raw else None


def _true(replies: list[Reply]) -> bool:
    return True


def _fields(replies: list[Reply]) -> dict[bytes, bytes]:
    return dict(replies[0])


def _second(replies: list[Reply]) -> int:
    return int(replies[1])
