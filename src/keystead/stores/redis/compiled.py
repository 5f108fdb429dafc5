"""Atomic steps that are run again and again: what does not change from one time to the next is packed ahead.

Steps have a shape: commands, options, guards, and which keys are the same. Keys, values and numbers are what is
different each time. So the first time that a shape comes again, its script is made (see `straight`) and its request is
packed up to the places where the others go in. Whoever calls `atomically` need not know of this.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, Final

from keystead.errors import CommandError
from keystead.stores.base import Absent, AtMost, FieldHolds, Holds, Outcome, Planned, Required, Step, plan
from keystead.stores.commands import TABLE, Argument, Call, Reply, StoreMs, TimedCommand
from keystead.stores.redis.atomic import COUNTERS, DIGEST, Script
from keystead.stores.redis.connection import Connection, ReplyError, pack_command
from keystead.stores.redis.replies import SHAPES
from keystead.stores.redis.settings import Address
from keystead.stores.redis.straight import OPTIONS, straight

_LONGEST: Final = 80  # parts of a shape; longer ones are rarely the same
_MOST: Final = 256  # forms: a server keeps the script of each

# In a shape, a number is a key: the first one that is named is 0. Text is an option, or a number that never changes.
_TEXT, _POSITIVE, _NEGATIVE, _FLOAT = range(-4, 0)
_LARGEST: Final = 10**14  # smaller numbers are valid wherever a number is; steps with larger ones are read each time

_WORDS: Final = OPTIONS | {word.decode() for word in OPTIONS}
_LONGEST_WORD: Final = max(map(len, OPTIONS))


class _Mark(str):
    """What begins a step in a shape."""

    __slots__ = ()


_PLAIN, _REQUIRED, _HOLDS, _IS_GONE, _AT_MOST, _AT_MOST_FIXED = map(
    _Mark, ("plain", "required", "holds", "is gone", "at most", "at most the same")
)
_FIELD_HOLDS, _FIELD_IS_GONE, _ABSENT = map(_Mark, ("field holds", "field is gone", "absent"))


def shape_of(steps: Sequence[Step]) -> tuple[Hashable, list[bytes]] | None:
    """The shape of these steps, and all that is not in it, in order. None: they have none, or are wrong."""
    shape: list[Any] = []
    data: list[bytes] = []
    keys: dict[bytes, int] = {}
    try:
        for step in steps:
            command: Any = step
            kind: Any = type(command)
            if kind is tuple or kind is list or kind is Call:
                shape.append(_PLAIN)
            elif isinstance(step, Required):
                shape.append(_REQUIRED)
                command = step.command
            else:
                command = _guarded(step, shape, data)
                if command is None:
                    return None
            if type(command) is Call:
                name, arguments = command.spec.name, command.args
            else:
                name, arguments = command[0], command[1:]
            argument: Any
            names_left = TABLE[name].keys
            shape.append(name)
            for argument in arguments:
                kind = type(argument)
                if kind is str:
                    if not names_left and argument in _WORDS:
                        shape.append(argument)
                        continue
                    argument = argument.encode()
                elif kind is int and not names_left:
                    if argument == 0:
                        shape.append("0")
                    elif not -_LARGEST < argument < _LARGEST:
                        return None
                    else:
                        shape.append(_POSITIVE if argument > 0 else _NEGATIVE)
                        data.append(b"%d" % argument)
                    continue
                elif kind is not bytes:
                    if kind is StoreMs:
                        shape.append(argument)
                    elif kind is float and not names_left:
                        shape.append(_FLOAT)
                        data.append(repr(argument).encode())
                    else:
                        return None
                    continue
                if names_left:
                    names_left -= 1
                    number = keys.get(argument)
                    if number is None:
                        number = keys[argument] = len(keys)
                        data.append(argument)
                    shape.append(number)
                elif len(argument) <= _LONGEST_WORD and argument in _WORDS:
                    shape.append(argument)
                else:
                    shape.append(_TEXT)
                    data.append(argument)
    except (KeyError, TypeError, IndexError, AttributeError, UnicodeEncodeError):
        return None  # it says what is wrong when it is read
    return (tuple(shape), data) if len(shape) <= _LONGEST else None


def _guarded(step: Any, shape: list[Any], data: list[bytes]) -> TimedCommand | None:
    """The command of a guard; what it expects is noted."""
    kind = type(step)
    if kind is AtMost:
        limit = step.limit
        if type(limit) is int and 0 <= limit < _LARGEST:
            shape.append(_AT_MOST)
            data.append(b"%d" % limit)
        else:
            shape += (_AT_MOST_FIXED, limit)
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
        data.append(value if type(value) is bytes else _plain(value))
    return ("HGET", step.key, step.field) if is_field else ("GET", step.key)


def _plain(value: Argument) -> bytes:
    if type(value) is str:
        return value.encode()
    if type(value) is int:
        return b"%d" % value
    raise TypeError


class Form:
    """Everything about steps of one shape but what is different each time. Raises CommandError where that is too much.

    `given` says what stands in the places of the shape: the number of an argument, or what is always there. Without it,
    every place is an argument.

    straight   the script of its own, where it has one; otherwise it is run by the script for all
    told       the connection by which the server was told the script of its own
    """

    def __init__(self, shape: Any, given: Sequence[int | bytes] | None = None) -> None:
        sample = _Sample(shape)
        script = Script(plan(sample.steps))
        self.told: Connection | None = None
        self.straight = straight(script.steps, script.keys)
        if self.straight is None:
            rest: Sequence[bytes] = script.rest
        else:
            rest = (b"%d" % len(script.keys), *script.keys, *self.straight.arguments)
        self._words = [_word(word, sample.places, given) for word in rest]
        digest = DIGEST if self.straight is None else self.straight.digest
        self._format = b"".join([b"*%d\r\n" % (2 + len(rest)), *map(_packed_ahead, (b"EVALSHA", digest, *self._words))])
        self._order = [word for word in self._words if type(word) is int]
        self._shapes = [
            (place, step.call, shape)
            for place, step in enumerate(script.steps)
            if (shape := _shape_of(step)) is not None
        ]

    def packed(self, arguments: Sequence[bytes]) -> bytes:
        sized: list[int | bytes] = []
        for number in self._order:
            argument = arguments[number] if number >= 0 else arguments[~number] + b".0"
            sized += (len(argument), argument)
        return self._format % tuple(sized)

    def sent_by(self, connection: Connection, arguments: Sequence[bytes]) -> bytes:
        """What is sent: with the text of the script where the server may not know it yet.

        Whoever is told that it does not would have to send it again, after what others have sent meanwhile.
        """
        if self.straight is None or self.told is connection:
            return self.packed(arguments)
        self.told = connection
        return self.with_text(self.straight.text, arguments)

    def with_text(self, text: bytes, arguments: Sequence[bytes]) -> bytes:
        words = [
            word if isinstance(word, bytes) else arguments[word] if word >= 0 else arguments[~word] + b".0"
            for word in self._words
        ]
        return pack_command((b"EVAL", text, *words))

    def outcome(self, reply: Any) -> Outcome | None:
        """What the steps did; None where they did nothing yet, or one of them failed: then `Filled` knows more."""
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
    """What stands there: always the same, or the number of an argument; ~number: that argument, written as a float."""
    place = places.get(word)
    if place is None:
        return word
    at = place if place >= 0 else ~place
    found = at if given is None else given[at]
    if isinstance(found, bytes):
        return found if place >= 0 else found + b".0"
    return found if place >= 0 else ~found


def _packed_ahead(word: int | bytes) -> bytes:
    if isinstance(word, int):
        return b"$%d\r\n%b\r\n"
    return b"$%d\r\n%b\r\n" % (len(word), word.replace(b"%", b"%%"))


def prepared(make: Callable[..., Sequence[Step]], arguments: int) -> Form | None:
    """The form of what `make` makes of so many arguments; None where they do not stand there as they are."""
    marks = [b"\x00keystead argument %d\x00" % number for number in range(arguments)]
    found = shape_of(make(*marks))
    if found is None or any(b"\x00keystead argument" in one for one in found[1] if one not in marks):
        return None
    try:
        return Form(found[0], [marks.index(one) if one in marks else one for one in found[1]])
    except CommandError:
        return None


class _Sample:
    """Steps of a shape, with something unmistakable wherever it may be different.

    places   where each of these stands among what is different; ~place: the same as a float, for the limit of a guard
    """

    def __init__(self, shape: Sequence[Any]) -> None:
        self.places: dict[bytes, int] = {}
        self.steps: list[Step] = []
        self._keys: list[bytes] = []
        begins = [at for at, part in enumerate(shape) if type(part) is _Mark]
        for begin, end in zip(begins, [*begins[1:], len(shape)], strict=True):
            self.steps.append(self._step(shape[begin], shape[begin + 1 : end]))

    def _step(self, mark: _Mark, parts: Sequence[Any]) -> Step:
        if mark is _AT_MOST:
            limit = self._number(1)
            self.places[repr(float(limit)).encode()] = ~self.places[b"%d" % limit]
            return AtMost(self._command(parts), limit)
        if mark is _AT_MOST_FIXED:
            return AtMost(self._command(parts[1:]), parts[0])
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
        return tuple(self._part(part) for part in parts)

    def _part(self, part: Any) -> Any:
        if type(part) is not int:
            return part
        if part == _TEXT:
            return self._text()
        if part == _FLOAT:
            number = 900_000_000_000.5 + len(self.places)
            self.places[repr(number).encode()] = self._next
            return number
        if part < 0:
            return self._number(1 if part == _POSITIVE else -1)
        if part == len(self._keys):
            self._keys.append(self._text())
        return self._keys[part]

    @property
    def _next(self) -> int:
        """The place of what comes next."""
        return sum(place >= 0 for place in self.places.values())

    def _text(self) -> bytes:
        text = b"\x00keystead place %d\x00" % len(self.places)
        self.places[text] = self._next
        return text

    def _number(self, sign: int) -> int:
        number = sign * (90_000_000_000 + len(self.places))
        self.places[b"%d" % number] = self._next
        return number


class Forms:
    """The forms of the shapes that have come again."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Form | None] = {}
        self._seen: set[Hashable] = set()  # once

    def of(self, shape: Hashable) -> Form | None:
        try:
            return self._known[shape]
        except KeyError:
            pass
        if shape not in self._seen or len(self._known) >= _MOST:
            if len(self._seen) >= _MOST:  # most of them never come again
                self._seen.clear()
            self._seen.add(shape)
            return None
        self._seen.remove(shape)
        try:
            form = Form(shape)
        except CommandError:  # where a number or a name is expected, there is text
            form = None
        self._known[shape] = form
        return form


class Filled:
    """A form with its arguments: a script. It is made only where the usual way led to no outcome."""

    def __init__(self, form: Form, steps: Sequence[Step], arguments: Sequence[bytes]) -> None:
        self._form = form
        self._arguments = arguments
        self._own = Script(plan(steps))
        self.blamed = self._own.blamed
        self.reads_only = self._own.reads_only

    @property
    def otherwise(self) -> Script | None:
        """What does all that its own script leaves undone, an error or nil in its place."""
        return None if self._form.straight is None else self._own

    @property
    def by_digest(self) -> bytes:
        return self._form.packed(self._arguments)

    @property
    def by_text(self) -> bytes:
        if self._form.straight is None:
            return self._own.by_text
        return self._form.with_text(self._form.straight.text, self._arguments)

    def failure(self, reply: Any) -> ReplyError | None:
        return self._own.failure(reply)

    def outcome(self, reply: list[Any], address: Address) -> Outcome:
        return self._own.outcome(reply, address)


def _shape_of(step: Planned) -> Callable[[Call, Any], Reply] | None:
    """What has to be done with the reply of a step, if anything."""
    name, options = step.call.spec.name, step.call.options
    if (
        step.guard
        or (name == "ZADD" and b"INCR" not in options.flags)
        or (name == "ZRANGE" and not options.with_scores)
    ):
        return None
    return _int if name in COUNTERS else SHAPES.get(name)


def _int(call: Call, reply: int | bytes) -> int:
    return int(reply)  # large ones come as text
