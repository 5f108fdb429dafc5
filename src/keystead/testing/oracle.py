"""Reference replies: from a real server, without a store in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from keystead.errors import (
    BadArgument,
    BadLifetime,
    BadOption,
    CommandError,
    NotANumber,
    UnknownCommand,
    WrongArity,
    WrongKind,
)
from keystead.stores import (
    Absent,
    AtMost,
    Command,
    FieldHolds,
    Holds,
    MoreThan,
    Outcome,
    Required,
    Step,
    Still,
    StoreMs,
    TimedCommand,
)
from keystead.testing.resp_client import Wire, WireError

# Error messages of the server, and the corresponding errors of Keystead. The first match counts.
ERRORS_BY_MESSAGE: tuple[tuple[str, type[CommandError]], ...] = (
    ("WRONGTYPE", WrongKind),
    ("unknown command", UnknownCommand),
    ("wrong number of arguments", WrongArity),
    ("invalid expire time", BadLifetime),
    ("syntax error", BadOption),
    ("not compatible", BadOption),
    ("single increment-element", BadOption),
    ("not an integer", NotANumber),
    ("not a valid float", NotANumber),
    ("not a float", NotANumber),
    ("not a number", NotANumber),
    ("increment would produce", NotANumber),
    ("can't be zero", BadOption),
    ("can't be negative", BadOption),
    ("should be greater than", BadOption),
    ("greater than number of args", BadOption),
    ("offset is out of range", BadArgument),
    ("objects are the same", BadArgument),
    ("would overflow", NotANumber),
    ("out of range, must be", NotANumber),
    ("no such key", BadArgument),
    ("index out of range", BadArgument),
    ("stream ID", BadArgument),
    ("ID specified in XADD", BadArgument),
)


class Oracle:
    """Runs commands on a separate server. Its time can be advanced."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def now_ms(self) -> int:
        seconds, micros = self._wire.call("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    def run(self, commands: Sequence[Command]) -> list[Any]:
        """One reply per command, with a CommandError in place of each failure."""
        return [_parse_reply(reply) for reply in self._wire.replies(commands)]

    def atomically(self, steps: Sequence[Step]) -> Outcome | CommandError:
        """A naive `atomically`: copy everything first, and restore it if a step stops the batch."""
        before = self._copy()
        replies: list[Any] = []
        for place, step in enumerate(steps):
            reply = self._step(step)
            if isinstance(reply, CommandError):
                self._restore(before)
                return reply
            replies.append(reply)
            is_guard = not isinstance(step, Sequence)
            if is_guard and (reply is None or (type(reply) is int and reply == 0)):
                self._restore(before)
                return Outcome(replies, stopped_at=place)
        return Outcome(replies)

    def advance(self, ms: int) -> None:
        """Time travel: every deadline moves this much nearer, and keys past theirs are gone."""
        keys = self.keys()
        deadlines = self._wire.replies([("PEXPIRETIME", key) for key in keys])
        self._wire.replies(
            [("PEXPIREAT", key, deadline - ms) for key, deadline in zip(keys, deadlines, strict=True) if deadline > 0]
        )

    def keys(self, *options: str | bytes | int) -> list[bytes]:
        """Every key found by SCAN with these options."""
        found: list[bytes] = []
        cursor = b"0"
        while True:
            cursor, page = self._wire.call("SCAN", cursor, *options)
            found += page
            if cursor == b"0":
                return found

    def empty(self) -> None:
        self._wire.call("FLUSHALL")

    def _step(self, step: Step) -> Any:
        match step:
            case Required(command):
                return self.run([self._resolve_times(command)])[0]
            case Holds(key, expected):
                return self._guard(("GET", key), expected)
            case FieldHolds(key, name, expected):
                return self._guard(("HGET", key, name), expected)
            case Absent(key):
                return self._guard(("EXISTS", key), 0)
            case MoreThan(command, limit):
                return self._negate(self._step(AtMost(command, limit)))
            case AtMost(command, limit):
                limit = limit.at(self.now_ms()) if isinstance(limit, StoreMs) else limit
                return self._at_most(self._resolve_times(command), limit)
            case Still(command, reply):
                return self._guard(self._resolve_times(command), reply)
            case _:
                return self.run([self._resolve_times(step)])[0]

    def _resolve_times(self, command: TimedCommand) -> Command:
        return [part.at(self.now_ms()) if isinstance(part, StoreMs) else part for part in command]

    def _guard(self, command: Command, expected: object) -> Any:
        reply = self.run([command])[0]
        return reply if isinstance(reply, CommandError) else int(reply == expected)

    def _at_most(self, command: Command, limit: int | float) -> Any:
        reply = self.run([command])[0]
        if isinstance(reply, bytes):
            reply = self._parse_number(reply)
        return reply if isinstance(reply, CommandError) else int((0 if reply is None else reply) <= limit)

    def _negate(self, reply: Any) -> Any:
        return 1 - reply if type(reply) is int else reply

    def _parse_number(self, text: bytes) -> Any:
        """The number that the server reads in this text: as a counter, or else as a score."""
        name = b"keystead:oracle:number"
        self._wire.call("SET", name, text)
        whole, _, scored, score, _ = self._wire.replies(
            [("INCRBY", name, 0), ("DEL", name), ("ZADD", name, text, "m"), ("ZSCORE", name, "m"), ("DEL", name)]
        )
        if not isinstance(whole, WireError):
            return whole
        return error_for(str(scored)) if isinstance(scored, WireError) else score

    def _copy(self) -> list[tuple[bytes, bytes, int]]:
        keys = self.keys()
        dumps = self._wire.replies([("DUMP", key) for key in keys])
        deadlines = self._wire.replies([("PEXPIRETIME", key) for key in keys])
        return list(zip(keys, dumps, deadlines, strict=True))

    def _restore(self, copy: list[tuple[bytes, bytes, int]]) -> None:
        self.empty()
        for key, dump, deadline in copy:
            self._wire.call("RESTORE", key, max(deadline, 0), dump, "ABSTTL")


def error_for(words: str) -> CommandError:
    """Keystead's error for an error message of the server. Raises LookupError if the table lacks it."""
    for known, error in ERRORS_BY_MESSAGE:
        if known in words:
            return error(words)
    raise LookupError(f"add this message to ERRORS_BY_MESSAGE: {words}")


def _parse_reply(reply: Any) -> Any:
    return error_for(str(reply)) if isinstance(reply, WireError) else reply
