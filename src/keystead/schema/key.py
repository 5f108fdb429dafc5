"""A key of a family, and the verbs that every kind of key has."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from keystead.errors import BadCall
from keystead.schema import deletion, listing
from keystead.schema.clock import clock_ms
from keystead.schema.lifetime import Lifetime, Sliding, Until
from keystead.schema.operation import Compound, Operation
from keystead.schema.times import deadline_ms
from keystead.stores import Reply, absent

if TYPE_CHECKING:
    from keystead.schema.family import Bound

Moment: TypeAlias = datetime | int


class Named:
    """One name of a family: a key, or a channel."""

    __slots__ = ("bound", "key")

    def __init__(self, bound: Bound[Any], key: str) -> None:
        self.bound = bound
        self.key = key

    @property
    def values(self) -> dict[str, Any]:
        """The values of the placeholders."""
        found = self.bound.parse(self.key)
        if found is None:
            raise BadCall(f"{self.key!r} is not a key of {self.bound.family.place}")
        return found

    def __repr__(self) -> str:
        return f"<{self.key!r} of {self.bound.family.place}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and (other.bound, other.key) == (self.bound, self.key)

    def __hash__(self) -> int:
        return hash((self.bound, self.key))


class Key(Named):
    """One key. Its verbs send nothing until they are awaited, alone or in a batch."""

    __slots__ = ()

    def exists(self) -> Operation[bool]:
        """Whether there is such a key. One round trip."""
        return Operation(self.bound, "exists", [("EXISTS", self.key)], truth)

    def remaining(self) -> Operation[timedelta | None]:
        """How long it will live if it is not touched; None: there is no such key; timedelta.max: forever."""
        return Operation(self.bound, "remaining", [("PTTL", self.key)], _remaining)

    def touch(self) -> Operation[bool]:
        """Restart its sliding lifetime. False: there is no such key, and none is created.

        One round trip, one write; one more if it is listed in an index, which is renewed, too. To read and touch only
        when a touch is due, use `use()`.
        """
        bound = self.bound
        command = ("PEXPIRE", self.key, self._sliding("touch").ms)
        if not bound.family.listed_in:
            return Operation(bound, "touch", [command], truth)

        async def relist(raw: Any) -> None:
            await listing.relist(bound, self.key, bound.family.value_of(raw, self.key, bound.ring))

        # An index lives as long as its records, so it is renewed, too. The index may depend on the value.
        steps = [command, bound.family.read_command(self.key)]
        return Compound(bound, "touch", steps, truth, follow=lambda replies: relist(replies[1]) if replies[0] else None)

    def delete(self) -> Operation[bool]:
        """Delete it, what it owns and the index entries that name it. False: there was no such key.

        The cascade is one atomic step if all other keys follow from this key; then it can be part of a batch, too. If
        they are named in the value, that is read first. If they must be found, the store is scanned after the atomic
        step; an interruption leaves only orphans that `keystead doctor` finds. `plan_delete()` shows it beforehand.
        """
        if not self.bound.family.has_relations:
            return Operation(self.bound, "delete", [("DEL", self.key)], truth)
        return deletion.Cascade(self.bound, self.key)

    async def plan_delete(self) -> deletion.Plan:
        """What `delete` would delete, without deleting anything."""
        return await deletion.plan(self.bound, self.key)

    @property
    def alone(self) -> Self:
        """The same key without its relations: its verbs write and delete this key only, and no index entry.

        For procedures that write the cascade themselves: `keys.token(t).alone.delete()`.
        """
        return type(self)(self.bound.alone, self.key)

    def lasting(self, ms: int) -> Self:
        """The same key; its writes set a TTL of `ms` instead of the lifetime of its family.

        For keys that expire earlier than the family states: `keys.session(s).lasting(ms).add(...)`.
        `lasting(ms).touch()` sets the TTL of an existing key. Raises BadCall for more than the family allows.
        """
        longest = self.bound.family.lifetime.longest_ms
        if type(ms) is not int or ms < 1 or (longest is not None and ms > longest):
            raise BadCall(f"{self.key}: a lifetime must be a number of ms from 1 to {longest or 'any'}, not {ms!r}")
        return type(self)(self.bound.lasting(ms), self.key)

    def shorten(self, ms: int) -> Operation[bool]:
        """Cap its TTL at `ms` from now on. False: there is no such key, or it expires earlier anyway."""
        return Operation(self.bound, "shorten", [("PEXPIRE", self.key, ms, "LT")], truth)

    def clock(self) -> Operation[int]:
        """The clock of the store in ms since 1970. In a batch, the time at which the other operations ran."""
        return Operation(self.bound, "clock", [("TIME",)], clock_ms)

    def absent(self) -> Operation[bool]:
        """Whether there is no such key, of any kind.

        For `atomically`: if there is one, nothing in the batch takes effect.
        """
        return Compound(self.bound, "absent", [absent(self.key)], truth, atomic=True, stopped=False)

    def extend(self, until: Moment) -> Operation[bool]:
        """Extend its lifetime to at least this moment. False: there is no such key, or it lives longer anyway.

        Its index entries are not changed. Raises BadCall for a moment that is later than the family allows.
        """
        at_ms, longest = deadline_ms(until), self.bound.family.lifetime.longest_ms
        if longest is not None and at_ms > self.bound.now_ms() + longest:
            raise BadCall(f"{self.key} would live longer than its family allows: {longest} ms at most")
        return Operation(self.bound, "extend", [("PEXPIREAT", self.key, at_ms, "GT")], truth)

    def left_ms(self) -> Operation[int]:
        """How many ms it will live if it is not touched; -2: there is no such key; -1: forever."""
        return Operation(self.bound, "left_ms", [("PTTL", self.key)], number)

    def _sliding(self, verb: str) -> Sliding:
        lifetime = self.bound.family.lifetime
        if not isinstance(lifetime, Sliding):
            raise BadCall(
                f"{self.bound.family.place} has no sliding lifetime ({lifetime.describe()}); "
                f"{verb} is for families with lifetime=sliding(...)"
            )
        return lifetime

    def _at_ms(self, value: Any, given: dict[str, Moment]) -> int | None:
        """The deadline that this write sets, if the family has lifetime=until(...)."""
        if not given and not self.bound.family.has_moment:
            return None
        return moment(self.bound.family, self.key, value, given)


def moment(family: Any, key: str, value: Any, given: dict[str, Moment]) -> int | None:
    """The deadline in `value` or among the arguments of a verb, in ms; None if the lifetime takes none."""
    lifetime: Lifetime = family.lifetime
    if not isinstance(lifetime, Until):
        if given:
            raise BadCall(f"{key}: this family has no deadline argument {next(iter(given))!r}; {lifetime.describe()}")
        return None
    unknown = set(given) - {lifetime.field}
    if unknown:
        raise BadCall(f"{key}: the deadline argument of this family is {lifetime.field!r}, not {min(unknown)!r}")
    if lifetime.field in family.field_names:
        if given:
            raise BadCall(f"{key}: {lifetime.field} is a field of the record; do not pass it separately")
        found: Any = _in_record(value, lifetime.field, family.stored_name(lifetime.field))
    else:
        found = given.get(lifetime.field)
    return None if found is None else deadline_ms(found, lifetime.unit)


def _in_record(record: Any, field: str, stored: str) -> Any:
    if isinstance(record, Mapping):
        return record.get(field, record.get(stored))
    return getattr(record, field, None)


def truth(replies: list[Reply]) -> bool:
    """The first reply is not 0 and not nil."""
    return bool(replies[0])


def number(replies: list[Reply]) -> int:
    return int(replies[0])


def nothing(replies: list[Reply]) -> None:
    return None


def _remaining(replies: list[Reply]) -> timedelta | None:
    left_ms = replies[0]
    if left_ms == -2:
        return None
    return timedelta.max if left_ms == -1 else timedelta(milliseconds=left_ms)
