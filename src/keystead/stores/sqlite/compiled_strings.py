"""Prepared atomic steps on strings, each step as a function of the arguments.

A function does what the handler of its command does, without a call to parse and options to look into. Only the common
forms of commands have one; the others go to their handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from keystead.errors import CommandError
from keystead.stores.atomic_steps import AtMost, MoreThan, Outcome, PlannedPlaces, PlanTemplate
from keystead.stores.commands import Reply, StoreMs, amount_of
from keystead.stores.sql.interpreter import HANDLERS
from keystead.stores.sql.key_tables import STRING
from keystead.stores.sql.string_commands import add_amount
from keystead.stores.sqlite.buffered_strings import COMMANDS, BufferedStrings

if TYPE_CHECKING:
    from keystead.stores.command_options import ExpireOptions, SetOptions

Run: TypeAlias = Callable[[BufferedStrings, Sequence[bytes]], Reply]


class CompiledStrings:
    def __init__(self, template: PlanTemplate) -> None:
        self._places = template.steps
        self._steps = [(_compile(one), one.step.guard or one.step.required) for one in template.steps]

    @staticmethod
    def fits(template: PlanTemplate) -> bool:
        """Whether these steps write, and only strings."""
        specs = [one.step.call.spec for one in template.steps]
        return any(spec.writes for spec in specs) and all(spec.name in COMMANDS for spec in specs)

    def run(self, strings: BufferedStrings, given: Sequence[bytes]) -> Outcome:
        """What `Interpreter.atomically` does with the filled steps."""
        strings.begin_step()
        replies: list[Reply] = []
        try:
            for run, may_stop in self._steps:
                reply = run(strings, given)
                replies.append(reply)
                if may_stop and (reply is None or (type(reply) is int and reply == 0)):
                    strings.undo_step()
                    return Outcome(replies, len(replies) - 1)
        except CommandError as error:
            strings.undo_step()
            raise self._places[len(replies)].fill(given).call.blame(error) from None
        strings.keep_step()
        return Outcome(replies)


def _compile(one: PlannedPlaces) -> Run:
    step, places = one.step, dict(one.places)
    make = _MAKERS.get(step.call.spec.name)
    if make is not None and 0 in places and not (one.is_parsed or step.times or step.still):
        run = make(one, places)
        if run is not None:
            return run
    handle = HANDLERS[step.call.spec.name]

    def run_handler(strings: Any, given: Sequence[bytes]) -> Reply:
        filled = one.fill(given)
        reply = handle(strings, filled.call_at(strings.now_ms))
        return filled.verdict(reply, strings.now_ms) if filled.guard else reply

    return run_handler


def _make_get(one: PlannedPlaces, places: dict[int, int]) -> Run | None:
    key, expects, expected = places[0], one.expects, one.step.expected
    if not one.step.guard:
        return lambda strings, given: strings.string(given[key])
    if one.step.at_most is not None:
        return _make_limit(one.step.at_most, key)
    if expects is None:
        return lambda strings, given: int(strings.string(given[key]) == expected)
    return lambda strings, given: int(strings.string(given[key]) == given[expects])


def _make_limit(guard: AtMost, key: int) -> Run:
    limit, allows = guard.limit, guard.allows
    if isinstance(limit, StoreMs):
        return lambda strings, given: int(allows(strings.string(given[key]), strings.now_ms))
    if isinstance(guard, MoreThan):
        return lambda strings, given: int(not amount_of(strings.string(given[key])) <= limit)
    return lambda strings, given: int(amount_of(strings.string(given[key])) <= limit)


def _make_exists(one: PlannedPlaces, places: dict[int, int]) -> Run | None:
    if not one.step.guard:
        return None
    key = places[0]
    return lambda strings, given: 0 if strings.hold(given[key]).kind else 1


def _make_set(one: PlannedPlaces, places: dict[int, int]) -> Run | None:
    options: SetOptions = one.step.call.options
    if 1 not in places or options.get or options.keep_ttl or options.only_if == b"XX":
        return None
    key, value, deadline, is_new = places[0], places[1], options.deadline, options.only_if == b"NX"

    def run(strings: BufferedStrings, given: Sequence[bytes]) -> Reply:
        held = strings.hold(given[key])
        if is_new and held.kind:
            return None
        strings.change(held, STRING, None if deadline is None else deadline.at_ms(strings.now_ms), given[value])
        return b"OK"

    return run


def _make_add(one: PlannedPlaces, places: dict[int, int]) -> Run | None:
    key, amount = places[0], one.step.call.options

    def run(strings: BufferedStrings, given: Sequence[bytes]) -> Reply:
        total = add_amount(strings.string(given[key]), amount)
        held = strings.hold(given[key])
        strings.change(held, STRING, held.expires_at if held.kind else None, b"%d" % total)
        return total

    return run


def _make_expire(one: PlannedPlaces, places: dict[int, int]) -> Run | None:
    options: ExpireOptions = one.step.call.options
    if options.conditions:
        return None
    key, deadline = places[0], options.deadline

    def run(strings: BufferedStrings, given: Sequence[bytes]) -> Reply:
        held = strings.hold(given[key])
        if not held.kind:
            return 0
        strings.change(held, held.kind, deadline.at_ms(strings.now_ms), held.value)
        return 1

    return run


_MAKERS: dict[str, Callable[[PlannedPlaces, dict[int, int]], Run | None]] = {
    "GET": _make_get,
    "EXISTS": _make_exists,
    "SET": _make_set,
    "INCRBY": _make_add,
    "DECRBY": _make_add,
    "EXPIRE": _make_expire,
    "PEXPIRE": _make_expire,
    "PEXPIREAT": _make_expire,
}
