"""The walk through a store: page by page, every key once, never more in memory than a page."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final, Literal, TypeVar

from keystead.errors import BadValue
from keystead.errors import WrongKind as WrongKindError
from keystead.schema.belonging import Belonging, Member, by_store
from keystead.schema.doctor import relations
from keystead.schema.doctor.contents import UnreadableEntries, UnreadableValue, WrongKind, old_entries, old_form
from keystead.schema.doctor.deadlines import WrongDeadline, wrong_deadline
from keystead.schema.doctor.look import Look, is_model, look_at, ms_of
from keystead.schema.doctor.quarantine import QuarantineKeys, set_aside
from keystead.schema.doctor.relations import DeadEntry, LeadsNowhere, NotListed, Orphan, Place, is_missing
from keystead.schema.doctor.report import Progress, Report, tally
from keystead.schema.doctor.suspicion import Suspicion
from keystead.schema.family import Family
from keystead.schema.keyspace import Keyspace
from keystead.schema.pace import Pace, replies_of
from keystead.schema.reading import SMALL, UNKNOWN, Pages, can_be_read, entry_problem
from keystead.stores import Command, Reply, Store
from keystead.stores.copy.marker import PREFIX as MARKER_PREFIX

_TOGETHER: Final = 16  # suspicions that are followed at the same time
_ATTEMPTS: Final = 3
_PASSES: Final = 4

T = TypeVar("T")
Unknown = Literal["report", "set-aside"]


async def examine(
    keyspaces: Sequence[Keyspace],
    *,
    fix: bool = False,
    families: Collection[Family[Any]] | None = None,
    unknown: Unknown = "report",
    page: int = 200,
    on_progress: Callable[[Progress], None] | None = None,
    examples: int = 20,
) -> Report:
    """Read every key of the stores of these keyspaces, and say what is not as their families say.

    It scans while the stores go on serving others, in small batches with turns for other tasks between them; memory
    does not grow with the stores. What two keys say of each other is looked at in one atomic step before it is
    reported, so a store that is written to at the same time shows nothing that is not so.

    `fix` repairs each finding at once, in a step that holds only if it is still so; what cannot be read is set aside,
    see `QuarantineKeys`. Keys of no family are only reported, unless `unknown` says "set-aside". `families` narrows it
    to some of them; keys of no family are not looked for then.
    """
    walk = _Walk(Report(examples), fix=fix, unknown=unknown, page=page, on_progress=on_progress)
    narrowed = families is not None
    places = by_store(keyspaces, families)
    if not narrowed:
        places = [Belonging(place.store, [*place.bounds, *QuarantineKeys(place.store).bounds()]) for place in places]
    walk.led_to = {
        relation.target for keys in keyspaces for family in keys.families.values() for relation in family.leads_to
    }
    for number in range(_PASSES):
        walk.again = False
        await walk.stores(places, narrowed=narrowed, counts=number == 0)
        if not walk.again:
            break
    return walk.report


class _Walk:
    def __init__(
        self,
        report: Report,
        *,
        fix: bool,
        unknown: Unknown,
        page: int,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self.report = report
        self.led_to: set[Family[Any]] = set()
        self.again = False  # a key was deleted that mappings may lead to, and some of them were looked at before
        self._fix = fix
        self._unknown = unknown
        self._page = page
        self._pace = Pace(page)
        self._on_progress = on_progress
        self._total: int | None = None

    # --- pages ---------------------------------------------------------------------------------------------

    async def stores(self, places: Sequence[Belonging], *, narrowed: bool, counts: bool) -> None:
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
        looks = await look_at(members, place.store, self._pace)
        await self._pace.turn()
        suspected: dict[int, list[Suspicion]] = {}
        readable = []
        for look in looks:
            found = suspected[id(look)] = await self._content(look)
            if not look.wrong_kind and look.problem is None:
                readable.append(look)
                code = wrong_deadline(look)
                if code is not None:
                    found.append(WrongDeadline(look, code))
            await self._pace.turn()
        for look, suspicion in await self._related(readable):
            suspected[id(look)].append(suspicion)
        await self._follow([found for found in suspected.values() if found])
        for look in readable:
            if not look.is_record:
                await self._entries(look)

    # --- one key -------------------------------------------------------------------------------------------

    async def _content(self, look: Look) -> list[Suspicion]:
        """What is wrong with a key in itself. Entries are looked at later, page by page."""
        if look.wrong_kind:
            return [WrongKind(look)]
        if not look.is_record:
            return []
        if is_model(look.bound) and look.entries is None:
            if not can_be_read(look.bound.family.kind, look.size):
                tally(self.report.not_read, look.bound.family)
                return []
            [fields] = await replies_of(look.store, [("HGETALL", look.key)])
            if isinstance(fields, WrongKindError) or not fields:
                return []  # it was replaced meanwhile
            look.fields = fields
        look.read()
        if look.problem is not None:
            return [UnreadableValue(look)]
        if look.value is UNKNOWN:
            tally(self.report.sealed, look.bound.family)
        old = old_form(look)
        return [] if old is None else [old]

    async def _entries(self, look: Look) -> None:
        """What is wrong with the entries of a set, list, log ... or of an index."""
        family = look.bound.family
        if not can_be_read(family.kind, look.size):
            tally(self.report.not_read, family)
            return
        if look.entries is not None and look.size <= SMALL:
            await self._page_of_entries(look, look.entries)
            return
        pages = Pages(look.bound, look.key)
        try:
            async for entries in pages:
                pages.removed = await self._page_of_entries(look, entries)
        except WrongKindError:
            return  # it was replaced meanwhile; what is there now is not what was looked at

    async def _page_of_entries(self, look: Look, entries: list[Any]) -> int:
        """How many of these entries were taken out."""
        good: list[Any] = []
        bad: list[Any] = []
        problem = ""
        for entry in entries:
            why = entry_problem(look.bound, look.key, entry)
            (good if why is None else bad).append(entry)
            problem = problem or why or ""
            await self._pace.turn()
        removed = 0
        if bad and await self._follow([[UnreadableEntries(look, bad, problem)]]):
            removed = len(bad)
        old = old_entries(look, good)
        if old is not None:
            await self._follow([[old]])
        if look.bound.family.lists:
            removed += await self._dead(look, good)
        return removed

    async def _dead(self, look: Look, entries: list[Any]) -> int:
        """How many entries of an index were taken out, because what they name is gone."""
        removed = 0
        for some in self._pieces(relations.named_by(look, entries)):
            commands: list[Command] = [("EXISTS", *names) for _, names in some if names]
            replies = iter(await self._pace.run(look.store, commands, len(some)))
            there = [bool(names) and next(replies) > 0 for _, names in some]
            dead = [DeadEntry(look, data, names) for (data, names), alive in zip(some, there, strict=True) if not alive]
            removed += await self._follow([[one] for one in dead])
            await self._pace.turn()
        return removed

    async def _stranger(self, place: Belonging, raw: bytes) -> None:
        """A key of no family."""
        if raw.startswith(MARKER_PREFIX):  # it says what `keystead copy` brought here, and is to stay
            return
        if not self.report.is_new("unknown-key", (id(place.store), raw)):
            return
        fixed, note = False, ""
        if self._fix and self._unknown == "set-aside":
            note = await _set_stranger_aside(place.store, raw)
            fixed = not note
        self.report.add("unknown-key", raw, None, "no family of the given keyspaces makes it", fixed, note)

    # --- relations -----------------------------------------------------------------------------------------

    async def _related(self, looks: Sequence[Look]) -> list[tuple[Look, Suspicion]]:
        """What looks wrong with the relations of these keys, asked for in one batch a store."""
        asked: dict[int, tuple[Store, dict[Command, None]]] = {}

        def ask(where: Store, command: Command) -> tuple[int, Command]:
            asked.setdefault(id(where), (where, {}))[1][command] = None
            return id(where), command

        orphans: list[tuple[Look, list[Place], list[tuple[int, Command]]]] = []
        leads: list[tuple[Look, Any, Place, tuple[int, Command]]] = []
        listed: list[tuple[Look, Any, tuple[int, Command]]] = []
        for look in looks:
            family = look.bound.family
            if family.owned_by and (owners := relations.owners(look)):
                orphans.append((look, owners, [ask(one.store, ("EXISTS", one.key)) for one in owners]))
            for relation in family.leads_to if look.is_record else ():
                target = relations.target(look, relation)
                if target is not None:
                    leads.append((look, relation, target, ask(target.store, ("EXISTS", target.key))))
            for relation in family.listed_in:
                entry = relations.entry(look, relation)
                if entry is not None:
                    listed.append((look, entry, ask(look.store, relations.asks(entry))))
            await self._pace.turn()
        replies = await self._answers(asked)
        found: list[tuple[Look, Suspicion]] = [
            (look, Orphan(look, owners))
            for look, owners, questions in orphans
            if all(is_missing(replies[question]) for question in questions)
        ]
        for look, relation, target, question in leads:
            if is_missing(replies[question]):
                found.append((look, LeadsNowhere(look, relation, target)))
        for look, entry, question in listed:
            is_no_index = isinstance(replies[question], WrongKindError)
            if is_no_index and self._fix:
                # It is set aside first, so that the record can be listed in a new one.
                await self._follow([[WrongKind(Look(entry.index, entry.key, {}, look.now_ms))]])
            if is_missing(replies[question]) or is_no_index:
                found.append((look, NotListed(look, entry)))
        return found

    async def _answers(self, asked: dict[int, tuple[Store, dict[Command, None]]]) -> dict[tuple[int, Command], Reply]:
        answers: dict[tuple[int, Command], Reply] = {}
        for place, (store, questions) in asked.items():
            commands = list(questions)
            replies = await self._pace.run(store, commands, len(commands))
            answers.update({(place, command): reply for command, reply in zip(commands, replies, strict=True)})
            await self._pace.turn()
        return answers

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
                    self.again = self.again or suspicion.family in self.led_to
                    break
        return repaired

    async def _follow_one(self, suspicion: Suspicion) -> bool:
        """Whether it was found and repaired."""
        if not await suspicion.confirm():
            return False
        fixed = False
        for _ in range(_ATTEMPTS if self._fix else 0):
            try:
                fixed = await suspicion.fix()
            except BadValue as error:  # something that would have to go with it cannot be told
                suspicion.note = str(error)
            if fixed or suspicion.note:
                break
            if not await suspicion.confirm():
                return False  # somebody else has mended it
        if self.report.is_new(suspicion.code, suspicion.place):
            look = suspicion.look
            self.report.add(suspicion.code, look.key, suspicion.family, suspicion.sentence, fixed, suspicion.note)
        return fixed


async def _set_stranger_aside(store: Store, raw: bytes) -> str:
    """Why it was not done, or nothing."""
    [time, kind, left_ms, [content]] = await store.run([("TIME",), ("TYPE", raw), ("PTTL", raw), ("MGET", raw)])
    if kind == b"none":
        return "it is gone"
    return await set_aside(store, raw, kind.decode(), "unknown-key", ms_of(time), left_ms, content)


def _glob(place: Belonging, narrowed: bool) -> str:
    """What to scan for: everything, or the keys of the only family that is asked for."""
    return place.bounds[0].glob() if narrowed and len(place.bounds) == 1 else "*"
