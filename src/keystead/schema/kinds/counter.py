"""Counter: an integer that is incremented and decremented."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Unpack

from keystead.errors import BadCall, BadValue, Unreadable
from keystead.schema import deletion
from keystead.schema.codec import Codec, codec_for
from keystead.schema.family import Family, Options
from keystead.schema.key import Moment, nothing, number, truth
from keystead.schema.kinds.growing import GrownKey
from keystead.schema.operation import Compound, Operation
from keystead.schema.seal import KeyRing
from keystead.stores import Command, Guarantees, Reply, holds

_ZERO = ord("0")
_LEAST, _MOST, _LONGEST = -(2**63), 2**63 - 1, 20  # the last is the number of digits, with a sign


class CounterKey(GrownKey):
    """One key that holds a 64-bit integer, from -2^63 to 2^63 - 1."""

    __slots__ = ()

    def get(self) -> Operation[int]:
        """The number; 0: there is no such key."""
        return self._read("get", ("GET", self.key), self._number)

    def at_most(self, limit: int) -> Operation[bool]:
        """Whether the number is at most `limit`; a missing key counts as 0.

        For `atomically`: if it is higher, nothing in the batch takes effect. `at_most(99)` before an `increment()`
        is a counter that never exceeds 100, however many callers there are.
        """
        _check(limit, self.key)
        return self._at_most("at_most", ("GET", self.key), limit)

    def at_least(self, least: int) -> Operation[bool]:
        """Whether the number is at least `least`; a missing key counts as 0.

        For `atomically`: if it is lower, nothing in the batch takes effect. `at_least(1)` before a `decrement()` is
        a counter that never goes below 0, however many callers there are.
        """
        _check(least, self.key)
        _check(least - 1, self.key)
        return self._at_least("at_least", ("GET", self.key), least)

    def holds(self, number: int) -> Operation[bool]:
        """Whether the number is exactly this one. Not for 0, which a missing key also counts as: use `at_most(0)`.

        For `atomically`: if it is not, nothing in the batch takes effect.
        """
        _check(number, self.key)
        if number == 0:
            raise BadCall(f"{self.key}: 0 is also the value of a missing key; use at_most(0)")
        return Compound(self.bound, "holds", [holds(self.key, str(number))], truth, atomic=True, stopped=False)

    def increment(self, by: int = 1, **until: Moment) -> Operation[int]:
        """Add to it and return the result. The first increment, of any size, starts its lifetime. Atomic."""
        _check(by, self.key)
        return self._write("increment", [("INCRBY", self.key, by)], number, until)

    def decrement(self, by: int = 1, **until: Moment) -> Operation[int]:
        """Subtract from it and return the result. Atomic."""
        _check(by, self.key)
        _check(-by, self.key)
        return self._write("decrement", [("INCRBY", self.key, -by)], number, until)

    def start_at(self, number: int, **until: Moment) -> Operation[bool]:
        """Write the number only if there is no such key. True: it was written. Atomic."""
        _check(number, self.key)
        options = self.bound.family.lifetime.on_create(self.bound.now_ms(), self._at_ms(None, until))
        return Operation(self.bound, "start_at", [("SET", self.key, number, *options, "NX")], truth)

    def set(self, to: int, **until: Moment) -> Operation[None]:
        """Write the number and start a new lifetime. Atomic."""
        _check(to, self.key)
        options = self.bound.family.lifetime.on_create(self.bound.now_ms(), self._at_ms(None, until))
        return Operation(self.bound, "set", [("SET", self.key, to, *options)], nothing)

    def consume(self) -> Operation[int]:
        """Read and delete in one atomic step: of several callers one gets the number, the others 0."""
        return deletion.consume(self.bound, self.key, self._number)

    def _number(self, replies: list[Reply]) -> int:
        raw = replies[0]
        if raw is None:
            return 0
        if len(raw) < _LONGEST - 1 and raw.isdigit() and raw[0] != _ZERO:  # the usual one
            return int(raw)
        value: int = self.bound.family.value_of(raw, self.key, None)
        return value


class Counter(Family[CounterKey]):
    """A family of counters: `Counter("counter:{id}:total", lifetime=never("deleted with its counter"))`."""

    kind: ClassVar[str] = "string"
    kind_name: ClassVar[str] = "Counter"
    verbs: ClassVar[type[Any]] = CounterKey

    def __init__(self, pattern: str, **options: Unpack[Options]) -> None:
        super().__init__(pattern, **options)
        self.codec: Codec[int] = codec_for(int)

    def further_misfits(self, guarantees: Guarantees) -> Iterator[str]:
        if not guarantees.updates:
            yield "the store cannot add to a number, so concurrent increments would be lost"

    @property
    def codecs(self) -> Mapping[str, Codec[Any]]:
        return {"value": self.codec}

    def read_command(self, key: str) -> Command:
        return ("GET", key)

    def value_of(self, raw: bytes | None, key: str, ring: KeyRing | None) -> int | None:
        if raw is None:
            return None
        value = self.codec.decode(raw, key) if len(raw) <= _LONGEST else None
        if value is None or not _LEAST <= value <= _MOST:
            raise Unreadable("this is not a 64-bit integer", key, raw)
        return value


def _check(value: int, key: str) -> None:
    if type(value) is not int or not _LEAST <= value <= _MOST:
        raise BadValue(f"{key}: a counter must be a 64-bit integer, not {type(value).__name__}")
