"""The walk through a store: page by page, every key once, never more in memory than a page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, NamedTuple, TypeVar

from keystead.errors import BadValue, CommandError, WrongSealKey
from keystead.errors import WrongKind as WrongKindError
from keystead.schema.chunked_reading import SMALL, UNKNOWN, NotOpened, Pages, can_be_read, read_entry, value_of
from keystead.schema.doctor import relation_checks
from keystead.schema.doctor.contents import (
    ClosedEntries,
    KindSuspicion,
    TooLong,
    UnreadableEntries,
    UnreadableValue,
    left_alone,
    old_entries,
    old_form,
)
from keystead.schema.doctor.deadlines import WrongDeadline
from keystead.schema.doctor.family_facts import Facts, entry_of, is_there
from keystead.schema.doctor.key_state import KeyState, look_at, ms_of
from keystead.schema.doctor.quarantine import QuarantineKeys, set_aside
from keystead.schema.doctor.relation_checks import (
    DeadEntry,
    LeadsNowhere,
    NamedEntry,
    NotListed,
    Orphan,
    StoredAt,
    WrongScore,
    has_expired,
    is_missing,
    score_of,
)
from keystead.schema.doctor.report import FEW, Progress, Report, tally
from keystead.schema.doctor.suspicion import Suspicion
from keystead.schema.family import Bound, Family
from keystead.schema.family_lookup import Belonging, KnownKeys, Member, by_store, name_of
from keystead.schema.keyspace import Keyspace
from keystead.schema.listing import ListedEntry
from keystead.schema.pace import Pace, replies_of
from keystead.stores import TABLE, Call, Command, Store
from keystead.stores.backup.restoring import CHECKPOINT_PREFIX
from keystead.stores.copy.marker import MARKER_PREFIX

# What `keystead copy` and `keystead restore` note in a store while they need it.
NOTES_PREFIXES: Final = (MARKER_PREFIX, CHECKPOINT_PREFIX.encode())
TOOLS_NOTES: Final = "keystead copy and restore"
_TOGETHER: Final = 16  # suspicions that are followed at the same time
_ATTEMPTS: Final = 3
_PASSES: Final = 4
_PAGE: Final = 500
_LOOKS_AT_CLOCK: Final = 8  # keys or entries, a few microseconds each, after which it is asked how long it took
_EXISTS: Final = TABLE["EXISTS"]
_TOO_MANY: Final = "more than 1 % of them would be set aside, which somebody must confirm"
_TOO_MANY_DELETED: Final = "more than 1 % of them would be deleted, which somebody must confirm"
ASTRAY: Final = {
    "orphan": "no key of this family has its owner, so the store or the pattern of the owners is probably wrong",
    "leads-nowhere": "no key of this family leads to one that is there, so the store or the pattern of what they lead "
    "to is probably wrong",
}

T = TypeVar("T")
Unknown = Literal["report", "set-aside"]
SetAside = Literal["few", "all"]
What = Literal["key", "entry", "deleted"]


async def examine(
    keyspaces: Sequence[Keyspace],
    *,
    families: Collection[Family[Any]] | None = None,
    known: Collection[type[Keyspace]] = (),
    page: int = _PAGE,
    on_progress: Callable[[Progress], None] | None = None,
    examples: int = 20,
) -> Report:
    """Read every key of the stores of these keyspaces, and say what is not as their families say. Nothing is changed.

    It scans while the stores go on serving others, in small batches with turns for other tasks between them; memory
    does not grow with the stores. What two keys say of each other is looked at in one atomic step before it is
    reported, so a store that is written to at the same time shows nothing that is not so.

    `families` narrows it to some of them; keys of no family are not looked for then. Keys of `known` keyspaces are
    counted in `others`: they are neither examined nor unknown, whatever store they are in.
    """
    walk = _Walk(Report(examples), None, page=page, on_progress=on_progress)
    await walk.all(keyspaces, families, known)
    return walk.report


async def repair(
    keyspaces: Sequence[Keyspace],
    *,
    plan: Report | None = None,
    set_aside: SetAside = "few",
    unknown: Unknown = "report",
    families: Collection[Family[Any]] | None = None,
    known: Collection[type[Keyspace]] = (),
    page: int = _PAGE,
    on_progress: Callable[[Progress], None] | None = None,
    examples: int = 20,
) -> Report:
    """Repair each finding, in a step that holds only if it is still so; what cannot be read is set aside.

    `plan` is what `examine` said with the same arguments; without one it examines first. Where none of the sealed
    values of a family opens, the key is wrong and nothing is repaired: WrongSealKey. Of a family of which more than 1 %
    would be set aside, nothing is (see `QuarantineKeys`), unless `set_aside` says "all"; the same holds for keys that
    would be deleted. Where every key of a family would be deleted because what it belongs to is gone (`Report.astray`),
    none is, whatever `set_aside` says. Keys of no family are only reported, unless `unknown` says "set-aside"; the same
    bound holds for them, of all keys.
    """
    if plan is None:
        plan = await examine(keyspaces, families=families, known=known, page=page, examples=examples)
    if plan.locked:
        raise WrongSealKey(plan.locked)
    repairs = _Repairs(plan, unknown == "set-aside", set_aside == "all")
    walk = _Walk(Report(examples), repairs, page=page, on_progress=on_progress)
    await walk.all(keyspaces, families, known)
    return walk.report


@dataclass
class _Repairs:
    """What may be repaired, and how much was set aside or deleted of each family."""

    plan: Report
    unknown: bool
    all: bool
    _done: dict[tuple[str, str], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._astray = self.plan.astray

    def refuses(self, suspicion: Suspicion) -> str:
        """Why it may not be repaired; an empty text: it may, and what it sets aside or deletes is counted as done."""
        family = name_of(suspicion.family)
        if suspicion.deletes:
            if family in self._astray:
                return ASTRAY[self._astray[family]]
            return "" if self.may_remove(family, 1, "deleted") else _TOO_MANY_DELETED
        if suspicion.sets_aside and not self.may_remove(family, suspicion.size, _what(suspicion)):
            return _TOO_MANY
        return ""

    def may_remove(self, family: str, count: int, what: What) -> bool:
        """Whether so many more may be set aside or deleted. It counts them as done."""
        plan = self.plan
        if family:
            planned = {"key": plan.aside, "entry": plan.entries_aside, "deleted": plan.deleted}[what]
            there = plan.entries if what == "entry" else plan.keys
            expected, total = planned.get(family, 0), there.get(family, 0)
        else:
            expected, total = plan.count("unknown-key"), plan.examined
        done = self._done.get((family, what), 0) + count
        # What came after the plan was made may go, too, as long as all of it is little.
        if not self.all and (expected * FEW > total or done * FEW > max(total, FEW * expected)):
            return False
        self._done[family, what] = done
        return True


class _Question(NamedTuple):
    """An entry of an index, to be asked for its record."""

    look: KeyState
    named: NamedEntry


class _Walk:
    def __init__(
        self,
        report: Report,
        repairs: _Repairs | None,
        *,
        page: int,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self.report = report
        self._repairs = repairs
        self._led_to: set[Family[Any]] = set()
        self._again = False  # a key was deleted that mappings may lead to, and some of them were looked at before
        self._page = page
        self._pace = Pace(page)
        self._on_progress = on_progress
        self._total: int | None = None
        self._facts: dict[Bound[Any], Facts] = {}
        self._known = KnownKeys(())

    async def all(
        self,
        keyspaces: Sequence[Keyspace],
        families: Collection[Family[Any]] | None,
        known: Collection[type[Keyspace]],
    ) -> None:
        narrowed = families is not None
        places = by_store(keyspaces, families)
        if not narrowed:
            places = [
                Belonging(place.store, [*place.bounds, *QuarantineKeys(place.store).bounds()]) for place in places
            ]
        self._known = KnownKeys(known)
        self._led_to = {
            relation.target for keys in keyspaces for family in keys.families.values() for relation in family.leads_to
        }
        self._facts = {bound: Facts(bound) for place in places for bound in place.bounds}
        for number in range(_PASSES):
            self._again = False
            await self._stores(places, narrowed=narrowed, counts=number == 0)
            if not self._again:
                break

    # --- pages ---------------------------------------------------------------------------------------------

    async def _stores(self, places: Sequence[Belonging], *, narrowed: bool, counts: bool) -> None:
        """One pass. Only the first one counts keys: a second one follows up what the first has changed."""
        globs = {id(place): _glob(place, narrowed) for place in places}
        if all(glob == "*" for glob in globs.values()):
            self._total = sum([(await place.store.run([("DBSIZE",)]))[0] for place in places])
        for place in places:
            async for keys in place.store.scan(globs[id(place)], page=self._page):
                for some in self._pieces(keys):
                    await self._keys(place, some, narrowed)
                    if counts:
                        self.report.examined += len(some)
                    self._say()
                    await self._pace.turn()
        if counts:
            for facts in self._facts.values():
                self.report.keys[facts.name] = self.report.keys.get(facts.name, 0) + facts.keys
                self.report.entries[facts.name] = self.report.entries.get(facts.name, 0) + facts.entries
                for code, count in facts.intact.items():
                    there = self.report.intact.setdefault(code, {})
                    there[facts.name] = there.get(facts.name, 0) + count

    def _pieces(self, things: Sequence[T]) -> Iterator[Sequence[T]]:
        """As many at a time as the pace asks for, which changes on the way."""
        at = 0
        while at < len(things):
            size = self._pace.size
            yield things[at : at + size]
            at += size

    def _say(self) -> None:
        if self._on_progress is not None:
            report = self.report
            self._on_progress(Progress(report.examined, self._total, report.findings, report.repaired))

    async def _keys(self, place: Belonging, keys: Sequence[bytes], narrowed: bool) -> None:
        members: list[Member] = []
        for raw in keys:
            member = place.of(raw)
            if member is not None:
                members.append(member)
            elif not narrowed:
                await self._stranger(place, raw)
        if not members:
            return
        await self._pace.turn()
        looks = await look_at(members, place.store, self._pace)
        await self._pace.turn()
        suspected: dict[int, list[Suspicion]] = {}
        readable = []
        for number, look in enumerate(looks):
            facts = self._facts[look.bound]
            facts.keys += 1
            found = await self._large_record(look) if facts.is_record and look.size > SMALL else None
            found = self._content(look, facts) if found is None else found
            if not look.wrong_kind and look.problem is None:
                readable.append((look, facts))
                if (code := facts.wrong_deadline(look)) is not None:
                    found.append(WrongDeadline(look, code))
            if found:
                suspected[id(look)] = found
            if not number % _LOOKS_AT_CLOCK and self._pace.is_due:
                await self._pace.turn()
        for look, suspicion in await self._related(readable):
            suspected.setdefault(id(look), []).append(suspicion)
        await self._pace.turn()
        await self._follow(list(suspected.values()))
        await self._all_entries([(look, facts) for look, facts in readable if not facts.is_record])

    # --- one key -------------------------------------------------------------------------------------------

    def _content(self, look: KeyState, facts: Facts) -> list[Suspicion]:
        """What is wrong with a key in itself. Entries are looked at later, page by page."""
        if look.wrong_kind:
            return [KindSuspicion(look)]
        if not facts.is_record:
            return [TooLong(look)] if facts.keeps is not None and look.size > facts.keeps else []
        facts.read(look)
        if look.problem is not None:
            self._count_unopened(look.problem, facts)
            return [UnreadableValue(look)]
        if look.value is UNKNOWN:
            tally(self.report.sealed, look.bound.family)
            return []
        if not facts.may_be_old:
            return []
        if facts.is_sealed and b"sealed." in (look.raw or b"".join(look.fields.values())):
            self.report.opened[facts.name] = self.report.opened.get(facts.name, 0) + 1
        old = old_form(look)
        return [] if old is None else [old]

    async def _large_record(self, look: KeyState) -> list[Suspicion] | None:
        """Read a record that was too large to be read with others. A list: nothing more can be said of it."""
        if not can_be_read(look.bound.family.kind, look.size):
            tally(self.report.not_read, look.bound.family)
            return []
        [fields] = await replies_of(look.store, [("HGETALL", look.key)])
        if isinstance(fields, WrongKindError) or not fields:
            return []  # it was replaced meanwhile
        look.fields = fields
        return None

    def _count_unopened(self, problem: str, facts: Facts) -> None:
        if isinstance(problem, NotOpened):
            self.report.unopened[facts.name] = self.report.unopened.get(facts.name, 0) + 1

    # --- entries -------------------------------------------------------------------------------------------

    async def _all_entries(self, looks: Sequence[tuple[KeyState, Facts]]) -> None:
        """What is wrong with the entries of sets, lists, logs ... and of indexes. Those of small keys go together."""
        questions: list[_Question] = []
        for look, facts in looks:
            if look.entries is not None and look.size <= SMALL:
                await self._page_of_entries(look, facts, look.entries, questions)
            elif can_be_read(facts.kind, look.size):
                await self._paged_entries(look, facts)
            else:
                tally(self.report.not_read, look.bound.family)
        await self._dead(questions)

    async def _paged_entries(self, look: KeyState, facts: Facts) -> None:
        pages = Pages(look.bound, look.key)
        try:
            async for entries in pages:
                questions: list[_Question] = []
                removed = await self._page_of_entries(look, facts, entries, questions)
                pages.removed = removed + await self._dead(questions)
        except WrongKindError:
            return  # it was replaced meanwhile; what is there now is not what was looked at

    async def _page_of_entries(
        self, look: KeyState, facts: Facts, entries: list[Any], questions: list[_Question]
    ) -> int:
        """How many of these entries were taken out. What those of an index name is added to the questions."""
        facts.entries += len(entries)
        good: list[Any] = []
        bad: list[Any] = []
        first_problem = ""
        closed: dict[str, tuple[list[Any], str]] = {}  # by why they are left alone
        for number, entry in enumerate(entries):
            member, problem = read_entry(look.bound, look.key, entry)
            if problem is not None:
                self._count_unopened(problem, facts)
                if why := left_alone(problem, *value_of(look.bound.family, entry)):
                    closed.setdefault(why, ([], problem))[0].append(entry)
                    continue
                bad.append(entry)
                first_problem = first_problem or problem
                continue
            good.append(entry)
            if facts.is_index:
                data = entry[0] if facts.kind == "zset" else entry
                named = facts.named_by(look, data, member)
                if named is not None and not (facts.kind == "zset" and has_expired(look, entry[1])):
                    questions.append(_Question(look, named))
            if not number % _LOOKS_AT_CLOCK and self._pace.is_due:
                await self._pace.turn()
        removed = 0
        if closed:
            await self._follow([[ClosedEntries(look, some, problem, why) for why, (some, problem) in closed.items()]])
        if bad and await self._follow([[UnreadableEntries(look, bad, first_problem)]]):
            removed = len(bad)
        if facts.is_sealed and good:
            opened = sum(map(_has_seal, good))
            self.report.opened[facts.name] = self.report.opened.get(facts.name, 0) + opened
            old = old_entries(look, good)
            if old is not None:
                await self._follow([[old]])
        return removed

    async def _dead(self, questions: Sequence[_Question]) -> int:
        """How many entries of indexes were taken out, because what they name is gone."""
        removed = 0
        for some in self._pieces(questions):
            dead = [DeadEntry(one.look, *one.named) for one in await self._without_record(some)]
            if dead:
                removed += await self._follow([[one] for one in dead])
            await self._pace.turn()
        return removed

    async def _without_record(self, questions: Sequence[_Question]) -> list[_Question]:
        """Those of these entries, all of one store, that name nothing which is there."""
        store = questions[0].look.store
        names = [name.encode() for one in questions for name in one.named.names]
        if all(len(one.named.names) == 1 for one in questions) and await self._all_exist(store, names):
            return []
        commands: list[Command] = [("EXISTS", *one.named.names) for one in questions if one.named.names]
        replies = iter(await self._pace.run(store, commands, len(questions)))
        return [one for one in questions if not one.named.names or not next(replies)]

    async def _all_exist(self, store: Store, names: list[bytes]) -> bool:
        """Whether all of these keys are there: one question, and the answer is yes in a store that is well."""
        [count] = await self._pace.run(store, [Call(_EXISTS, names, None)], len(names))  # type: ignore[list-item]
        return bool(count == len(names))

    async def _stranger(self, place: Belonging, raw: bytes) -> None:
        """A key of none of the families that are examined."""
        other = TOOLS_NOTES if raw.startswith(NOTES_PREFIXES) else self._known.keyspace_of(raw)
        if other is not None:
            self.report.others[other] = self.report.others.get(other, 0) + 1
            return
        if not self.report.is_new("unknown-key", (id(place.store), raw)):
            return
        fixed, note = False, ""
        if self._repairs is not None and self._repairs.unknown:
            if self._repairs.may_remove("", 1, "key"):
                note = await _set_stranger_aside(place.store, raw)
            else:
                note = _TOO_MANY
            fixed = not note
        self.report.add("unknown-key", raw, None, "no family of the given keyspaces makes it", fixed, note)

    # --- relations -----------------------------------------------------------------------------------------

    async def _related(self, looks: Sequence[tuple[KeyState, Facts]]) -> list[tuple[KeyState, Suspicion]]:
        """What looks wrong with the relations of these keys, asked for in one batch a store."""
        asked = _Asked()
        orphans: list[tuple[KeyState, list[StoredAt]]] = []
        leads: list[tuple[KeyState, Any, StoredAt]] = []
        listed: list[tuple[KeyState, ListedEntry, bool]] = []
        for number, (look, facts) in enumerate(looks):
            if facts.owners and (owners := facts.owner_keys(look.values)):
                orphans.append((look, [StoredAt(*asked.exists(*one)) for one in owners]))
            for relation in facts.leads_to:
                target = relation_checks.target(look, relation)
                if target is not None:
                    asked.exists(*target)
                    leads.append((look, relation, target))
            for one in facts.listed:
                entry = entry_of(look, one)
                if entry is not None:
                    listed.append((look, entry, one.has_score))
            if not number % _LOOKS_AT_CLOCK and self._pace.is_due:
                await self._pace.turn()
        missing = await self._missing(asked)
        found: list[tuple[KeyState, Suspicion]] = []
        for look, places in orphans:
            if missing and all(one in missing for one in places):
                found.append((look, Orphan(look, places)))
            else:
                self._facts[look.bound].intact["orphan"] += 1
        for look, relation, target in leads:
            if target in missing:
                found.append((look, LeadsNowhere(look, relation, target)))
            else:
                self._facts[look.bound].intact["leads-nowhere"] += 1
        return found + await self._listings(listed)

    async def _missing(self, asked: _Asked) -> set[StoredAt]:
        """Those of the keys that are not there."""
        missing: set[StoredAt] = set()
        for store, names in asked.by_store.values():
            if await self._all_exist(store, [name.encode() for name in names]):
                continue
            replies = await self._pace.run(store, [("EXISTS", name) for name in names], len(names))
            missing.update(
                StoredAt(store, name) for name, reply in zip(names, replies, strict=True) if is_missing(reply)
            )
            await self._pace.turn()
        return missing

    async def _listings(self, listed: Sequence[tuple[KeyState, ListedEntry, bool]]) -> list[tuple[KeyState, Suspicion]]:
        """What looks wrong with the entries that these records should have. They are in the store of their record."""
        found: list[tuple[KeyState, Suspicion]] = []
        if not listed:
            return found
        commands: list[Any] = [is_there(entry) for _, entry, _ in listed]
        replies = await self._pace.run(listed[0][0].store, commands, len(commands))
        for (look, entry, has_score), reply in zip(listed, replies, strict=True):
            is_no_index = isinstance(reply, WrongKindError)
            if is_no_index and self._repairs is not None:
                # It is set aside first, so that the record can be listed in a new one.
                await self._follow([[KindSuspicion(KeyState(entry.index, entry.key, {}, look.now_ms))]])
            if is_missing(reply) or is_no_index:
                found.append((look, NotListed(look, entry)))
            elif has_score and (wanted := score_of(look, entry)) is not None and reply != wanted:
                found.append((look, WrongScore(look, entry, reply)))
        await self._pace.turn()
        return found

    # --- from suspicion to finding -------------------------------------------------------------------------

    async def _follow(self, by_key: Sequence[list[Suspicion]]) -> int:
        """Make sure of each suspicion, report it, and repair it where that is wanted; how many were repaired."""
        repaired = 0
        for start in range(0, len(by_key), _TOGETHER):
            some = by_key[start : start + _TOGETHER]
            repaired += sum(await asyncio.gather(*map(self._follow_key, some)))
            self._say()
        return repaired

    async def _follow_key(self, suspicions: list[Suspicion]) -> int:
        repaired = 0
        # What takes the key away comes first: then nothing else is wrong with it.
        for suspicion in sorted(suspicions, key=lambda one: not one.removes):
            if await self._follow_one(suspicion):
                repaired += 1
                if suspicion.removes:
                    self._again = self._again or suspicion.family in self._led_to
                    break
        return repaired

    async def _follow_one(self, suspicion: Suspicion) -> bool:
        """Whether it was found and repaired."""
        if not await suspicion.confirm():
            return False
        is_new = self.report.is_new(suspicion.code, suspicion.place)
        if is_new and suspicion.sets_aside:
            counts = self.report.aside if _what(suspicion) == "key" else self.report.entries_aside
            tally(counts, suspicion.family, suspicion.size)
        # A key may be found by several codes that delete it; it is deleted once.
        if suspicion.deletes and self.report.is_new("deleted", (id(suspicion.look.store), suspicion.look.key)):
            tally(self.report.deleted, suspicion.family)
        fixed = False
        if self._repairs is not None:
            refused = self._repairs.refuses(suspicion)
            if refused:
                suspicion.note = refused
            else:
                outcome = await _fixed(suspicion)
                if outcome is None:
                    return False  # somebody else has mended it
                fixed = outcome
        if is_new:
            look = suspicion.look
            self.report.add(suspicion.code, look.key, suspicion.family, suspicion.sentence, fixed, suspicion.note)
        return fixed


def _what(suspicion: Suspicion) -> Literal["key", "entry"]:
    return "entry" if isinstance(suspicion, UnreadableEntries) else "key"


class _Asked:
    """Keys that are asked for, store by store, each once."""

    def __init__(self) -> None:
        self.by_store: dict[int, tuple[Store, dict[str, None]]] = {}

    def exists(self, store: Store, key: str) -> tuple[Store, str]:
        held = self.by_store.get(id(store))
        if held is None:
            held = self.by_store[id(store)] = (store, {})
        held[1][key] = None
        return store, key


def _has_seal(entry: Any) -> bool:
    """Whether an entry of any kind holds a sealed text."""
    if isinstance(entry, bytes):
        return b"sealed." in entry
    return isinstance(entry, list | tuple) and any(map(_has_seal, entry))


async def _fixed(suspicion: Suspicion) -> bool | None:
    """Whether it was repaired; None: it is not so any more."""
    for _ in range(_ATTEMPTS):
        try:
            if await suspicion.fix():
                return True
        except (BadValue, CommandError) as error:  # what would have to go with it cannot be told, or it is too much
            suspicion.note = str(error)
        if suspicion.note:
            return False
        if not await suspicion.confirm():
            return None
    return False


async def _set_stranger_aside(store: Store, raw: bytes) -> str:
    """Why it was not done, or nothing."""
    [time, kind, left_ms, [content]] = await store.run([("TIME",), ("TYPE", raw), ("PTTL", raw), ("MGET", raw)])
    if kind == b"none":
        return "it is gone"
    return await set_aside(store, raw, kind.decode(), "unknown-key", ms_of(time), left_ms, content)


def _glob(place: Belonging, narrowed: bool) -> str:
    """What to scan for: everything, or the keys of the only family that is asked for."""
    return place.bounds[0].glob() if narrowed and len(place.bounds) == 1 else "*"
