"""The console without HTTP: families, pages of keys, an overview, and acts that are audited before they are done."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple

from keystead.catalogue import message
from keystead.console.console_access import ConsoleAccess
from keystead.console.console_findings import ConsoleFindings
from keystead.console.console_keys import ConsoleKeys, Examination, Removal, Role
from keystead.console.console_live import ConsoleLive
from keystead.console.console_measures import ConsoleMeasures, Sizes, sizes_of
from keystead.console.console_operations import ConsoleOperations
from keystead.console.console_tasks import ConsoleTasks, IsStillIn
from keystead.console.console_undo import Before, ConsoleUndos, put_back
from keystead.console.hash_editor import save_hash
from keystead.console.key_visibility import hides_values, shown_key, shown_value
from keystead.console.shape_keys import shape_matcher
from keystead.console.value_editor import save_value
from keystead.errors import KeysteadError
from keystead.kits.kit import Site
from keystead.parts.schedule import Job, Run
from keystead.schema import Keyspace
from keystead.schema.browsing import KeyContent, KeyPage, RelatedKey, read_content, related_keys, scan_page
from keystead.schema.clock import store_clock_ms
from keystead.schema.deletion import Plan
from keystead.schema.doctor import Progress
from keystead.schema.erasure import Erased, ErasurePlan, ErasureProgress, erase, plan_erase, subject_kinds, value_of
from keystead.schema.family import Bound, Family
from keystead.schema.family_lookup import Belonging, KnownKeys, by_store, name_of
from keystead.schema.infer import infer, keys_module
from keystead.schema.keyspace import with_parts
from keystead.schema.kinds import Hash
from keystead.schema.lifetime import After, Sliding, Spread
from keystead.schema.quarantine import with_quarantine
from keystead.schema.restart import restart_lifetime
from keystead.stores import Store

Report = Callable[[Progress], None]

HEALTH_S: Final = 3.0
_NO_ANSWER: Final = message("no answer within 3 seconds")
PAGE_S: Final = 0.2  # for one page of keys: a sparse family takes several pages, and none of them is waited for long
_MEASURE: Final = "7 * * * *"
_UNKNOWN_KEYS: Final = "UnknownKeys"
_LONGEST_DRAFT: Final = 200_000


class Actor(NamedTuple):
    """Who acts, for the audit log."""

    who: str
    where: str


@dataclass(frozen=True, slots=True)
class StoreState:
    """A store, its roles, and why it does not answer."""

    roles: str
    store: Store
    problem: str | None


@dataclass(frozen=True, slots=True)
class Overview:
    stores: Sequence[StoreState]
    sizes: Sizes
    last: Examination | None


@dataclass(frozen=True, slots=True)
class ShownKey:
    """All that the page of a key shows."""

    content: KeyContent
    value: Any
    entries: Sequence[Any]
    related: Sequence[RelatedKey]


class Console:
    """The console of some keyspaces. They are bound to the stores of the console's own keyspace.

    known    keyspaces whose keys are not unknown, although they are not shown
    examine  when the schedule searches for defects, as a cron expression; "": only on demand, and without hourly
             measures
    roles    the roles of signed-in users, by their subject, such as `login:42`
    """

    def __init__(
        self,
        keys: ConsoleKeys,
        classes: Sequence[type[Keyspace]],
        site: Site,
        *,
        known: Sequence[type[Keyspace]] = (),
        examine: str = "",
        roles: Mapping[str, Role] | None = None,
    ) -> None:
        others: dict[str, Any] = {role: store for role, store in keys.roles.items() if role != "default"}
        shown = [one for one in with_parts(classes) if one is not ConsoleKeys]
        self.keyspaces: list[Keyspace] = [
            one(keys.roles["default"], seal=keys.ring, needs_seal=False, now_ms=keys.now_ms, **others) for one in shown
        ]
        self.known: list[type[Keyspace]] = [ConsoleKeys, *known]
        self.now_ms = keys.now_ms
        self.roles: Mapping[str, Role] = roles or {}
        self.access = ConsoleAccess(keys)
        self.tasks = ConsoleTasks(keys)
        self.undos = ConsoleUndos(keys)
        self.measures = ConsoleMeasures(keys, self.known)
        self.findings = ConsoleFindings(keys, self.keyspaces, self.known, self.find_key)
        self.operations = ConsoleOperations(self.keyspaces, self.access.audit)
        self.live = ConsoleLive(self.keyspaces)
        self.site = site
        self._own = keys.bounds()
        self._examine = examine
        self._places = by_store(self.keyspaces)
        self._stores = keys.roles
        self._by_name = {
            (type(one).__name__, bound.family.name): bound
            for one in self.keyspaces
            for bound in one.bounds()
            if bound.family.kind != "channel"
        }

    @property
    def jobs(self) -> list[Job]:
        """What the schedule does for the console."""
        if not self._examine:
            return []
        measure = Job(
            "console.measure", _MEASURE, self._measure, doc=message("Measures the sizes of families, for trends.")
        )
        examine = Job(
            "console.examine", self._examine, self._examine_all, doc=message("Searches for defects. Repairs nothing.")
        )
        return [measure, examine]

    async def _measure(self, run: Run) -> dict[str, int | str]:
        made = await self.measures.measure(self.keyspaces)
        return {"keys": sum(one.count for one in made.families.values()), "unknown": made.unknown}

    async def _examine_all(self, run: Run) -> dict[str, int | str]:
        found = await self.findings.examine("schedule", lambda progress: None)
        return {"examined": found.examined, "findings": found.findings}

    @property
    def families(self) -> dict[str, list[Bound[Any]]]:
        """The families by keyspace, as declared."""
        found: dict[str, list[Bound[Any]]] = {}
        for (keyspace, _), bound in self._by_name.items():
            found.setdefault(keyspace, []).append(bound)
        return found

    def family(self, keyspace: str, family: str) -> Bound[Any] | None:
        return self._by_name.get((keyspace, family))

    def is_own(self, key: str) -> bool:
        """Whether it is a key of the console itself, such as a session: a wide pattern of another family may fit it."""
        return any(bound.parse(key) is not None for bound in self._own if bound.family.kind != "channel")

    def find_key(self, text: str) -> tuple[Bound[Any], str] | None:
        """The family of this key, by its name alone."""
        if self.is_own(text):
            return None
        for place in self._places:
            member = place.of(text.encode("utf-8", "surrogatepass"))
            if member is not None:
                return member.bound, member.key
        return None

    # --- reading -------------------------------------------------------------------------------------------

    async def overview(self, *, measure: bool = False) -> Overview:
        """The stores and the sizes of families, measured lately or now. That takes about a second for each store."""
        stores = await self._store_states()
        measures = await self.measures.latest()
        if measure or not self.measures.is_recent(measures):
            down = {id(one.store) for one in stores if one.problem is not None}
            readable = [one for one in self.keyspaces if not any(id(store) in down for store in one.stores)]
            made = await self.measures.measure(readable, keep=len(readable) == len(self.keyspaces))
            measures = [made, *measures]
        last, _ = await self.findings.latest()
        return Overview(stores, sizes_of(measures, list(self._by_name.values())), last)

    async def _store_states(self) -> list[StoreState]:
        roles: dict[int, list[str]] = {}
        stores = {id(store): store for store in self._stores.values()}
        for role, store in self._stores.items():
            roles.setdefault(id(store), []).append(role)
        problems = await asyncio.gather(*(_problem_of(store) for store in stores.values()))
        return [
            StoreState(", ".join(roles[place]), store, problem)
            for (place, store), problem in zip(stores.items(), problems, strict=True)
        ]

    async def page(self, bound: Bound[Any], filters: Mapping[str, str], cursor: str) -> KeyPage:
        """One page of a family. Raises BadKey for a filter that is not a value of its placeholder.

        A key that the filters name in full, or the one key of a family without placeholders, is not searched for: a
        search ends before it has seen all keys of a large store.
        """
        pattern = bound.family.pattern
        values = {name: value_of(pattern, name, text) for name, text in filters.items()}
        if set(values) == set(pattern.names):
            key = bound(**values)
            found = KeyPage([key.key] if await key.exists() else [], "", 1)
        else:
            found = await scan_page(bound, values, cursor, limit_s=PAGE_S)
        return found._replace(keys=[key for key in found.keys if not self.is_own(key)])

    async def lifetimes(self, bound: Bound[Any], keys: Sequence[str]) -> list[int | None]:
        """How long each of these keys will live, in ms; None: forever. One round trip."""
        left = await bound.keyspace.run_each(*(bound.key(key).left_ms() for key in keys))
        return [one if isinstance(one, int) and one >= 0 else None for one in left]

    async def show(self, bound: Bound[Any], key: str) -> ShownKey:
        """A key with its value, credentials and sealed fields hidden, and what it is related to."""
        content = await read_content(bound, key)
        family: Family[Any] = bound.family
        related = await related_keys(bound, key) if content.kind == family.kind else []
        entries = [shown_value(family, one) for one in content.entries]
        return ShownKey(content, shown_value(family, content.value), entries, related)

    def shows_bytes(self, bound: Bound[Any]) -> bool:
        """Whether the stored bytes of this family may be shown: they contain no credential."""
        return not hides_values(bound.family)

    # --- acts ----------------------------------------------------------------------------------------------

    async def plan_delete(self, bound: Bound[Any], key: str) -> Plan:
        plan: Plan = await bound.key(key).plan_delete()
        return plan

    async def delete(self, bound: Bound[Any], key: str, actor: Actor) -> bool:
        """Delete a key with its cascade. False: there was no such key."""
        await self._note_key("console-deleted", bound, key, actor)
        return bool(await bound.key(key).delete())

    async def reset_limit(self, bound: Bound[Any], key: str, actor: Actor) -> bool:
        """Forget what a client has used of a rate limit. False: there was no such key."""
        await self._note_key("console-limit-reset", bound, key, actor)
        return bool(await bound.key(key).delete())

    def can_renew(self, bound: Bound[Any]) -> bool:
        return isinstance(bound.family.lifetime, Sliding | After | Spread)

    async def renew(self, bound: Bound[Any], key: str, actor: Actor) -> Before | None:
        """Start its declared lifetime again. Returns what was before; None: there is no such key."""
        await self._note_key("console-renewed", bound, key, actor)
        done = await restart_lifetime(bound, key)
        return None if done is None else Before(*_names(bound), key, restart=done)

    async def edit(self, bound: Bound[Any], key: str, given: Mapping[str, str], actor: Actor) -> Before:
        """As `save_value`. Returns what was before."""

        async def note() -> None:
            await self._note_key("console-edited", bound, key, actor)

        save = save_hash if isinstance(bound.family, Hash) else save_value
        return Before(*_names(bound), key, *await save(bound, key, given, note))

    async def undo(self, before: Before, actor: Actor) -> bool:
        """Undo an edit or a renewal. False: the key was changed since, and nothing was done."""
        bound = self.family(before.keyspace, before.family)
        if bound is None:
            return False
        await self._note_key("console-undone", bound, before.key, actor)
        return await put_back(bound, before)

    async def _note_key(self, event: str, bound: Bound[Any], key: str, actor: Actor) -> None:
        await self.note(event, actor, f"{name_of(bound.family)} {shown_key(bound, key)}")

    async def note(self, event: str, actor: Actor, what: str) -> None:
        """The audit entry comes before the act: if it cannot be written, nothing is done."""
        await self.access.audit.note(event, who=actor.who, what=what, where=actor.where)

    # --- work on many keys ---------------------------------------------------------------------------------

    async def start_examination(self, actor: Actor, is_still_in: IsStillIn) -> bool:
        """Examine all keys in the background. False: an examination is running."""

        async def work(report: Report) -> dict[str, Any]:
            await self.findings.examine(actor.who, report)
            return {}

        await self.note("console-examined", actor, "all keys")
        return await self.tasks.start("examine", "", actor.who, is_still_in, work)

    async def start_repair(
        self, code: str, key: str | None, confirmed: Sequence[Removal], actor: Actor, is_still_in: IsStillIn
    ) -> bool:
        """Repair a code, or the finding of one key, in the background. False: a repair is running."""

        async def work(report: Report) -> dict[str, Any]:
            await self.findings.repair(code, key, confirmed, actor.who, report)
            return {}

        what = code if key is None else f"{code} {self.shown_name(key)}"
        await self.note("console-repaired", actor, what)
        return await self.tasks.start("repair", what, actor.who, is_still_in, work)

    async def start_draft(self, shape: str, actor: Actor, is_still_in: IsStillIn) -> bool:
        """Draft families for the keys of no family, or for those of one shape, in the background.

        False: a draft is being made.
        """

        async def work(report: Report) -> dict[str, Any]:
            return await self._draft(shape, report)

        await self.note("console-drafted", actor, shape or "unknown keys")
        return await self.tasks.start("draft", shape, actor.who, is_still_in, work)

    async def _draft(self, shape: str, report: Report) -> dict[str, Any]:
        has_shape = shape_matcher(shape) if shape else lambda raw: True
        known = KnownKeys(self.known)
        texts = []
        for number, place in enumerate(with_quarantine(self._places)):

            def is_skipped(raw: bytes, place: Belonging = place) -> bool:
                return not has_shape(raw) or place.of(raw) is not None or known.keyspace_of(raw) is not None

            found = await infer(
                place.store,
                name=_UNKNOWN_KEYS if not number else f"{_UNKNOWN_KEYS}{number + 1}",
                skip=is_skipped,
                on_progress=lambda now: report(Progress(now.examined, None, 0, 0)),
            )
            if found.draft.families:
                texts.append(keys_module(found.draft))
        return {"text": "\n\n".join(texts)[:_LONGEST_DRAFT]}

    def shown_name(self, key: str) -> str:
        """A key of any family, with credentials masked."""
        found = self.find_key(key)
        return key if found is None else shown_key(*found)

    # --- erasing a person ----------------------------------------------------------------------------------

    @property
    def subject_kinds(self) -> list[str]:
        return subject_kinds(self.keyspaces)

    async def plan_erase(self, subject: str) -> tuple[ErasurePlan, dict[str, int], list[str]]:
        """The keys and rows of a person, and the other ids they are known by. Raises BadArgument."""
        tables = self.site.tables
        subjects = [subject, *([] if tables is None else await tables.known_as(subject))]
        plan, *others = [await plan_erase(self.keyspaces, one, shown=200) for one in subjects]
        for other in others:
            plan.include(other)
        rows: dict[str, int] = {}
        if tables is not None:
            for one in subjects:
                for table, count in (await tables.count_of(one)).items():
                    rows[table] = rows.get(table, 0) + count
        return plan, rows, subjects

    async def start_erasure(self, subject: str, actor: Actor, is_still_in: IsStillIn) -> bool:
        """Erase a person in the background. False: an erasure is running. After an interruption, start it again."""

        async def work(report: Report) -> dict[str, Any]:
            return await self._erase(subject, report)

        await self.note("console-erased", actor, subject)
        return await self.tasks.start("erase", subject, actor.who, is_still_in, work)

    async def _erase(self, subject: str, report: Report) -> dict[str, Any]:
        tables = self.site.tables
        subjects = [subject, *([] if tables is None else await tables.known_as(subject))]
        erased, rows = Erased(subject), 0
        before = Progress(0, None, 0, 0)  # of the passes that are complete
        latest = before

        def tell(now: ErasureProgress) -> None:
            nonlocal latest
            # Of the keys that were found, all but the last one are certainly deleted.
            latest = Progress(before.examined + now.examined, None, 0, before.fixed + max(0, now.found - 1))
            report(latest)

        async def erase_keys() -> None:
            nonlocal before
            for one in subjects:
                erased.include(await erase(self.keyspaces, one, on_progress=tell))
                before = replace(latest, fixed=erased.keys)
                report(before)

        await erase_keys()
        if tables is not None:
            rows = sum([sum((await tables.erase(one)).values()) for one in subjects])
            if rows:  # the keys again: a request in between may have cached a row
                erased.left = 0
                await erase_keys()
        return {"rows": rows, "left": erased.left}


async def _problem_of(store: Store) -> str | None:
    try:
        async with asyncio.timeout(HEALTH_S):
            await store_clock_ms(store)
    except KeysteadError as error:
        return str(error)
    except TimeoutError:
        return _NO_ANSWER
    return None


def _names(bound: Bound[Any]) -> tuple[str, str]:
    return type(bound.keyspace).__name__, bound.family.name
