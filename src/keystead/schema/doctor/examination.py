"""The doctor's walk through the stores: page by page, with never more than a page in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, Literal

from keystead.errors import WrongKind as WrongKindError
from keystead.errors import WrongSealKey
from keystead.schema.chunked_reading import SMALL, UNKNOWN, can_be_read
from keystead.schema.doctor.contents import KindSuspicion, TooLong, UnreadableValue, find_old_form
from keystead.schema.doctor.deadlines import WrongDeadline
from keystead.schema.doctor.entry_examination import EntryExamination
from keystead.schema.doctor.family_facts import Facts
from keystead.schema.doctor.follow_up import FollowUp
from keystead.schema.doctor.key_state import KeyState, look_at, ms_of
from keystead.schema.doctor.relation_examination import RelationExamination
from keystead.schema.doctor.removal_limits import TOO_MANY, RemovalLimits
from keystead.schema.doctor.report import Progress, Report, add_count, tally
from keystead.schema.doctor.suspicion import Suspicion
from keystead.schema.family import Bound, Family
from keystead.schema.family_lookup import Belonging, KnownKeys, Member, by_store, total_keys
from keystead.schema.keyspace import Keyspace
from keystead.schema.pace import Pace, replies_of
from keystead.schema.paced_scan import paced_scan
from keystead.schema.quarantine import set_aside, with_quarantine
from keystead.stores import Store
from keystead.stores.backup.restoring import CHECKPOINT_PREFIX
from keystead.stores.copy.marker import MARKER_PREFIX

# Bookkeeping keys that `keystead copy` and `keystead restore` leave in a store while they run.
NOTES_PREFIXES: Final = (MARKER_PREFIX, CHECKPOINT_PREFIX.encode())
TOOLS_NOTES: Final = "keystead copy and restore"
_PASSES: Final = 4
_PAGE: Final = 500

Unknown = Literal["report", "set-aside"]
SetAside = Literal["few", "all"]


async def examine(
    keyspaces: Sequence[Keyspace],
    *,
    families: Collection[Family[Any]] | None = None,
    known: Collection[type[Keyspace]] = (),
    page: int = _PAGE,
    on_progress: Callable[[Progress], None] | None = None,
    examples: int = 20,
) -> Report:
    """Read every key in the stores of these keyspaces and report what contradicts their families. Read-only.

    It scans in small batches and yields to other tasks in between, so the stores keep serving; memory does not grow
    with the stores. A contradiction between two keys is confirmed in one atomic step before it is reported, so
    concurrent writes cause no false findings.

    `families` limits it to some of them; unknown keys are not searched for then. Keys of `known` keyspaces are counted
    in `others`: they are neither examined nor unknown, in any store.
    """
    walk = _Walk(Report(examples), None, keyspaces, page=page, on_progress=on_progress)
    await walk.examine_all(keyspaces, families, known)
    return walk.report


async def repair(
    keyspaces: Sequence[Keyspace],
    *,
    plan: Report | None = None,
    set_aside: SetAside = "few",
    unknown: Unknown = "report",
    codes: Collection[str] | None = None,
    keys: Collection[str] | None = None,
    families: Collection[Family[Any]] | None = None,
    known: Collection[type[Keyspace]] = (),
    page: int = _PAGE,
    on_progress: Callable[[Progress], None] | None = None,
    examples: int = 20,
) -> Report:
    """Repair each finding in a step that is guarded by what was found; unreadable content is quarantined.

    `plan` is the report of `examine` with the same arguments; without one it examines first. Raises WrongSealKey, and
    repairs nothing, if not one sealed value of a family opens: then the key is wrong. Quarantining or deleting more
    than 1 % of a family is refused, unless `set_aside` is "all" (see `QuarantineKeys`). If every key of a family would
    be deleted because its owner or target is gone (`Report.astray`), none is, whatever `set_aside` says. Keys of no
    family are only reported, unless `unknown` is "set-aside"; the same limit applies, as a share of all keys. `codes`
    and `keys` limit the repair to findings of these codes and keys; others are only reported.
    """
    if plan is None:
        plan = await examine(keyspaces, families=families, known=known, page=page, examples=examples)
    if plan.locked:
        raise WrongSealKey(plan.locked)
    limits = RemovalLimits(plan, unknown == "set-aside", set_aside == "all", codes, keys)
    walk = _Walk(Report(examples), limits, keyspaces, page=page, on_progress=on_progress)
    await walk.examine_all(keyspaces, families, known)
    return walk.report


class _Walk:
    def __init__(
        self,
        report: Report,
        limits: RemovalLimits | None,
        keyspaces: Sequence[Keyspace],
        *,
        page: int,
        on_progress: Callable[[Progress], None] | None,
    ) -> None:
        self.report = report
        self._limits = limits
        self._page = page
        self._pace = Pace(page)
        self._facts: dict[Bound[Any], Facts] = {}
        self._known = KnownKeys(())
        led_to = {
            relation.target for keys in keyspaces for family in keys.families.values() for relation in family.leads_to
        }
        self._follow_up = FollowUp(report, limits, led_to, on_progress)
        self._entries = EntryExamination(self._follow_up, self._pace)
        self._relations = RelationExamination(self._follow_up, self._pace)

    async def examine_all(
        self,
        keyspaces: Sequence[Keyspace],
        families: Collection[Family[Any]] | None,
        known: Collection[type[Keyspace]],
    ) -> None:
        narrowed = families is not None
        places = by_store(keyspaces, families)
        if not narrowed:
            places = with_quarantine(places)
        self._known = KnownKeys(known)
        self._facts = {bound: Facts(bound) for place in places for bound in place.bounds}
        for number in range(_PASSES):
            self._follow_up.needs_another_pass = False
            await self._examine_stores(places, narrowed=narrowed, counts=number == 0)
            if not self._follow_up.needs_another_pass:
                break

    async def _examine_stores(self, places: Sequence[Belonging], *, narrowed: bool, counts: bool) -> None:
        """One pass. Only the first counts keys: a later one follows up the changes of the previous one."""
        globs = [place.glob(narrowed) for place in places]
        if all(glob == "*" for glob in globs):
            self._follow_up.total = await total_keys(places)
        for place, glob in zip(places, globs, strict=True):
            async for some in paced_scan(place.store, glob, self._pace, page=self._page):
                keys = some or ()  # there is no time limit
                await self._examine_keys(place, keys, narrowed)
                if counts:
                    self.report.examined += len(keys)
                self._follow_up.report_progress()
        if counts:
            self._add_totals()

    def _add_totals(self) -> None:
        for facts in self._facts.values():
            add_count(self.report.keys, facts.name, facts.keys)
            add_count(self.report.entries, facts.name, facts.entries)
            for code, count in facts.intact.items():
                add_count(self.report.intact.setdefault(code, {}), facts.name, count)

    async def _examine_keys(self, place: Belonging, keys: Sequence[bytes], narrowed: bool) -> None:
        members: list[Member] = []
        for raw in keys:
            member = place.of(raw)
            if member is not None:
                members.append(member)
            elif not narrowed:
                await self._examine_stranger(place, raw)
        if not members:
            return
        await self._pace.turn()
        looks = await look_at(members, place.store, self._pace)
        await self._pace.turn()
        suspected, readable = await self._examine_contents(looks)
        for look, suspicion in await self._relations.examine(readable):
            suspected.setdefault(id(look), []).append(suspicion)
        await self._pace.turn()
        await self._follow_up.follow(list(suspected.values()))
        await self._entries.examine([(look, facts) for look, facts in readable if not facts.is_record])

    async def _examine_contents(
        self, looks: Sequence[KeyState]
    ) -> tuple[dict[int, list[Suspicion]], list[tuple[KeyState, Facts]]]:
        """The problems of each single key, by the id of its state; and the readable keys."""
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
            if self._pace.is_due_at(number):
                await self._pace.turn()
        return suspected, readable

    def _content(self, look: KeyState, facts: Facts) -> list[Suspicion]:
        """The problems of a single key. Entries are examined later, page by page."""
        if look.wrong_kind:
            return [KindSuspicion(look)]
        if not facts.is_record:
            return [TooLong(look)] if facts.keeps is not None and look.size > facts.keeps else []
        facts.read(look)
        if look.problem is not None:
            self.report.count_unopened(look.problem, facts.name)
            return [UnreadableValue(look)]
        if look.value is UNKNOWN:
            tally(self.report.sealed, look.bound.family)
            return []
        if not facts.may_be_old:
            return []
        if facts.is_sealed and b"sealed." in (look.raw or b"".join(look.fields.values())):
            add_count(self.report.opened, facts.name)
        old = find_old_form(look)
        return [] if old is None else [old]

    async def _large_record(self, look: KeyState) -> list[Suspicion] | None:
        """Read a record that is too large to be read with others. Returns a list if that ends its examination."""
        if not can_be_read(look.bound.family.kind, look.size):
            tally(self.report.not_read, look.bound.family)
            return []
        [fields] = await replies_of(look.store, [("HGETALL", look.key)])
        if isinstance(fields, WrongKindError) or not fields:
            return []  # it was replaced meanwhile
        look.fields = fields
        return None

    async def _examine_stranger(self, place: Belonging, raw: bytes) -> None:
        """A key of none of the examined families."""
        other = TOOLS_NOTES if raw.startswith(NOTES_PREFIXES) else self._known.keyspace_of(raw)
        if other is not None:
            add_count(self.report.others, other)
            return
        if not self.report.is_new("unknown-key", (id(place.store), raw)):
            return
        self.report.unknown.add(raw)
        fixed, note = False, ""
        if self._limits is not None and self._limits.unknown:
            allowed = self._limits.allow("", 1, "key")
            note = await _quarantine_stranger(place.store, raw) if allowed else TOO_MANY
            fixed = not note
        self.report.add("unknown-key", raw, None, "it matches no family of the given keyspaces", fixed, note)


async def _quarantine_stranger(store: Store, raw: bytes) -> str:
    """Returns why it was not done; empty if it was."""
    [time, kind, left_ms, [content]] = await store.run([("TIME",), ("TYPE", raw), ("PTTL", raw), ("MGET", raw)])
    if kind == b"none":
        return "it is gone"
    return await set_aside(store, raw, kind.decode(), "unknown-key", ms_of(time), left_ms, content)
