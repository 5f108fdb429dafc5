"""Compiled atomic steps: planned once for each shape, not once for each call.

The shape of steps is their commands, options and guards, and which keys are the same. Keys, values and numbers are the
arguments. When a shape occurs for the second time, its script is generated (see `script_compiler`) and its request is
packed, with gaps for the arguments. Callers of `atomically` do not notice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from math import isfinite
from typing import Any, Final

from keystead.errors import CommandError
from keystead.stores.commands import TABLE, Argument, Call, Reply, StoreMs, TimedCommand
from keystead.stores.redis.atomic_script import COUNTERS, DIGEST, SCRIPT, Script
from keystead.stores.redis.reply_errors import ReplyError
from keystead.stores.redis.reply_shapes import SHAPES
from keystead.stores.redis.script_compiler import OPTIONS, straight
from keystead.stores.store_contract import (
    Absent,
    AtMost,
    FieldHolds,
    Holds,
    MoreThan,
    Outcome,
    Planned,
    Required,
    Step,
    plan,
)

_LONGEST: Final = 80  # parts of a shape; longer ones rarely repeat
_MOST: Final = 256  # shapes, since the server keeps a script for each

# In a shape, a number stands for a key: the first key is 0. Text is an option, or a constant number.
_TEXT, _POSITIVE, _NEGATIVE, _FLOAT = range(-4, 0)
_LARGEST: Final = 10**14  # smaller numbers are valid wherever a number is; steps with larger ones are not compiled

_LONGEST_WORD: Final = max(map(len, OPTIONS))
_NUMBERS: Final = (int, float)


class _Mark(str):
    """The start of a step in a shape."""

    __slots__ = ()


_PLAIN, _REQUIRED, _HOLDS, _IS_GONE, _AT_MOST, _AT_MOST_FIXED = map(
    _Mark, ("plain", "required", "holds", "is gone", "at most", "at most the same")
)
_FIELD_HOLDS, _FIELD_IS_GONE, _ABSENT = map(_Mark, ("field holds", "field is gone", "absent"))
_MORE_THAN, _MORE_THAN_FIXED = map(_Mark, ("more than", "more than the same"))
_LIMITS = {AtMost: (_AT_MOST, _AT_MOST_FIXED), MoreThan: (_MORE_THAN, _MORE_THAN_FIXED)}


def shape_of(steps: Sequence[Step]) -> tuple[Hashable, list[bytes]] | None:
    """The shape of these steps, and their arguments in order. None: they have no shape, or are invalid."""
    shape: list[Any] = []
    data: list[bytes] = []
    keys: dict[bytes, int] = {}
    try:
        for step in steps:
            command: Any = step
            kind: Any = type(command)
            if kind is tuple or kind is list or kind is Call:
                shape.append(_PLAIN)
            elif kind is Required:
                shape.append(_REQUIRED)
                command = command.command
            else:
                command = _add_guard(step, shape, data)
                if command is None:
                    return None
            if type(command) is Call:
                name, arguments = command.spec.name, command.args
            else:
                name, arguments = command[0], command[1:]
            if not _add_command(name, arguments, shape, data, keys):
                return None
    except (KeyError, TypeError, IndexError, AttributeError, UnicodeEncodeError):
        return None  # planning the steps raises the right error
    return (tuple(shape), data) if len(shape) <= _LONGEST else None


def _add_command(
    name: str, arguments: Sequence[Any], shape: list[Any], data: list[bytes], keys: dict[bytes, int]
) -> bool:
    """Add a command to the shape; False: it has no shape."""
    keys_left = TABLE[name].keys
    shape.append(name)
    for argument in arguments:
        kind = type(argument)
        if kind is str:
            argument = argument.encode()
        elif kind is int and not keys_left and 0 < argument < _LARGEST:  # inlined: the most common number
            shape.append(_POSITIVE)
            data.append(b"%d" % argument)
            continue
        elif kind is not bytes:
            if keys_left or not _add_number(argument, shape, data):
                return False
            continue
        if keys_left:
            keys_left -= 1
            number = keys.get(argument)
            if number is None:
                number = keys[argument] = len(keys)
                data.append(argument)
            shape.append(number)
        elif len(argument) <= _LONGEST_WORD and argument in OPTIONS:
            shape.append(argument)
        else:
            shape.append(_TEXT)
            data.append(argument)
    return True


def _add_number(argument: Any, shape: list[Any], data: list[bytes]) -> bool:
    """Add a number or a time of the store; False: it is neither, or cannot be compiled."""
    kind = type(argument)
    if kind is int:
        if argument == 0:
            shape.append("0")
            return True
        shape.append(_POSITIVE if argument > 0 else _NEGATIVE)
        data.append(b"%d" % argument)
        return bool(-_LARGEST < argument < _LARGEST)
    if kind is StoreMs:
        shape.append(argument)
        return type(argument.plus) in _NUMBERS
    # Opposite infinities have no sum, and a step that may fail after the first write is not compiled.
    if kind is not float or not isfinite(argument):
        return False
    shape.append(_FLOAT)
    data.append(repr(argument).encode())
    return True


def _add_guard(step: Any, shape: list[Any], data: list[bytes]) -> TimedCommand | None:
    """Add a guard and its expected value to the shape, and return its command. None: it has no shape."""
    kind = type(step)
    if kind in _LIMITS:
        given, fixed = _LIMITS[kind]
        limit = step.limit
        if type(limit) is int and 0 <= limit < _LARGEST:
            shape.append(given)
            data.append(b"%d" % limit)
        elif type(limit) is float or (type(limit) is StoreMs and type(limit.plus) in _NUMBERS):
            shape += (fixed, limit)
        else:  # not a bool: True equals 1.0, so the two would share a shape
            return None
        command: TimedCommand = step.command
        return command
    if kind is Absent:
        shape.append(_ABSENT)
        return ("EXISTS", step.key)
    if kind is not Holds and kind is not FieldHolds:
        return None
    is_field, value = kind is FieldHolds, step.value
    if value is None:
        shape.append(_FIELD_IS_GONE if is_field else _IS_GONE)
    else:
        shape.append(_FIELD_HOLDS if is_field else _HOLDS)
        data.append(value if type(value) is bytes else _encode_value(value))
    return ("HGET", step.key, step.field) if is_field else ("GET", step.key)


def _encode_value(value: Argument) -> bytes:
    if type(value) is str:
        return value.encode()
    if type(value) is int:
        return b"%d" % value
    raise TypeError


class CompiledSteps:
    """Steps of one shape, compiled. Raises CommandError if an argument would have to be parsed, such as a bound.

    `given` fills each place of the shape with the number of an argument or with a constant. Without it, each place is
    an argument.

    straight    the script that was generated for them; None: they run in the general one, `atomic.lua`
    key_places  the arguments that are keys
    """

    def __init__(self, shape: Any, given: Sequence[int | bytes] | None = None) -> None:
        sample = _Sample(shape)
        script = Script(plan(sample.steps))
        self.reads_only = script.reads_only
        self.key_places = sample.key_places
        keys = [place if given is None else given[place] for place in sample.key_places]
        self._key_arguments = [one for one in keys if isinstance(one, int)]
        self._fixed_keys = frozenset(one for one in keys if isinstance(one, bytes))
        self.straight = straight(script.steps, script.keys)
        if self.straight is None:
            rest: Sequence[bytes] = script.rest
        else:
            rest = (b"%d" % len(script.keys), *script.keys, *self.straight.arguments)
        self._words = [_word(word, sample.places, given) for word in rest]
        self.text = SCRIPT if self.straight is None else self.straight.text
        self.digest = digest = DIGEST if self.straight is None else self.straight.digest
        self._format = b"".join([b"*%d\r\n" % (2 + len(rest)), *map(_format_word, (b"EVALSHA", digest, *self._words))])
        self._order = [word for word in self._words if type(word) is int]
        self._shapes = [
            (place, step.call, shape)
            for place, step in enumerate(script.steps)
            if (shape := _converter_of(step)) is not None
        ]

    def request(self, arguments: Sequence[bytes]) -> bytes:
        sized: list[int | bytes] = []
        for number in self._order:
            argument = arguments[number] if number >= 0 else arguments[~number] + b".0"
            sized += (len(argument), argument)
        return self._format % tuple(sized)

    def fits(self, arguments: Sequence[bytes]) -> bool:
        """Whether all keys differ: two equal ones would have another shape."""
        keys = {arguments[place] for place in self._key_arguments}
        return len(keys) == len(self._key_arguments) and self._fixed_keys.isdisjoint(keys)

    def rest(self, arguments: Sequence[bytes]) -> tuple[bytes, ...]:
        """The number of keys, the keys and the arguments of the script."""
        return tuple(
            word if isinstance(word, bytes) else arguments[word] if word >= 0 else arguments[~word] + b".0"
            for word in self._words
        )

    def outcome(self, reply: Any) -> Outcome | None:
        """The outcome of the steps. None: nothing ran yet, or a step failed; `CompiledScript` finds out which."""
        if type(reply) is not list:
            return None
        stopped, replies = reply
        if not stopped:
            for place, call, shape in self._shapes:
                replies[place] = shape(call, replies[place])
            return Outcome(replies)
        if type(replies[-1]) is ReplyError:
            return None
        for place, call, shape in self._shapes:
            if place < len(replies):
                replies[place] = shape(call, replies[place])
        return Outcome(replies, stopped - 1)


def _word(word: bytes, places: Mapping[bytes, int], given: Sequence[int | bytes] | None) -> int | bytes:
    """A constant, or the number of an argument; ~number: that argument, written as a float."""
    place = places.get(word)
    if place is None:
        return word
    at = place if place >= 0 else ~place
    found = at if given is None else given[at]
    if isinstance(found, bytes):
        return found if place >= 0 else found + b".0"
    return found if place >= 0 else ~found


def _format_word(word: int | bytes) -> bytes:
    if isinstance(word, int):
        return b"$%d\r\n%b\r\n"
    return b"$%d\r\n%b\r\n" % (len(word), word.replace(b"%", b"%%"))


def compile_steps(
    make: Callable[..., Sequence[Step]], arguments: int, numbers: Collection[int] = ()
) -> CompiledSteps | None:
    """The steps that `make` returns for this many arguments, compiled. None: `make` changes an argument."""
    given = [_LARGE + n if n in numbers else b"\x00keystead argument %d\x00" % n for n in range(arguments)]
    marks = [b"%d" % one if isinstance(one, int) else one for one in given]
    found = shape_of(make(*given))
    if found is None or any(b"\x00keystead argument" in one for one in found[1] if one not in marks):
        return None
    try:
        return CompiledSteps(found[0], [marks.index(one) if one in marks else one for one in found[1]])
    except CommandError:
        return None


_SMALL, _LARGE = 90_000_000_000, 90_000_000_000_000


class _Sample:
    """Steps of a shape, with a unique value in place of each argument.

    places   the number of the argument that each value stands for; ~number: the argument written as a float, for the
             limit of a guard
    """

    def __init__(self, shape: Sequence[Any]) -> None:
        self.places: dict[bytes, int] = {}
        self.steps: list[Step] = []
        self._keys: list[bytes] = []
        begins = [at for at, part in enumerate(shape) if type(part) is _Mark]
        for begin, end in zip(begins, [*begins[1:], len(shape)], strict=True):
            self.steps.append(self._step(shape[begin], shape[begin + 1 : end]))

    def _step(self, mark: _Mark, parts: Sequence[Any]) -> Step:
        for guard, (given, fixed) in _LIMITS.items():
            if mark is given:
                limit = self._number(_SMALL)
                self.places[repr(float(limit)).encode()] = ~self.places[b"%d" % limit]
                return guard(self._command(parts), limit)
            if mark is fixed:
                return guard(self._command(parts[1:]), parts[0])
        expected = self._text() if mark is _HOLDS or mark is _FIELD_HOLDS else None
        command: Any = self._command(parts)
        if mark is _PLAIN:
            return command  # type: ignore[no-any-return]
        if mark is _REQUIRED:
            return Required(command)
        if mark is _ABSENT:
            return Absent(command[1])
        if mark is _HOLDS or mark is _IS_GONE:
            return Holds(command[1], expected)
        return FieldHolds(command[1], command[2], expected)

    def _command(self, parts: Sequence[Any]) -> TimedCommand:
        # As large as valid lifetimes in ms, and too large for one in seconds; increments of counters are small.
        size = _SMALL if parts[0] in COUNTERS else _LARGE
        return tuple(self._part(part, size) for part in parts)

    def _part(self, part: Any, size: int) -> Any:
        if type(part) is not int:
            return part
        if part == _TEXT:
            return self._text()
        if part == _FLOAT:
            number = 900_000_000_000.5 + len(self.places)
            self.places[repr(number).encode()] = self._next
            return number
        if part < 0:
            return self._number(size if part == _POSITIVE else -size)
        if part == len(self._keys):
            self._keys.append(self._text())
        return self._keys[part]

    @property
    def key_places(self) -> list[int]:
        return [self.places[key] for key in self._keys]

    @property
    def _next(self) -> int:
        """The place of the next argument."""
        return sum(place >= 0 for place in self.places.values())

    def _text(self) -> bytes:
        text = b"\x00keystead place %d\x00" % len(self.places)
        self.places[text] = self._next
        return text

    def _number(self, near: int) -> int:
        number = near + len(self.places)
        self.places[b"%d" % number] = self._next
        return number


class CompiledCache:
    """The compiled steps of a store, by their shape."""

    def __init__(self) -> None:
        self._known: dict[Hashable, CompiledSteps | None] = {}
        self._seen_once: set[Hashable] = set()

    def get(self, shape: Hashable) -> CompiledSteps | None:
        """None: the shape is new, or cannot be compiled."""
        try:
            return self._known[shape]
        except KeyError:
            pass
        if shape not in self._seen_once or len(self._known) >= _MOST:
            if len(self._seen_once) >= _MOST:  # most of these never occur again
                self._seen_once.clear()
            self._seen_once.add(shape)
            return None
        self._seen_once.remove(shape)
        try:
            compiled: CompiledSteps | None = CompiledSteps(shape)
        except CommandError:  # text where a number is needed
            compiled = None
        self._known[shape] = compiled
        return compiled


class CompiledScript:
    """Compiled steps with their arguments, for `run_script`: only for errors and retries. Most calls never make one."""

    def __init__(self, compiled: CompiledSteps, steps: Sequence[Step], arguments: Sequence[bytes]) -> None:
        self.text, self.digest, self.rest = compiled.text, compiled.digest, compiled.rest(arguments)
        self._is_general = compiled.straight is None
        self._own = Script(plan(steps))
        self.error_call = self._own.error_call
        self.reads_only = self._own.reads_only

    @property
    def otherwise(self) -> Script | None:
        """The general script, for cases that the generated one leaves to it."""
        return None if self._is_general else self._own

    def failure(self, reply: Any) -> ReplyError | None:
        return self._own.failure(reply)

    def outcome(self, reply: list[Any], address: object) -> Outcome:
        return self._own.outcome(reply, address)


def _converter_of(step: Planned) -> Callable[[Call, Any], Reply] | None:
    """The function that converts the reply of a step, if it needs one."""
    name, options = step.call.spec.name, step.call.options
    if (
        step.guard
        or (name == "ZADD" and b"INCR" not in options.flags)
        or (name == "ZRANGE" and not options.with_scores)
    ):
        return None
    return _int if name in COUNTERS else SHAPES.get(name)


def _int(call: Call, reply: int | bytes) -> int:
    return int(reply)  # large numbers arrive as text
