"""Erasure: delete everything that belongs to one subject, such as `login:42`, across all keyspaces and stores.

A subject names an identity space and an id in it: the same number in two identity spaces is two people.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, Final, NamedTuple

from keystead.errors import BadArgument, BadKey, BadValue, Unreadable, WrongKind
from keystead.schema.chunked_reading import UNKNOWN, read, whole
from keystead.schema.deletion import PlannedStep
from keystead.schema.family import Bound
from keystead.schema.family_lookup import Belonging, by_store, name_of
from keystead.schema.keyspace import Keyspace
from keystead.schema.pace import Pace
from keystead.schema.pattern import Pattern
from keystead.schema.quarantine import QuarantineKeys
from keystead.schema.relation import read_origin

SHOWN: Final = 1_000
_PAGE: Final = 200
_PASSES: Final = 5
_REMEMBERED: Final = 100_000


class ErasureProgress(NamedTuple):
    """Progress: keys examined, and keys of the subject among them."""

    examined: int
    found: int


@dataclass(slots=True)
class ErasurePlan:
    """What belongs to a subject, with the cascade. `steps` holds the first of them, `count` counts all."""

    subject: str
    steps: list[PlannedStep] = field(default_factory=list)
    count: int = 0
    keys: int = 0
    """How many keys would be deleted; the other steps remove index entries."""
    families: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """Keys that could not be examined. Any note means that data may be left."""
    _seen: set[int] = field(default_factory=set)

    def include(self, other: ErasurePlan) -> None:
        """Add the plan for another subject that is the same person."""
        self.steps += other.steps
        self.count += other.count
        self.keys += other.keys
        for family, count in other.families.items():
            self.families[family] = self.families.get(family, 0) + count
        self.notes += other.notes

    def __str__(self) -> str:
        more = [f"and {self.count - len(self.steps):,} more"] if self.count > len(self.steps) else []
        return "\n".join([*map(str, self.steps), *more, *self.notes])

    def add(self, step: PlannedStep, shown: int) -> None:
        mark = hash((step.action, step.key, step.member))
        if mark in self._seen:
            return
        if len(self._seen) < _REMEMBERED:
            self._seen.add(mark)
        self.count += 1
        if step.action == "delete":
            self.keys += 1
            self.families[step.family] = self.families.get(step.family, 0) + 1
        if len(self.steps) < shown:
            self.steps.append(step)


@dataclass(slots=True)
class Erased:
    """What was deleted, by family. `left` counts keys that were recreated after each delete."""

    subject: str
    keys: int = 0
    families: dict[str, int] = field(default_factory=dict)
    left: int = 0
    notes: list[str] = field(default_factory=list)

    def add(self, family: str, count: int = 1) -> None:
        self.keys += count
        self.families[family] = self.families.get(family, 0) + count

    def include(self, other: Erased) -> None:
        """Add the result for another subject that is the same person."""
        for family, count in other.families.items():
            self.add(family, count)
        self.left += other.left
        self.notes += other.notes


async def plan_erase(
    keyspaces: Sequence[Keyspace],
    subject: str,
    *,
    on_progress: Callable[[ErasureProgress], None] | None = None,
    shown: int = SHOWN,
) -> ErasurePlan:
    """All keys that belong to a subject, with their cascade. Read-only.

    Every family with `member_of` of the subject's kind is searched: if the subject is a placeholder, the store is
    scanned for it; if it is a field of the value, all values of the family are read. That is complete rather than
    fast. Raises BadArgument for a malformed subject, or of a kind that no family declares.
    """
    search = _Search(keyspaces, subject, on_progress)
    plan = ErasurePlan(subject)
    async for bound, key in search.keys():
        try:
            steps = (await bound.key(key).plan_delete()).steps
        except BadValue as error:
            search.note(str(error))
            continue
        for step in steps:
            is_own = step.key == key and step.action == "delete"
            plan.add(replace(step, reason=f"it belongs to {subject}") if is_own else step, shown)
    async for key in search.set_aside():
        plan.add(PlannedStep("delete", key, "quarantine", "it was set aside"), shown)
    plan.notes = search.notes
    return plan


async def erase(
    keyspaces: Sequence[Keyspace], subject: str, *, on_progress: Callable[[ErasureProgress], None] | None = None
) -> Erased:
    """Delete all keys that `plan_erase` finds, each with its cascade, and search again until nothing is found.

    After an interruption, call it again. Raises as `plan_erase` does.
    """
    erased = Erased(subject)
    search = _Search(keyspaces, subject, on_progress)
    for _ in range(_PASSES):
        erased.left = 0
        async for bound, key in search.keys():
            erased.left += 1
            try:
                if await bound.key(key).delete():
                    erased.add(name_of(bound.family))
            except BadValue as error:
                search.note(str(error))
        async for key in search.set_aside():
            erased.left += 1
            if await search.drop_aside(key):
                erased.add("QuarantineKeys.quarantine")
        erased.notes = search.notes
        if not erased.left:
            break
    return erased


def subject_kinds(keyspaces: Iterable[Keyspace | type[Keyspace]]) -> list[str]:
    """The kinds of subjects that families of these keyspaces belong to."""
    families = (family for keys in keyspaces for family in keys.families.values())
    return sorted({family.subject.kind for family in families if family.subject is not None})


class _Search:
    def __init__(
        self, keyspaces: Sequence[Keyspace], subject: str, on_progress: Callable[[ErasureProgress], None] | None
    ) -> None:
        kind, colon, self._id = subject.partition(":")
        kinds = subject_kinds(keyspaces)
        if not kinds:
            raise BadArgument('no family declares a subject: write member_of="user:{uid}"')
        if not colon or not kind or not self._id:
            choices = _choices(kinds, "42")
            raise BadArgument(f"a subject is an identity space and an id: {choices}, not {subject!r}")
        if kind not in kinds:
            raise BadArgument(f"{subject!r} names an unknown identity space; write {_choices(kinds, self._id)}")
        self._kind = kind
        self._places = by_store(keyspaces)
        self._pace = Pace(_PAGE)
        self._on_progress = on_progress
        self._examined = self._found = 0
        self._aside: QuarantineKeys | None = None
        self._notes: dict[str, int] = {}

    @property
    def notes(self) -> list[str]:
        return [f"{sentence} ({count:,} keys)" if count else sentence for sentence, count in self._notes.items()]

    async def keys(self) -> AsyncIterator[tuple[Bound[Any], str]]:
        """The keys of the subject, with their families. A key may occur twice."""
        self._notes = {}
        for place in self._places:
            for bound in place.bounds:
                subject = bound.family.subject
                if subject is None or subject.kind != self._kind:
                    continue
                found = self._by_placeholder(bound) if subject.origin.kind == "placeholder" else self._by_field(bound)
                async for key in found:
                    self._found += 1
                    self._report_progress()
                    yield bound, key

    async def set_aside(self) -> AsyncIterator[str]:
        """Quarantined keys of the subject, as far as their names show."""
        for place in self._places:
            self._aside = QuarantineKeys(place.store)
            async for page in place.store.scan(self._aside.quarantine.glob(), page=_PAGE):
                for raw in page:
                    if await self._is_aside_of_subject(place, self._aside, raw):
                        self._found += 1
                        yield raw.decode()

    async def drop_aside(self, key: str) -> bool:
        if self._aside is None:
            return False
        [deleted] = await self._aside.quarantine.store.run([("DEL", key)])
        return bool(deleted)

    async def _is_aside_of_subject(self, place: Belonging, aside: QuarantineKeys, raw: bytes) -> bool:
        if aside.quarantine.parse(raw) is None:
            return False
        try:
            copy = await aside.quarantine.key(raw.decode()).get()
        except (Unreadable, WrongKind):
            return False
        member = None if copy is None else place.of(copy.key.encode())
        if member is None or member.bound.family.subject is None:
            return False
        subject = member.bound.family.subject
        if subject.kind != self._kind:
            return False
        if subject.origin.kind != "placeholder":
            self.note(f"cannot determine the owner of quarantined keys of {name_of(member.bound.family)}")
            return False
        return self._is_subject(member.values[subject.origin.name])

    async def _by_placeholder(self, bound: Bound[Any]) -> AsyncIterator[str]:
        name: str = bound.family.subject.origin.name
        pattern: Pattern = bound.family.pattern
        try:
            value = value_of(pattern, name, self._id)
            if len(pattern.names) == 1:
                key = bound(**{name: value}).key
                [there] = await bound.store.run([("EXISTS", key)])
                self._examined += 1
                if there:
                    yield key
                return
            glob = bound.glob({name: value})
        except BadKey:
            return  # no key of this family can belong to the subject
        async for page in bound.store.scan(glob, page=_PAGE):
            for raw in page:
                values = bound.parse(raw)
                # Compared as rendered, because a key holds a long id as its hash.
                if values is not None and pattern.render_one(name, values[name]) == pattern.render_one(name, value):
                    yield raw.decode()
            self._examined += len(page)
            self._report_progress()
            await self._pace.turn()

    async def _by_field(self, bound: Bound[Any]) -> AsyncIterator[str]:
        family = bound.family
        async for page in bound.store.scan(bound.glob(), page=_PAGE):
            keys = [raw.decode() for raw in page if bound.parse(raw) is not None]
            replies = await self._pace.run(bound.store, [whole(family.kind, key) for key in keys], len(keys))
            for key, reply in zip(keys, replies, strict=True):
                if reply and not isinstance(reply, WrongKind) and self._belongs(bound, key, reply):
                    yield key
                await self._pace.turn()
            self._examined += len(page)
            self._report_progress()

    def _belongs(self, bound: Bound[Any], key: str, reply: Any) -> bool:
        """Whether the field of this value names the subject."""
        family = bound.family
        origin = family.subject.origin
        if family.kind == "hash":
            stored = family.field_name(origin.name, key)
            data = reply.get(stored)
            value, problem = (None, None) if data is None else read(
                family.field_codec(stored, key), data, bound, key, stored.decode()
            )  # fmt: skip
        else:
            value, problem = read(family.codec, reply, bound, key)
            value = value if value is UNKNOWN else read_origin(origin, {}, value)
        if problem is not None:
            self.note(f"unreadable values of {name_of(family)} may belong to the subject")
        elif value is UNKNOWN:
            self.note(f"values of {name_of(family)} are sealed; pass the seal keys, or some may be left")
        return value is not UNKNOWN and self._is_subject(value)

    def _is_subject(self, value: Any) -> bool:
        return str(value.value if isinstance(value, Enum) else value) == self._id

    def note(self, sentence: str) -> None:
        self._notes[sentence] = self._notes.get(sentence, 0) + 1

    def _report_progress(self) -> None:
        if self._on_progress is not None:
            self._on_progress(ErasureProgress(self._examined, self._found))


def _choices(kinds: Sequence[str], id: str) -> str:
    """All subjects with this id: the same id in two identity spaces is two people."""
    return " or ".join(f"{kind}:{id}" for kind in kinds)


def value_of(pattern: Pattern, name: str, text: str) -> Any:
    """The placeholder value of this text: `2026-02-23` is a date if the type is date.

    Raises BadKey if it is not the text of a value.
    """
    type_ = pattern.types[name]
    try:
        value = type_.parse(text)
        written = type_.render(value)
    except Exception:  # a type may raise anything for a text that it does not take
        raise BadKey(f"{name} takes {type_.doc}, such as {type_.example}, not {text!r}") from None
    # A non-canonical text is refused: 007 would be read as 7, which may not be what was meant.
    if written.casefold() != text.casefold():
        raise BadKey(f"{name} takes {type_.doc}; {text!r} would be {written}. Write that if you mean it")
    return value
