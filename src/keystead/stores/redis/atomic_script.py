"""`atomically` on Redis: one script for every use, with every key declared."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from keystead.stores.commands import INT64_MAX, INT64_MIN, Call, StoreMs, encode
from keystead.stores.redis.redis_connection import ReplyError, pack_command
from keystead.stores.redis.redis_settings import RedisAddress
from keystead.stores.redis.reply_shapes import SHAPES, error_of, is_transient
from keystead.stores.store_contract import MoreThan, Outcome, Planned

SCRIPT = files(__package__).joinpath("atomic.lua").read_bytes()
DIGEST = hashlib.sha1(SCRIPT, usedforsecurity=False).hexdigest().encode()  # what Redis names scripts by

COUNTERS = frozenset({"INCRBY", "DECRBY", "HINCRBY"})
# Their reply may be nil or 0 although they wrote.
SILENT_WRITERS = COUNTERS | {"SET", "HSET", "ZADD"}


class Script:
    """The steps, packed. `keys` are what they name, each once."""

    otherwise = None  # there is nothing that could do more

    def __init__(self, steps: list[Planned]) -> None:
        self.steps = steps
        self.keys = list(dict.fromkeys(key for step in steps for key in step.call.keys))
        self.reads_only = not any(step.call.spec.writes for step in steps)
        arguments: list[bytes] = [b"%d" % last_that_may_stop(steps)]
        for step in steps:
            arguments += _packed(step)
        self.rest = (b"%d" % len(self.keys), *self.keys, *arguments)

    @property
    def blamed(self) -> Call:
        return self.steps[0].call

    @property
    def by_digest(self) -> bytes:
        return pack_command((b"EVALSHA", DIGEST, *self.rest))

    @property
    def by_text(self) -> bytes:
        return pack_command((b"EVAL", SCRIPT, *self.rest))

    def failure(self, reply: Any) -> ReplyError | None:
        """The reason why the whole may be asked for again: a step that the server could not serve now.

        A server that has become a replica says so of the first step that writes, from within the script.
        """
        if isinstance(reply, list) and reply[0] and is_transient(reply[1][-1]):
            failed: ReplyError = reply[1][-1]
            return failed
        return None

    def outcome(self, reply: list[Any], address: RedisAddress) -> Outcome:
        """What the script returned, shaped; raises the error of the step that failed."""
        stopped, replies = reply
        if stopped and isinstance(replies[-1], ReplyError):
            raise error_of(self.steps[stopped - 1].call, replies[-1], address)
        shaped = []
        for step, raw in zip(self.steps, replies, strict=False):
            if step.call.spec.name in COUNTERS:
                shaped.append(int(raw))  # large ones come as text
                continue
            shape = None if step.guard else SHAPES.get(step.call.spec.name)
            shaped.append(raw if shape is None else shape(step.call, raw))
        return Outcome(shaped, stopped_at=stopped - 1 if stopped else None)


def _packed(step: Planned) -> list[bytes]:
    call, flags, extra = step.call, b"", []
    # Lua counts from 1, and the command is the first.
    times = [(place + 2, moment.plus) for place, moment in step.times]
    if step.still is not None:
        flags, extra = b"d", [_digest(call, step.still.reply)]
    elif step.at_most is not None:
        limit = step.at_most.limit
        flags = b">" if isinstance(step.at_most, MoreThan) else b"<"
        extra = limits_of(0 if isinstance(limit, StoreMs) else limit)
        if isinstance(limit, StoreMs):
            place = len(call.args) + 2
            times += [(place, math.floor(limit.plus)), (place + 1, limit.plus)]
    elif step.guard:
        flags = b"=" if isinstance(step.expected, bytes) else b"~" if step.expected is None else b"0"
        extra = [step.expected] if isinstance(step.expected, bytes) else []
    elif call.spec.name == "PUBLISH":
        flags = b"p"
    else:
        flags = (b"w" if call.spec.writes else b"") + (b"!" if step.required else b"")
        flags += b"k" if step.required and call.spec.name in SILENT_WRITERS and not is_only_if(call) else b""
        flags += b"#" if call.spec.name in COUNTERS else b""
    arguments = [call.spec.name.encode(), *call.args, *extra]
    if times:
        flags += b"t"
        arguments += [encode(number) for time in times for number in time]
        arguments.append(b"%d" % len(times))
    return [flags, kind_of(call).encode(), b"%d" % len(call.keys), b"%d" % len(arguments), *arguments]


def _digest(call: Call, reply: Any) -> bytes:
    """What the script makes of the same reply: SHA-1 over its parts with their lengths, which Redis has built in.

    The order of members and fields says nothing and differs from one moment to the next, so those go by their digests.
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
    """The largest whole number of 64 bits and the largest float within a limit: what Lua can compare without rounding.

    Where there is no such whole number, it is the one before all of them.
    """
    whole = math.floor(max(INT64_MIN - 1, min(INT64_MAX, limit)))
    near = float(limit)
    return [b"%d" % whole, repr(math.nextafter(near, -math.inf) if near > limit else near).encode()]


def is_only_if(call: Call) -> bool:
    """A SET whose nil says that it did not write: NX or XX, without GET."""
    return call.spec.name == "SET" and bool(call.options.only_if) and not call.options.get


def kind_of(call: Call) -> str:
    """The only kind of key this command takes, or nothing where it takes any."""
    if call.spec.name == "SET":
        return "string" if call.options.get else ""
    return call.spec.kind or ""


def last_that_may_stop(steps: Sequence[Planned]) -> int:
    """The last step, counted from 1, that may stop or fail for a reason that the script cannot see beforehand."""
    last = 0
    kinds: dict[bytes, str] = {}
    written: set[bytes] = set()
    appended: dict[bytes, tuple[int, int]] = {}  # the last id in a stream, as far as steps before have given it
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
            # Only two infinities have no sum, so a finite number can be added to whatever is there.
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
    """Whether an entry is surely taken: a step before has appended one with a lower id to the same stream."""
    before, own = appended.get(call.keys[0]), call.options.entry_id
    return before is not None and None not in own and before < own
