"""The steps of `atomically`: commands, guards, and how they are planned."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from keystead.errors import BadArgument, NotANumber
from keystead.stores.commands import (
    AMOUNTS,
    INT64_MAX,
    INT64_MIN,
    LATEST_MS,
    TABLE,
    TIMED,
    WHOLE_READS,
    Argument,
    Call,
    Command,
    Reply,
    StoreMs,
    TimedCommand,
    amount_of,
    encode,
    read,
)

# Lua cannot unpack more than about 8,000 arguments into one call; the limit is the same for all stores.
ATOMIC_ARGUMENTS = 7_000


@dataclass(slots=True, unsafe_hash=True)  # not frozen, which is slower to create
class Required:
    """A command whose reply must not be nil or 0."""

    command: TimedCommand


@dataclass(slots=True, unsafe_hash=True)  # not frozen, which is slower to create
class Holds:
    """A guard: the key holds exactly this value, or (None) does not exist. It replies 1 or 0, and 0 stops the batch."""

    key: str | bytes
    value: Argument | None


@dataclass(slots=True, unsafe_hash=True)  # not frozen, which is slower to create
class FieldHolds:
    """A guard: the field of this hash holds exactly this value, or (None) does not exist."""

    key: str | bytes
    field: Argument
    value: Argument | None


@dataclass(slots=True, unsafe_hash=True)  # not frozen, which is slower to create
class Absent:
    """A guard: the key does not exist, whatever the kind."""

    key: str | bytes


@dataclass(slots=True, unsafe_hash=True)  # not frozen, which is slower to create
class AtMost:
    """A guard: the reply of this reading command is a number of at most `limit`. Nil counts as 0."""

    command: TimedCommand
    limit: int | float | StoreMs

    def allows(self, reply: Reply, now_ms: int) -> bool:
        """Whether this reply is within the limit, compared without rounding. Raises NotANumber."""
        limit = self.limit.at(now_ms) if isinstance(self.limit, StoreMs) else self.limit
        return amount_of(reply) <= limit


@dataclass(slots=True, unsafe_hash=True)  # not frozen, which is slower to create
class MoreThan(AtMost):
    """The opposite guard: the reply of this reading command is a number greater than `limit`."""

    def allows(self, reply: Reply, now_ms: int) -> bool:
        return not AtMost.allows(self, reply, now_ms)


@dataclass(slots=True, unsafe_hash=True)  # not frozen, which is slower to create
class Still:
    """A guard: this reading command still has exactly this reply."""

    command: TimedCommand
    reply: Reply


Step: TypeAlias = TimedCommand | Required | Holds | FieldHolds | Absent | AtMost | Still


def keys_of(step: Step) -> Sequence[str | bytes]:
    """The keys of a step. An invalid step has none; planning it raises the error."""
    key: Any = getattr(step, "key", None)
    if key is not None:
        return (key,)
    command: Any = getattr(step, "command", step)
    if isinstance(command, Call):
        return command.keys
    spec = (
        TABLE.get(command[0]) if isinstance(command, tuple | list) and command and isinstance(command[0], str) else None
    )
    if spec is None:
        return ()
    named = command[1:] if spec.keys < 0 else command[1 : 1 + spec.keys]
    return [one for one in named if isinstance(one, str | bytes)]


def required(command: TimedCommand) -> Required:
    """Mark a command of `atomically`: if its reply is nil or 0, no step takes effect."""
    return Required(command)


def holds(key: str | bytes, value: Argument | None) -> Holds:
    """A guard for `atomically`: continue only if `key` still holds `value` (None: only if there is no such key)."""
    return Holds(key, value)


def field_holds(key: str | bytes, field: Argument, value: Argument | None) -> FieldHolds:
    """A guard for `atomically`: continue only if this field of the hash `key` still holds `value` (None: is absent)."""
    return FieldHolds(key, field, value)


def absent(key: str | bytes) -> Absent:
    """A guard for `atomically`: continue only if the key does not exist, whatever the kind."""
    return Absent(key)


def at_most(command: TimedCommand, limit: int | float | StoreMs) -> AtMost:
    """A guard for `atomically`: continue only if this reading command replies a number of at most `limit`.

    For caps and bounded counters: `at_most(("SCARD", "devices:7"), 4)` before a SADD limits a set to 5 members.
    Nil counts as 0. The command reads an amount of one key: GET, HGET, LINDEX, ZSCORE, SCARD, ZCARD,
    ZCOUNT, HLEN, LLEN, XLEN, SISMEMBER or HEXISTS. A stored value that is not a number raises NotANumber. 64-bit
    numbers are compared exactly, on every store.
    """
    return AtMost(command, limit)


def more_than(command: TimedCommand, limit: int | float | StoreMs) -> MoreThan:
    """A guard for `atomically`, the opposite of `at_most`: continue only if the number is higher than `limit`.

    For stock that must not run out: `more_than(("GET", "stock:apple"), 0)` before a decrement.
    """
    return MoreThan(command, limit)


def still(command: TimedCommand, reply: Reply) -> Still:
    """A guard for `atomically`: continue only if this reading command replies what it replied before.

    For optimistic locking of a whole key of any kind, and of its deadline: `still(("HGETALL", "cart:7"), cart)`,
    `still(("PEXPIRETIME", "cart:7"), ends_at_ms)`. The command is GET, HGETALL, SMEMBERS, ZRANGE, LRANGE, XRANGE or
    PEXPIRETIME. The order of the members of a set and the fields of a hash does not matter. To Redis only a digest of
    the reply is sent, whatever its size.
    """
    return Still(command, reply)


def store_ms(plus: int | float = 0) -> StoreMs:
    """A placeholder for a number in `atomically`: the store's time in ms since 1970, plus an offset.

    All writes and comparisons then use one clock, independent of the clocks of the processes, without a round trip for
    the time: `("ZADD", "seen", store_ms(), "me")`, `("ZREMRANGEBYSCORE", "seen", "-inf", store_ms(-60_000))`,
    `at_most(("ZSCORE", "free", "me"), store_ms())`. All steps of one `atomically` have the same time. Allowed as a
    score, a bound of scores, a value of SET, HSET or HSETNX, the moment of PEXPIREAT and PXAT, or the limit of
    `at_most`.
    """
    return StoreMs(plus)


@dataclass(slots=True)  # not frozen, because every call creates one
class Outcome:
    """What `atomically` did. True if everything took effect, false if nothing did.

    `stopped_at` is the place of the step that stopped it; `replies` then end with the reply of that step.
    """

    replies: list[Reply]
    stopped_at: int | None = None

    def __bool__(self) -> bool:
        return self.stopped_at is None


@dataclass(slots=True)
class Planned:
    """A parsed step of `atomically`: a call, whether it is required, and what a guard expects."""

    call: Call
    required: bool = False
    guard: bool = False
    expected: bytes | int | None = None  # 0: the reply of EXISTS, for `absent`
    at_most: AtMost | None = None  # then `expected` is not used
    still: Still | None = None  # then `expected` is not used
    times: tuple[tuple[int, StoreMs], ...] = ()  # places of arguments that the store's time fills

    def call_at(self, now_ms: int) -> Call:
        """The call to run at this time of the store."""
        if not self.times:
            return self.call
        args = list(self.call.args)
        for place, moment in self.times:
            args[place] = encode(moment.at(now_ms))
        return read((self.call.spec.name, *args))

    def verdict(self, reply: Reply, now_ms: int) -> int:
        """The reply of a guard whose call replied this: 1 if it holds, else 0. Raises NotANumber."""
        if self.still is not None:
            return int(reply == self.still.reply)
        if self.at_most is None:
            return int(reply == self.expected)
        try:
            return int(self.at_most.allows(reply, now_ms))
        except NotANumber as error:
            raise self.call.blame(error) from None

    def stops(self, reply: Reply) -> bool:
        return (self.required or self.guard) and (reply is None or (type(reply) is int and reply == 0))


def plan(steps: Sequence[Step]) -> list[Planned]:
    """Parse the steps of `atomically`. Raises the CommandError of the first invalid one."""
    planned = []
    for step in steps:
        one = _PLANNERS.get(type(step), _plan_command)(step)
        call = one.call
        if len(call.args) >= ATOMIC_ARGUMENTS:
            raise call.blame(BadArgument(f"a command in an atomic step takes at most {ATOMIC_ARGUMENTS} arguments"))
        if not call.spec.keys:
            _check_keyless(one)
        planned.append(one)
    return planned


class PlanTemplate:
    """What `plan(make(*given))` returns, for other arguments each time, without parsing the steps again."""

    def __init__(self, make: Callable[..., Sequence[Step]], arguments: int, numbers: Collection[int] = ()) -> None:
        """Raises CommandError if an argument is not one of the words of a command, or should have been a number."""
        marks = [
            b"%d" % (_FIRST_SAMPLE + place) if place in numbers else b"\x00keystead argument %d\x00" % place
            for place in range(arguments)
        ]
        places = {mark: place for place, mark in enumerate(marks)}
        self.steps = [PlannedPlaces(one, places) for one in plan(make(*marks))]

    def fill(self, given: Sequence[bytes]) -> list[Planned]:
        return [one.fill(given) for one in self.steps]


_FIRST_SAMPLE = 12_345_000_000  # valid as a deadline and as a lifetime, in seconds and in ms
_SAMPLE = re.compile(r"keystead argument|12345\d{6}")


class PlannedPlaces:
    """A planned step, and where it has which argument.

    step       for sample arguments
    places     pairs: a place in the arguments of the call, and the argument that is put there
    expects    the argument that a guard expects; None: none
    is_parsed  the options of the call have an argument, so the call is parsed each time
    """

    def __init__(self, step: Planned, places: Mapping[bytes, int]) -> None:
        args = step.call.args
        self.step = step
        self.places = [(at, places[word]) for at, word in enumerate(args) if word in places]
        self.expects = places.get(step.expected) if type(step.expected) is bytes else None
        self.is_parsed = bool(_SAMPLE.search(repr(step.call.options)))
        fixed = [word for word in args if word not in places]
        if _SAMPLE.search(repr((fixed, step.at_most and step.at_most.limit, step.still and step.still.reply))):
            raise BadArgument("an argument is compared, or joined to other text")

    def fill(self, given: Sequence[bytes]) -> Planned:
        one, call = self.step, self.step.call
        if self.places:
            args = list(call.args)
            for at, place in self.places:
                args[at] = given[place]
            call = read((call.spec.name, *args)) if self.is_parsed else Call(call.spec, args, call.options)
        expected = one.expected if self.expects is None else given[self.expects]
        return Planned(call, one.required, one.guard, expected, one.at_most, one.still, one.times)


def _check_keyless(step: Planned) -> None:
    name = step.call.spec.name
    if step.required and name == "PUBLISH":
        raise step.call.blame(BadArgument("a message is sent after all other steps, so it cannot be required"))
    if name in ("SCAN", "DBSIZE"):
        raise step.call.blame(BadArgument("scans the whole store, which an atomic step must not do"))


def _plan_command(step: Any) -> Planned:
    call, times = _parse_timed(step)
    return Planned(call, times=times)


def _plan_required(step: Required) -> Planned:
    call, times = _parse_timed(step.command)
    return Planned(call, required=True, times=times)


def _plan_limit(step: AtMost) -> Planned:
    call, times = _parse_amount_guard(step)
    return Planned(call, guard=True, at_most=step, times=times)


def _plan_still(step: Still) -> Planned:
    call, times = _parse_still_guard(step)
    return Planned(call, guard=True, still=step, times=times)


_PLANNERS: dict[type, Callable[[Any], Planned]] = {
    Required: _plan_required,
    Holds: lambda step: Planned(read(("GET", step.key)), guard=True, expected=_encode(step.value)),
    FieldHolds: lambda step: Planned(read(("HGET", step.key, step.field)), guard=True, expected=_encode(step.value)),
    Absent: lambda step: Planned(read(("EXISTS", step.key)), guard=True, expected=0),
    AtMost: _plan_limit,
    MoreThan: _plan_limit,
    Still: _plan_still,
}


_SEQUENCES = (tuple, list)  # not a union, which isinstance would build again at every call
_SOME_TIME = 1  # in place of the store's time while a command is parsed


def _parse_timed(command: TimedCommand) -> tuple[Call, tuple[tuple[int, StoreMs], ...]]:
    """Parse a command, and find the places that the store's time fills. Raises CommandError."""
    if not isinstance(command, _SEQUENCES) or StoreMs not in map(type, command):
        return read(cast("Command", command)), ()
    call = read([_SOME_TIME if isinstance(part, StoreMs) else part for part in command])
    times = tuple((place, part) for place, part in enumerate(command[1:]) if isinstance(part, StoreMs))
    fits = TIMED.get(call.spec.name)
    for place, moment in times:
        if fits is None or not fits(place, len(call.args)):
            raise call.blame(BadArgument(f"store_ms cannot be argument {place + 1} of this command"))
        _check_moment(call, moment)
    return call, times


def _check_moment(call: Call, moment: StoreMs) -> None:
    plus = moment.plus
    if type(plus) not in (int, float) or not -LATEST_MS <= plus <= LATEST_MS:
        raise call.blame(BadArgument(f"store_ms takes a number of milliseconds, not {plus!r:.40}"))


def _parse_amount_guard(guard: AtMost) -> tuple[Call, tuple[tuple[int, StoreMs], ...]]:
    """Parse the command of this guard. Raises BadArgument if it does not read an amount, or if the limit is invalid."""
    (call, times), limit = _parse_timed(guard.command), guard.limit
    if call.spec.name not in AMOUNTS:
        raise call.blame(BadArgument(f"at_most takes a command that reads an amount: {', '.join(AMOUNTS)}"))
    if isinstance(limit, StoreMs):
        _check_moment(call, limit)
        return call, times
    if type(limit) is int and INT64_MIN <= limit <= INT64_MAX:
        return call, times
    if isinstance(limit, bool) or not isinstance(limit, int | float):
        raise call.blame(BadArgument(f"a limit must be an int or a float, not {type(limit).__name__}"))
    if isinstance(limit, int) and not INT64_MIN <= limit <= INT64_MAX:
        raise call.blame(BadArgument("an int limit has at most 64 bits; for no limit, write inf"))
    if math.isnan(limit):
        raise call.blame(BadArgument("a limit must be a number, not nan"))
    return call, times


def _parse_still_guard(guard: Still) -> tuple[Call, tuple[tuple[int, StoreMs], ...]]:
    """Parse the command of this guard. Raises BadArgument unless it reads a whole value or a deadline."""
    call, times = _parse_timed(guard.command)
    if call.spec.name not in WHOLE_READS:
        raise call.blame(BadArgument(f"still takes a command that reads a value: {', '.join(WHOLE_READS)}"))
    return call, times


def _encode(value: Argument | None) -> bytes | None:
    return None if value is None else encode(value)
