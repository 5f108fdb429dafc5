"""Checks raw commands against the declared families: keys, kinds, values, lifetimes and relations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeAlias, cast

from keystead.errors import NotANumber, Unreadable, WriteRefused, printable
from keystead.schema.chunked_reading import UNKNOWN, read, read_entry
from keystead.schema.doctor.family_facts import Facts
from keystead.schema.doctor.key_state import is_model
from keystead.schema.family import Bound, Family
from keystead.schema.family_lookup import Belonging, Member, name_of
from keystead.schema.finding import Finding
from keystead.schema.guard.lifetime_rules import LifetimeRules
from keystead.schema.guard.relation_rules import RelationRules
from keystead.schema.guard.value_rules import ValueRules
from keystead.schema.guard.write_problem import Write, WriteProblem
from keystead.schema.keyspace import Keyspace
from keystead.schema.slots import one_step
from keystead.stores import Call, Command, Outcome, Reply, Step, Store
from keystead.stores.commands import TABLE, integer
from keystead.stores.store_contract import Planned, Required, keys_of, plan

Mode: TypeAlias = Literal["observe", "fix", "enforce"]
Report: TypeAlias = Callable[[Finding], None]

_REMEMBERED: Final = 4_096  # keys whose families are cached
_REMEMBERED_BYTES: Final = 512  # longer keys are not cached
_FEW: Final = 12  # steps of a batch whose shape may occur again
_REMEDY: Final = "Write it as the key document of the keyspace states."
_EXISTS: Final = TABLE["EXISTS"]
# Commands whose usual form is checked without the list of its problems.
_GROWING_PLAINLY: Final = frozenset(("HSET", "SADD"))
_KIND_NAMES: Final = {"zset": "sorted set", "stream": "log"}
# Removing a key of no family harms nothing.
_ON_ANY_KEY: Final = frozenset(("DEL", "GETDEL"))


class BadWrite(NamedTuple):
    """A problem of the command at this place of a batch. `member`: the key that it is about; None: of no family."""

    place: int
    call: Call
    problem: WriteProblem
    member: Member | None

    @property
    def finding(self) -> Finding:
        key = printable(self.call.args[0] if self.member is None else self.member.key)
        family = None if self.member is None else name_of(self.member.bound.family)
        return Finding(self.problem.code, family or key, self.problem.sentence, _REMEDY, family, key)

    @property
    def error(self) -> WriteRefused:
        error = WriteRefused(f"{self.problem.code}: {self.problem.sentence}")
        self.call.blame(error)
        error.finding = self.problem.code
        return error


@dataclass(slots=True)
class CheckedSteps:
    """A batch with the steps that the guard added. Run it with `run_on`.

    places     where the given steps are now
    refusals   what a stop at an added guard means, by its place
    watches    reads that were added, and the finding if the reply is wrong
    grows      the key that this one command adds to, and which must exist; None: it is something else
    """

    steps: list[Step | Planned] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    refusals: dict[int, BadWrite] = field(default_factory=dict)
    watches: list[tuple[int, Callable[[Reply], bool], BadWrite]] = field(default_factory=list)
    grows: bytes | None = None

    def add(self, step: Step | Planned) -> int:
        self.steps.append(step)
        return len(self.steps) - 1

    async def run_on(self, store: Store) -> Outcome:
        """Run it as one atomic step. If they are few, steps without a plan are faster: a store compiles their shape."""
        if len(self.steps) <= _FEW and not any(type(step) is Planned for step in self.steps):
            return await store.atomically(cast("list[Step]", self.steps))
        return await store._atomically([_planned(step) for step in self.steps])

    def extend(self, other: CheckedSteps) -> None:
        """Add the steps of another batch after these."""
        start = len(self.steps)
        self.steps += other.steps
        self.places += [start + place for place in other.places]
        self.refusals.update((start + place, one) for place, one in other.refusals.items())
        self.watches += [(start + place, is_wrong, one) for place, is_wrong, one in other.watches]


class WriteGuard:
    """Checks writes against keyspaces, each bound to the store that it guards.

        guard = WriteGuard([ShopKeys(store)], "enforce")
        checked = guard.check(plan([("SET", "cart:7", "{}")]))  # raises WriteRefused: no-deadline

    observe   everything passes; findings are reported
    fix       as observe, but the declared lifetime is set, and index entries are written, in the same atomic step
    enforce   a write that the doctor would complain about is refused

    Reads always pass. What depends on the state of the store, such as whether HSET creates a key, is checked in the
    same atomic step as the write. `report` gets each finding; `counts` has their number by code and family.
    """

    def __init__(self, keyspaces: Sequence[Keyspace], mode: Mode = "enforce", report: Report | None = None) -> None:
        if mode not in ("observe", "fix", "enforce"):
            raise ValueError(f"the mode of a guard is observe, fix or enforce, not {mode!r}")
        self.mode = mode
        self.counts: Counter[tuple[str, str]] = Counter()
        self._report = report
        self._now_ms = keyspaces[0].now_ms
        self._store: Store = next(iter(keyspaces[0].roles.values()))
        bounds: dict[Family[Any], Bound[Any]] = {}
        for keys in keyspaces:
            bounds.update((bound.family, bound) for bound in keys.bounds())
        self._members: dict[bytes, Member | None] = {}
        self._families = Belonging(self._store, bounds.values())
        self._channels = Belonging(self._store, bounds.values(), channels=True)
        self._rules = {
            bound.family: _FamilyRules(bound, mode) for bound in bounds.values() if bound.family.kind != "channel"
        }

    def check_call(self, call: Call) -> CheckedSteps | None:
        """`check` for one command that is not part of a batch; faster if it is right."""
        name = call.spec.name
        if name == "SET" or name in _GROWING_PLAINLY:
            raw = call.args[0]
            member = self._member(raw)
            rules = None if member is None else self._rules[member.bound.family]
            if name == "SET":
                if rules is not None and member is not None and rules.is_plainly_right(call, member.key):
                    return None
            elif rules is not None and member is not None and rules.grows_plainly(call, member.key):
                if rules.never_ends:
                    return None
                there = Required(cast("Command", Call(_EXISTS, [raw], None)))
                found = BadWrite(0, call, rules.no_deadline, member)
                return CheckedSteps([there, cast("Step", call)], [1], {0: found}, grows=raw)
        return self.check([Planned(call)])

    def check(self, steps: Sequence[Planned]) -> CheckedSteps | None:
        """The batch as it may run; None: as it is, and even without an atomic step if it is one command.

        Raises WriteRefused, in the mode `enforce`.
        """
        found = [
            BadWrite(place, step.call, problem, member)
            for place, step in enumerate(steps)
            if step.call.spec.writes and not step.guard
            for problem, member in self._problems(step)
            if not _is_cured(problem, steps, place)
        ]
        if not found:
            return None
        return self._settle(steps, found)

    def note(self, checked: CheckedSteps, replies: Sequence[Reply]) -> None:
        """Report the findings that only the replies of added reads show."""
        for place, is_wrong, found in checked.watches:
            if place < len(replies) and is_wrong(replies[place]):
                self._count(found.finding)

    def refusal(self, checked: CheckedSteps, stopped_at: int) -> WriteRefused | None:
        """The error of a batch that stopped here; None: a step of the caller stopped it."""
        found = checked.refusals.get(stopped_at)
        if found is None:
            return None
        self._count(found.finding)
        return found.error

    # --- problems ------------------------------------------------------------------------------------------

    def _problems(self, step: Planned) -> Iterator[tuple[WriteProblem, Member | None]]:
        now_ms = self._now_ms()
        call = step.call_at(now_ms)
        if call.spec.name == "PUBLISH":
            yield from self._message_problems(*call.args)
        for raw in call.keys:
            member = self._member(raw)
            if member is None:
                if call.spec.name not in _ON_ANY_KEY:
                    yield WriteProblem("unknown-key", "no family of the keyspace has such a key"), None
                continue
            for problem in self._rules[member.bound.family].check(Write(call, member, now_ms, UNKNOWN)):
                yield problem, member

    def _message_problems(self, channel: bytes, data: bytes) -> Iterator[tuple[WriteProblem, Member | None]]:
        member = self._channels.of(channel)
        if member is None:
            yield WriteProblem("unknown-key", "no family of the keyspace has such a channel"), None
            return
        problem = read(member.bound.family.codecs["message"], data, member.bound, member.key)[1]
        if problem is not None:
            yield WriteProblem("unreadable", f"the message does not fit: {problem}"), member

    def _member(self, raw: bytes) -> Member | None:
        """The family of a key, which is cached: most programs write the same keys again."""
        try:
            return self._members[raw]
        except KeyError:
            pass
        if len(self._members) >= _REMEMBERED:
            self._members.clear()
        member = self._families.of(raw)
        if len(raw) <= _REMEMBERED_BYTES:
            self._members[raw] = member
        return member

    def _settle(self, steps: Sequence[Planned], found: Sequence[BadWrite]) -> CheckedSteps | None:
        """Refuse, correct or report the problems of a batch."""
        checked, after = CheckedSteps(), []
        given = [_plain(step) for step in steps]
        for place, step in enumerate(given):
            written, follow = step, []
            for one in found:
                if one.place != place:
                    continue
                if self._is_corrected(one):
                    follow += list(one.problem.fixes)
                    written = _corrected(written, one.problem)
                elif one.problem.condition is not None and one.problem.condition.is_after:
                    after.append(one)
                else:
                    self._add_condition(checked, one)
            checked.places.append(checked.add(written))
            for command in follow:
                checked.add(command)
        for one in after:
            self._add_condition(checked, one)
        return None if checked.steps == given else checked

    def _is_corrected(self, one: BadWrite) -> bool:
        """Whether this problem is corrected. A certain one that is not is reported, and refused in `enforce`."""
        is_fixed = self.mode == "fix" and one.problem.can_be_fixed and self._is_one_step(one.call, *one.problem.fixes)
        if one.problem.condition is None:
            self._count(one.finding)
            if self.mode == "enforce":
                raise one.error
        return is_fixed

    def _is_one_step(self, call: Call, *others: Command) -> bool:
        """Whether these commands can be added to the step of a write, which must not fail for that."""
        keys = [call.args[0], *(key for command in others for key in keys_of(command))]
        texts = (key if isinstance(key, str) else key.decode("utf-8", "replace") for key in keys)
        return one_step(self._store, *texts)

    def _add_condition(self, checked: CheckedSteps, one: BadWrite) -> None:
        condition = one.problem.condition
        if condition is None:
            return
        if self.mode != "enforce":
            if self._is_one_step(one.call, condition.look):
                checked.watches.append((checked.add(condition.look), condition.is_wrong, one))
            return
        for guard in condition.guards:
            checked.refusals[checked.add(guard)] = one

    def _count(self, finding: Finding) -> None:
        self.counts[finding.code, finding.family or ""] += 1
        if self._report is not None:
            self._report(finding)


class _FamilyRules:
    """All rules of one family.

    no_deadline   what is wrong with a command that creates a key of it, without a lifetime
    """

    def __init__(self, bound: Bound[Any], mode: Mode) -> None:
        facts = Facts(bound)
        self._facts = facts
        self._kind = bound.family.kind
        self._kind_name = bound.family.kind_name
        self._values = ValueRules(facts)
        self._lifetimes = LifetimeRules(facts, corrects=mode == "fix")
        self._relations = RelationRules(facts)
        # Nothing but its value and its TTL decides whether a SET is right.
        self._is_plain = (
            facts.decode is not None
            and not (facts.may_be_old or self._relations.is_needed)
            and (facts.never_ends or facts.latest_ms is not None)
        )
        self.no_deadline = WriteProblem("no-deadline", self._lifetimes.no_deadline)
        self.never_ends = facts.never_ends
        # Nothing but its entries decides whether an HSET or a SADD is right; and its existence, unless it never ends.
        self._grows_plainly = (
            (mode == "enforce" or facts.never_ends)
            and self._kind in ("hash", "set")
            and not (is_model(bound) or facts.may_be_old or self._relations.is_needed)
        )

    def is_plainly_right(self, call: Call, key: str) -> bool:
        """Whether this SET is right, for the usual ones. False: `check` finds out."""
        facts, deadline = self._facts, call.options.deadline
        if not self._is_plain or facts.decode is None or call.options.keep_ttl:
            return False
        if facts.latest_ms is None:
            if deadline is not None:
                return False
        elif deadline is None or deadline.absolute or deadline.ms > facts.latest_ms:
            return False
        try:
            facts.decode(call.args[1], key, facts.ring)
            if facts.is_counter:
                integer(call.args[1])
        except (Unreadable, NotANumber):
            return False
        return True

    def grows_plainly(self, call: Call, key: str) -> bool:
        """Whether this HSET or SADD is right if the key exists, for the usual ones. False: `check` finds out."""
        if not self._grows_plainly or call.spec.kind != self._kind:
            return False
        args, bound = call.args, self._facts.bound
        entries: Iterator[Any] = zip(args[1::2], args[2::2], strict=True) if self._kind == "hash" else iter(args[1:])
        return all(read_entry(bound, key, entry)[1] is None for entry in entries)

    def check(self, write: Write) -> Iterator[WriteProblem]:
        spec = write.call.spec
        kind = "string" if spec.name == "SET" else spec.kind
        if kind is not None and kind != self._kind:
            kind = _KIND_NAMES.get(kind, kind)
            yield WriteProblem("wrong-kind", f"{spec.name} is for a {kind}, but the family is a {self._kind_name}")
            return
        is_readable = True
        for problem in self._values.check(write):
            is_readable = is_readable and (problem.code != "unreadable" or problem.condition is not None)
            yield problem
        if is_readable:  # otherwise its moment and its relations are unknown
            yield from self._lifetimes.check(write)
            if self._relations.is_needed:
                yield from self._relations.check(write)


def _planned(step: Step | Planned) -> Planned:
    if isinstance(step, Planned):
        return step
    return Planned(step) if isinstance(step, Call) else plan([step])[0]


def _plain(step: Planned) -> Step | Planned:
    """A step that is only a command, as it is without a plan."""
    is_plain = not (step.required or step.guard or step.times)
    return cast("Step", step.call) if is_plain else step


def _corrected(step: Step | Planned, problem: WriteProblem) -> Step | Planned:
    if problem.instead is None:
        return step
    is_required = isinstance(step, Planned) and step.required
    return Planned(plan([problem.instead])[0].call, required=True) if is_required else problem.instead


def _is_cured(problem: WriteProblem, steps: Sequence[Planned], place: int) -> bool:
    cure, companion = problem.cure, problem.companion
    return (cure is not None and any(cure(step.call) for step in steps[place + 1 :] if not step.guard)) or (
        companion is not None and any(companion(step.call) for step in steps if not step.guard)
    )
