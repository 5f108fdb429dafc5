"""`atomically` on Redis: one script for every use, with every key declared."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from keystead.stores.commands import INT64_MAX, INT64_MIN, Call, StoreMs, encode
from keystead.stores.redis.reply_errors import ReplyError
from keystead.stores.redis.reply_shapes import SHAPES, error_of, is_transient
from keystead.stores.store_contract import MoreThan, Outcome, Planned

SCRIPT = files(__package__).joinpath("atomic.lua").read_bytes()
DIGEST = hashlib.sha1(SCRIPT, usedforsecurity=False).hexdigest().encode()  # the name of a script in Redis

COUNTERS = frozenset({"INCRBY", "DECRBY", "HINCRBY"})
# Commands that may reply nil or 0 although they wrote.
SILENT_WRITERS = COUNTERS | {"SET", "HSET", "ZADD"}


class Script:
    """The steps as a request to the script. `keys`: all keys of the steps, without duplicates."""

    otherwise = None  # this script is the most general one
    text, digest = SCRIPT, DIGEST

    def __init__(self, steps: list[Planned]) -> None:
        self.steps = steps
        self.keys = list(dict.fromkeys(key for step in steps for key in step.call.keys))
        self.reads_only = not any(step.call.spec.writes for step in steps)
        arguments: list[bytes] = [b"%d" % last_that_may_stop(steps)]
        for step in steps:
            arguments += _pack_step(step)
        self.rest = (b"%d" % len(self.keys), *self.keys, *arguments)

    @property
    def error_call(self) -> Call:
        return self.steps[0].call

    def failure(self, reply: Any) -> ReplyError | None:
        """The transient error of a step, after which the script may be retried.

        A server that has become a replica reports that at the first step that writes, from within the script.
        """
        if isinstance(reply, list) and reply[0] and is_transient(reply[1][-1]):
            failed: ReplyError = reply[1][-1]
            return failed
        return None

    def outcome(self, reply: list[Any], address: object) -> Outcome:
        """The reply of the script as an Outcome. Raises the error of the step that failed."""
        stopped, replies = reply
        if stopped and isinstance(replies[-1], ReplyError):
            raise error_of(self.steps[stopped - 1].call, replies[-1], address)
        shaped = []
        for step, raw in zip(self.steps, replies, strict=False):
            if step.call.spec.name in COUNTERS:
                shaped.append(int(raw))  # large numbers arrive as text
                continue
            shape = None if step.guard else SHAPES.get(step.call.spec.name)
            shaped.append(raw if shape is None else shape(step.call, raw))
        return Outcome(shaped, stopped_at=stopped - 1 if stopped else None)


def _pack_step(step: Planned) -> list[bytes]:
    call = step.call
    flags, extra = _guard_flags(step) if step.guard else (_command_flags(step), [])
    # Lua counts from 1, and the command is the first.
    times = [(place + 2, moment.plus) for place, moment in step.times]
    limit = None if step.at_most is None else step.at_most.limit
    if isinstance(limit, StoreMs):
        place = len(call.args) + 2
        times += [(place, math.floor(limit.plus)), (place + 1, limit.plus)]
    arguments = [call.spec.name.encode(), *call.args, *extra]
    if times:
        flags += b"t"
        arguments += [encode(number) for time in times for number in time]
        arguments.append(b"%d" % len(times))
    return [flags, kind_of(call).encode(), b"%d" % len(call.keys), b"%d" % len(arguments), *arguments]


def _guard_flags(step: Planned) -> tuple[bytes, list[bytes]]:
    """How the script compares the reply, and what with."""
    if step.still is not None:
        return b"d", [_digest(step.call, step.still.reply)]
    if step.at_most is not None:
        limit = step.at_most.limit
        flags = b">" if isinstance(step.at_most, MoreThan) else b"<"
        return flags, limits_of(0 if isinstance(limit, StoreMs) else limit)
    if isinstance(step.expected, bytes):
        return b"=", [step.expected]
    return (b"~" if step.expected is None else b"0"), []


def _command_flags(step: Planned) -> bytes:
    name = step.call.spec.name
    if name == "PUBLISH":
        return b"p"
    flags = (b"w" if step.call.spec.writes else b"") + (b"!" if step.required else b"")
    if step.required and name in SILENT_WRITERS and not is_only_if(step.call):
        flags += b"k"
    return flags + b"#" if name in COUNTERS else flags


def _digest(call: Call, reply: Any) -> bytes:
    """The digest that the script computes of the same reply: SHA-1, built into Redis, over its parts with lengths.

    Members and fields have no stable order, so their own digests are sorted.
    """
    match reply:
        case dict():
            text = b"".join(sorted(_sha1(_text(name) + _text(value)) for name, value in reply.items()))
        case set() | frozenset():
            text = b"".join(sorted(_sha1(_text(member)) for member in reply))
        case _ if call.spec.name == "ZRANGE" and call.options.with_scores:
            text = _text([part for member, score in reply for part in (member, b"%.17g" % (score + 0.0))])
        case _:
            text = _text(reply)
    return _sha1(text)


def _text(part: Any) -> bytes:
    if part is None:
        return b"-"
    if isinstance(part, list | tuple):
        return b"*%d:%b" % (len(part), b"".join(map(_text, part)))
    given = encode(part)
    return b"$%d:%b" % (len(given), given)


def _sha1(text: bytes) -> bytes:
    return hashlib.sha1(text, usedforsecurity=False).hexdigest().encode()


def limits_of(limit: int | float) -> list[bytes]:
    """The largest 64-bit integer and the largest float within a limit: Lua compares them without rounding.

    If there is no such integer, it is INT64_MIN - 1.
    """
    whole = math.floor(max(INT64_MIN - 1, min(INT64_MAX, limit)))
    near = float(limit)
    return [b"%d" % whole, repr(math.nextafter(near, -math.inf) if near > limit else near).encode()]


def is_only_if(call: Call) -> bool:
    """Whether this is a SET whose nil reply means that it did not write: NX or XX, without GET."""
    return call.spec.name == "SET" and bool(call.options.only_if) and not call.options.get


def kind_of(call: Call) -> str:
    """The only kind of key that this command takes; empty if it takes any."""
    if call.spec.name == "SET":
        return "string" if call.options.get else ""
    return call.spec.kind or ""


def last_that_may_stop(steps: Sequence[Planned]) -> int:
    """The last step, counted from 1, that may stop or fail in a way that the script cannot foresee."""
    last = 0
    kinds: dict[bytes, str] = {}
    written: set[bytes] = set()
    appended: dict[bytes, tuple[int, int]] = {}  # the last id of each stream, if an earlier step set it
    for place, step in enumerate(steps, 1):
        call = step.call
        name, kind = call.spec.name, "string" if call.spec.name == "SET" else call.spec.kind
        mixed = kind is not None and any(kinds.setdefault(key, kind) != kind for key in call.keys)
        if (
            step.required
            or step.guard
            or mixed
            or name == "LSET"
            or (name in COUNTERS and call.args[0] in written)
            or (name == "XADD" and call.options.entry_id != (None, None) and not _follows(call, appended))
            # Only opposite infinities have no sum, so a finite number can be added to any score.
            or (name == "ZADD" and b"INCR" in call.options.flags and math.isinf(call.options.pairs[0][1]))
        ):
            last = place
        if call.spec.writes and name not in COUNTERS:
            written.update(call.keys)
        if name == "XADD" and None not in call.options.entry_id:
            appended[call.keys[0]] = call.options.entry_id
        else:
            for key in call.keys:
                appended.pop(key, None)
    return last


def _follows(call: Call, appended: Mapping[bytes, tuple[int, int]]) -> bool:
    """Whether the entry is certain to be accepted: an earlier step has appended a lower id to the same stream."""
    before, own = appended.get(call.keys[0]), call.options.entry_id
    return before is not None and None not in own and before < own
