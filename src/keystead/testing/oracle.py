"""What is right: a real server, asked without any of our stores in between."""

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

# What the server says, in its own words, and what Keystead calls that. The first that fits counts.
SAYINGS: tuple[tuple[str, type[CommandError]], ...] = (
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
    ("would overflow", NotANumber),
    ("out of range, must be", NotANumber),
    ("no such key", BadArgument),
    ("index out of range", BadArgument),
    ("stream ID", BadArgument),
    ("ID specified in XADD", BadArgument),
)


class Oracle:
    """Runs commands on a server that nobody else uses. Time on it can be moved forward."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def now_ms(self) -> int:
        seconds, micros = self._wire.call("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    def run(self, commands: Sequence[Command]) -> list[Any]:
        """One reply a command, a CommandError in the place of each that failed."""
        return [_read(reply) for reply in self._wire.replies(commands)]

    def atomically(self, steps: Sequence[Step]) -> Outcome | CommandError:
        """What a store's `atomically` has to do, in the plainest way: copy everything first, put it back on a stop."""
        before = self._copy()
        replies: list[Any] = []
        for place, step in enumerate(steps):
            reply = self._step(step)
            if isinstance(reply, CommandError):
                self._put_back(before)
                return reply
            replies.append(reply)
            is_guard = not isinstance(step, Sequence)
            if is_guard and (reply is None or (type(reply) is int and reply == 0)):
                self._put_back(before)
                return Outcome(replies, stopped_at=place)
        return Outcome(replies)

    def advance(self, ms: int) -> None:
        """Time travel: every deadline comes nearer by this much, and what passes it is gone."""
        keys = self.keys()
        deadlines = self._wire.replies([("PEXPIRETIME", key) for key in keys])
        self._wire.replies(
            [("PEXPIREAT", key, deadline - ms) for key, deadline in zip(keys, deadlines, strict=True) if deadline > 0]
        )

    def keys(self, *options: str | bytes | int) -> list[bytes]:
        """Every key that a walk with these options of SCAN finds."""
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
                return self.run([self._timed(command)])[0]
            case Holds(key, expected):
                return self._guard(("GET", key), expected)
            case FieldHolds(key, name, expected):
                return self._guard(("HGET", key, name), expected)
            case Absent(key):
                return self._guard(("EXISTS", key), 0)
            case MoreThan(command, limit):
                return self._opposite(self._step(AtMost(command, limit)))
            case AtMost(command, limit):
                limit = limit.at(self.now_ms()) if isinstance(limit, StoreMs) else limit
                return self._at_most(self._timed(command), limit)
            case Still(command, reply):
                return self._guard(self._timed(command), reply)
            case _:
                return self.run([self._timed(step)])[0]

    def _timed(self, command: TimedCommand) -> Command:
        return [part.at(self.now_ms()) if isinstance(part, StoreMs) else part for part in command]

    def _guard(self, command: Command, expected: object) -> Any:
        reply = self.run([command])[0]
        return reply if isinstance(reply, CommandError) else int(reply == expected)

    def _at_most(self, command: Command, limit: int | float) -> Any:
        reply = self.run([command])[0]
        if isinstance(reply, bytes):
            reply = self._number(reply)
        return reply if isinstance(reply, CommandError) else int((0 if reply is None else reply) <= limit)

    def _opposite(self, reply: Any) -> Any:
        return 1 - reply if type(reply) is int else reply

    def _number(self, text: bytes) -> Any:
        """The number that the server reads in this text: one that can be added to, or else one that can be a score."""
        name = b"keystead:oracle:number"
        self._wire.call("SET", name, text)
        whole, _, scored, score, _ = self._wire.replies(
            [("INCRBY", name, 0), ("DEL", name), ("ZADD", name, text, "m"), ("ZSCORE", name, "m"), ("DEL", name)]
        )
        if not isinstance(whole, WireError):
            return whole
        return named(str(scored)) if isinstance(scored, WireError) else score

    def _copy(self) -> list[tuple[bytes, bytes, int]]:
        keys = self.keys()
        dumps = self._wire.replies([("DUMP", key) for key in keys])
        deadlines = self._wire.replies([("PEXPIRETIME", key) for key in keys])
        return list(zip(keys, dumps, deadlines, strict=True))

    def _put_back(self, copy: list[tuple[bytes, bytes, int]]) -> None:
        self.empty()
        for key, dump, deadline in copy:
            self._wire.call("RESTORE", key, max(deadline, 0), dump, "ABSTTL")


def named(words: str) -> CommandError:
    """The error that Keystead has for what a server says. A saying that is not known is a fault of this table."""
    for saying, error in SAYINGS:
        if saying in words:
            return error(words)
    raise LookupError(f"add to SAYINGS what Keystead calls this: {words}")


def _read(reply: Any) -> Any:
    return named(str(reply)) if isinstance(reply, WireError) else reply
