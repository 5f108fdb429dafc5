"""Steps that are run again and again: all but their arguments is packed ahead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from keystead.errors import BadArgument
from keystead.stores.base import Outcome, Planned, Step, plan
from keystead.stores.commands import Call, Reply
from keystead.stores.redis.atomic import COUNTERS, DIGEST, Script
from keystead.stores.redis.connection import ReplyError, pack_command
from keystead.stores.redis.replies import SHAPES
from keystead.stores.redis.settings import Address
from keystead.stores.redis.straight import straight

_MARK = b"\x00keystead argument"


class Template:
    """Prepared steps. `script` is what they are without their arguments.

    has_digests   they cannot be packed ahead, because in the digest of a reply an argument does not stand as it is
    """

    def __init__(self, make: Callable[..., Sequence[Step]], arguments: int) -> None:
        self.make = make
        self.places = [b"%b %d\x00" % (_MARK, number) for number in range(arguments)]
        self.script = Script(plan(make(*self.places)))
        self.has_digests = any(step.still is not None for step in self.script.steps)
        self.straight = straight(self.script.steps, self.script.keys)
        if self.straight is None:
            self.rest = self.script.rest
        else:
            self.rest = (b"%d" % len(self.script.keys), *self.script.keys, *self.straight.arguments)
        self._format, self._order = self._packed_ahead()
        self._shapes = [
            (place, step.call, shape)
            for place, step in enumerate(self.script.steps)
            if (shape := _shape_of(step)) is not None
        ]

    def _packed_ahead(self) -> tuple[bytes, list[int]]:
        words = (b"EVALSHA", DIGEST if self.straight is None else self.straight.digest, *self.rest)
        order: list[int] = []  # which argument stands in which place
        pieces = [b"*%d\r\n" % len(words)]
        for word in words:
            if word in self.places:
                order.append(self.places.index(word))
                pieces.append(b"$%d\r\n%b\r\n")
                continue
            if _MARK in word:
                raise BadArgument("each argument of prepared steps stands there as it is, alone")
            pieces.append(b"$%d\r\n%b\r\n" % (len(word), word.replace(b"%", b"%%")))
        return b"".join(pieces), order

    def fits(self, given: Sequence[bytes]) -> bool:
        """Whether these arguments are as different as those it was made for: two keys that are one may need undoing."""
        return len(self.script.keys) < 2 or len(set(given)) == len(given)

    def packed(self, given: Sequence[bytes]) -> bytes:
        sized: list[int | bytes] = []
        for number in self._order:
            argument = given[number]
            sized += (len(argument), argument)
        return self._format % tuple(sized)

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


class Filled:
    """A template with its arguments: a script. It is made only where the usual way did not lead to an outcome."""

    def __init__(self, template: Template, given: Sequence[bytes]) -> None:
        self._template = template
        self._given = given
        self._own = Script(plan(template.make(*given)))
        self.blamed = self._own.blamed
        self.reads_only = self._own.reads_only

    @property
    def otherwise(self) -> Script | None:
        """What does all that its own script leaves undone, an error or nil in its place."""
        return None if self._template.straight is None else self._own

    @property
    def by_digest(self) -> bytes:
        return self._template.packed(self._given)

    @property
    def by_text(self) -> bytes:
        template = self._template
        if template.straight is None:
            return self._own.by_text
        arguments = dict(zip(template.places, self._given, strict=True))
        rest = (arguments.get(word, word) for word in template.rest)
        return pack_command((b"EVAL", template.straight.text, *rest))

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
