"""Set: members without order, each once. The usual index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Generic, TypeVar, Unpack, overload

from keystead.errors import BadValue
from keystead.schema import listing
from keystead.schema.codec import Codec, codec_for
from keystead.schema.family import Family, Options
from keystead.schema.key import Moment, number, truth
from keystead.schema.kinds.growing import GrownKey, refuse_container
from keystead.schema.kinds.value import Seen, seen_or_none
from keystead.schema.operation import Operation
from keystead.stores import Reply

M = TypeVar("M")


class SetKey(GrownKey, Generic[M]):
    """One key that holds a set of members of type M."""

    __slots__ = ()

    def members(self) -> Operation[set[M]]:
        """All members; empty: there is no such key. To skip members whose records are gone, use `live`."""
        return self._read("members", ("SMEMBERS", self.key), self._members)

    def has(self, member: M) -> Operation[bool]:
        """Whether it is a member."""
        return self._read("has", ("SISMEMBER", self.key, self._encode(member)), truth)

    def count(self) -> Operation[int]:
        """How many members there are."""
        return self._read("count", ("SCARD", self.key), number)

    def at_most(self, limit: int) -> Operation[bool]:
        """Whether there are at most `limit` members.

        For `atomically`: if there are more, nothing in the batch takes effect. `at_most(4)` before an `add` of one
        member is a set that never has more than 5, however many callers there are. `at_most(5)` after it guarantees the
        same for any number of members, and admits existing members.
        """
        return self._count_at_most("at_most", ("SCARD", self.key), limit)

    def add(self, *members: M, **until: Moment) -> Operation[int]:
        """Add members; returns how many are new. Atomic."""
        return self._write("add", [("SADD", self.key, *self._encode_all(members))], number, until)

    def remove(self, *members: M | Seen[M | None]) -> Operation[int]:
        """Remove members; returns how many there were. Does not extend the lifetime. Atomic.

        A `Seen` member is removed by its stored form, even if it is unreadable.
        """
        return self._read("remove", ("SREM", self.key, *self._encode_all(members)), number)

    async def live(self) -> set[M]:
        """The members whose records exist. Dead entries are pruned. Two round trips; three if some are dead."""
        return set(await listing.live(self.bound, self.key))

    def see(self) -> Operation[list[Seen[M | None]]]:
        """As `members`, each for a later `remove`. Unreadable members have the value None."""
        return self._read("see", ("SMEMBERS", self.key), self._read_seen)

    def _encode(self, member: M | Seen[M | None]) -> bytes:
        if isinstance(member, Seen):
            return member.stored
        data: bytes = self.bound.family.member.encode(member, self.key, self.bound.ring)
        return data

    def _encode_all(self, members: tuple[M | Seen[M | None], ...]) -> list[bytes]:
        if not members:
            raise BadValue(f"{self.key}: name at least one member")
        return [self._encode(member) for member in members]

    def _members(self, replies: list[Reply]) -> set[M]:
        decode = self.bound.family.member.decode
        return {decode(data, self.key, self.bound.ring) for data in replies[0]}

    def _read_seen(self, replies: list[Reply]) -> list[Seen[M | None]]:
        codec, key, ring = self.bound.family.member, self.key, self.bound.ring
        return [seen_or_none(codec, raw, key, ring) for raw in replies[0]]


class Set(Family[SetKey[M]], Generic[M]):
    """A family of sets: `Set("user:{uid}:sessions", str, lifetime=sliding("30d", touch_every="1h"))`."""

    kind: ClassVar[str] = "set"
    kind_name: ClassVar[str] = "Set"
    verbs: ClassVar[type[Any]] = SetKey

    @overload
    def __init__(self, pattern: str, member: type[M] | Codec[M], **options: Unpack[Options]) -> None: ...
    @overload  # Literal, Annotated and unions are not classes to a type checker
    def __init__(self: Set[Any], pattern: str, member: object, **options: Unpack[Options]) -> None: ...
    def __init__(self, pattern: str, member: Any, **options: Unpack[Options]) -> None:
        super().__init__(pattern, **options)
        self.member: Codec[M] = member if isinstance(member, Codec) else codec_for(member, where=pattern)
        refuse_container(pattern, self.member)

    @property
    def codecs(self) -> Mapping[str, Codec[Any]]:
        return {"member": self.member}

    @property
    def value_shape(self) -> str:
        return f"member: {self.member.describe()}"
