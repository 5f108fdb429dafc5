"""Generates a Lua script for compiled steps.

`atomic.lua` takes any steps: it parses them, finds out which may fail, and prepares to undo the others. That takes
longer than the commands themselves. For compiled steps all this is known ahead. If nothing can stop them after the
first write, a script of just these commands does the same in less time.

The generated script handles the usual case and leaves the rest to `atomic.lua`: a command that fails, a user who lacks
a permission, a number that is not a small integer. It signals that with an error or nil before it has written anything.
Its text contains only commands and options; keys and all other arguments are passed in. So a server caches few scripts,
however many limits there are.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from keystead.stores.commands import Call, StoreMs, encode
from keystead.stores.redis.atomic_script import (
    COUNTERS,
    SILENT_WRITERS,
    is_only_if,
    kind_of,
    last_that_may_stop,
    limits_of,
)
from keystead.stores.store_contract import MoreThan, Planned

STEPS_MOST = 50  # Lua allows 200 local names per function

OPTIONS = frozenset(
    b"NX XX GT LT CH INCR EX PX EXAT PXAT KEEPTTL GET BYSCORE REV LIMIT WITHSCORES MAXLEN * -inf +inf -1 0 1".split()
)
_SMALL_INTEGER = frozenset(b"-0123456789")
_READS_TEXT = frozenset({"GET", "HGET", "LINDEX"})  # stored text, which may not be a number


class Straight:
    """A generated script. `arguments`: its arguments besides the keys."""

    def __init__(self, text: str, arguments: Sequence[bytes]) -> None:
        self.text = text.encode()
        self.digest = hashlib.sha1(self.text, usedforsecurity=False).hexdigest().encode()
        self.arguments = arguments


def straight(steps: Sequence[Planned], keys: Sequence[bytes]) -> Straight | None:
    """The script for these steps. None: they may have to be undone, or need a feature of `atomic.lua`."""
    first = next((at for at, step in enumerate(steps) if step.call.spec.writes), len(steps))
    may_have_written = first < len(steps) and steps[first].required and _is_silent(steps[first].call)
    early = _early_reads(steps, first)
    others = [step for place, step in enumerate(steps) if place not in early]
    if last_that_may_stop(others) > first + 1 or may_have_written or len(steps) > STEPS_MOST:
        return None
    if any(step.still is not None or step.call.spec.name == "PUBLISH" for step in steps):
        return None
    if any(step.call.spec.name in COUNTERS and not _is_small(step.call.args[-1]) for step in steps[first + 1 :]):
        return None
    return _Writer(steps, keys, first, early).write()


def _early_reads(steps: Sequence[Planned], first: int) -> frozenset[int]:
    """Places of reads that may stop the batch and follow a write, but whose keys no earlier step writes.

    They are checked before the first write. If all of them pass, the script continues; otherwise it leaves the batch to
    `atomic.lua`, which reports what stopped it.
    """
    written: set[bytes] = set()
    early: set[int] = set()
    for place, step in enumerate(steps):
        reads = step.guard or (step.required and not step.call.spec.writes)
        if place > first and reads and written.isdisjoint(step.call.keys):
            early.add(place)
        if step.call.spec.writes:
            written.update(step.call.keys)
    return frozenset(early)


class _Writer:
    def __init__(self, steps: Sequence[Planned], keys: Sequence[bytes], first: int, early: frozenset[int]) -> None:
        self._steps = steps
        self._first = first  # the place of the first step that writes
        self._early = early
        self._keys = {key: f"KEYS[{place}]" for place, key in enumerate(keys, 1)}
        self._arguments: dict[bytes, str] = {}
        self._known: dict[tuple[str, ...], str] = {}  # replies of earlier reads, by their words
        self._replies: list[str] = []  # of the steps so far
        self._lines: list[str] = []

    def write(self) -> Straight:
        steps, first = self._steps, self._first
        self._line("local call, try, format = redis.call, redis.pcall, string.format")
        if any(step.times or step.call.spec.name == "TIME" or _moment(step) is not None for step in steps):
            self._line("local time = call('TIME')")
            self._line("local now = time[1] * 1000 + (time[2] - time[2] % 1000) / 1000")
        for place, step in enumerate(steps):
            if place == first:
                self._check_rest()
            if place in self._early:
                self._replies.append("1" if step.guard else f"r{place + 1}")
            elif step.guard:
                self._write_guard(place, step)
            elif place <= first:
                self._write_before_first_write(place, step)
            else:
                self._write_after_first_write(place, step)
        self._line(f"return {{0, {{{', '.join(self._replies)}}}}}")
        return Straight("\n".join(self._lines), list(self._arguments))

    def _check_rest(self) -> None:
        """Make sure, before the first write, that nothing after it can stop or fail."""
        for early in sorted(self._early):
            self._check_early(early, self._steps[early])
        self._check_later(
            [step for place, step in enumerate(self._steps) if place > self._first and place not in self._early]
        )

    def _line(self, text: str) -> None:
        self._lines.append(text)

    # --- up to the first step that writes -------------------------------------------------------------------

    def _write_before_first_write(self, place: int, step: Planned) -> None:
        """If it fails, the script ends with its error, and nothing has been written."""
        reply = self._request(step, place)
        if step.required:
            self._line(f"if {reply} == false or {reply} == 0 then {self._return_stopped(place, reply)} end")
        self._replies.append(reply)

    def _check_early(self, place: int, step: Planned) -> None:
        """If it would stop the batch, the script returns nil and writes nothing."""
        reply = self._request(step, place)
        if step.guard:
            self._line(f"if not ({self._condition(place, step, reply)}) then return false end")
        else:
            self._line(f"if {reply} == false or {reply} == 0 then return false end")

    def _write_guard(self, place: int, step: Planned) -> None:
        holds = self._condition(place, step, self._request(step, place))
        self._line(f"if not ({holds}) then {self._return_stopped(place, '0')} end")
        self._replies.append("1")

    def _condition(self, place: int, step: Planned, reply: str) -> str:
        if step.at_most is not None:
            within = self._is_at_most(step, reply, place)
            return f"not ({within})" if isinstance(step.at_most, MoreThan) else within
        if isinstance(step.expected, bytes):
            return f"{reply} == {self._argument(step.expected)}"
        return f"not {reply}" if step.expected is None else f"{reply} == 0"

    def _is_at_most(self, step: Planned, reply: str, place: int) -> str:
        name, moment = step.call.spec.name, _moment(step)
        limit = step.at_most.limit if step.at_most is not None else 0
        if moment is not None:
            within = f"now + {self._argument(encode(moment.plus))}"
        else:
            whole, near = limits_of(limit)  # type: ignore[arg-type]
            within = f"{self._argument(whole if name in _READS_TEXT else near)} + 0"
        if name in _READS_TEXT:
            # At most as many digits as a Lua number holds exactly; all other text is left to `atomic.lua`.
            text = f"n{place + 1}"
            self._line(f"local {text} = {reply} or '0'")
            self._line(f"if #{text} > 15 or string.find({text}, '%D') then return false end")
            return f"{text} + 0 <= {within}"
        if name == "ZSCORE":
            return f"({reply} or 0) + 0 <= {within}"
        return f"{reply} <= {within}"

    def _return_stopped(self, place: int, reply: str) -> str:
        return f"return {{{place + 1}, {{{', '.join([*self._replies, reply])}}}}}"

    # --- after it ------------------------------------------------------------------------------------------

    def _check_later(self, later: Sequence[Planned]) -> None:
        """Return nil, before anything is written, if one of these steps could fail."""
        if later:
            allowed = " and ".join(dict.fromkeys(f"may({self._acl_arguments(step)})" for step in later))
            self._line("local may = redis.acl_check_cmd")
            self._line(f"if may and not ({allowed}) then return false end")
        kinds: dict[bytes, set[str]] = {}
        for step in self._steps[: self._first + 1]:
            for key in step.call.keys:
                kinds.setdefault(key, set()).add(kind_of(step.call))
        for step in later:
            kind = kind_of(step.call)
            for key in step.call.keys:
                if kind and kind not in kinds.setdefault(key, set()):
                    kinds[key].add(kind)
                    self._line(
                        f"do local kind = call('TYPE', {self._keys[key]})['ok']; "
                        f"if kind ~= 'none' and kind ~= '{kind}' then return false end end"
                    )
            if step.call.spec.name in COUNTERS:
                self._line(
                    f"do local held = {self._read_counter(step.call)}; if held and held ~= '0' and "
                    "(#held > 12 or not string.find(held, '^%-?[1-9]%d*$')) then return false end end"
                )

    def _write_after_first_write(self, place: int, step: Planned) -> None:
        reply = self._request(step, place, how="try")
        self._line(f"if type({reply}) == 'table' and {reply}.err then {self._return_stopped(place, reply)} end")
        self._replies.append(reply)

    # --- commands -------------------------------------------------------------------------------------------

    def _request(self, step: Planned, place: int, how: str = "call") -> str:
        """The name of the reply. Before the first write, a read is not repeated."""
        if step.call.spec.name == "TIME":
            return "time"
        words = self._words(step)
        earlier = self._known.get(words) if place < self._first else None
        if earlier is not None:
            return earlier
        reply = f"r{place + 1}"
        self._known.setdefault(words, reply)
        self._line(f"local {reply} = {how}({', '.join(words)})")
        if step.call.spec.name in COUNTERS:
            # Too large for a Lua number: read it as text.
            self._line(
                f"if type({reply}) == 'number' and math.abs({reply}) >= 2 ^ 53 "
                f"then {reply} = {self._read_counter(step.call)} end"
            )
        return reply

    def _words(self, step: Planned) -> tuple[str, ...]:
        moments = dict(step.times)
        return (
            f"'{step.call.spec.name}'",
            *map(self._keys.__getitem__, step.call.keys),
            *(
                self._argument(part) if (moment := moments.get(place)) is None else self._time_argument(moment)
                for place, part in enumerate(step.call.args)
                if place >= len(step.call.keys)
            ),
        )

    def _acl_arguments(self, step: Planned) -> str:
        """The command for an ACL check: its name, its keys, and dummies for the other arguments."""
        others = len(step.call.args) - len(step.call.keys)
        words = (f"'{step.call.spec.name}'", *map(self._keys.__getitem__, step.call.keys), *["'1'"] * others)
        return ", ".join(words)

    def _time_argument(self, moment: StoreMs) -> str:
        return f"format('%.17g', now + {self._argument(encode(moment.plus))})"

    def _argument(self, part: bytes) -> str:
        if part in OPTIONS:
            return f"'{part.decode()}'"
        return self._arguments.setdefault(part, f"ARGV[{len(self._arguments) + 1}]")

    def _read_counter(self, call: Call) -> str:
        if call.spec.name == "HINCRBY":
            return f"call('HGET', {self._keys[call.args[0]]}, {self._argument(call.args[1])})"
        return f"call('GET', {self._keys[call.args[0]]})"


def _moment(step: Planned) -> StoreMs | None:
    limit = None if step.at_most is None else step.at_most.limit
    return limit if isinstance(limit, StoreMs) else None


def _is_silent(call: Call) -> bool:
    return call.spec.name in SILENT_WRITERS and not is_only_if(call)


def _is_small(number: bytes) -> bool:
    return len(number) <= 12 and _SMALL_INTEGER.issuperset(number)
