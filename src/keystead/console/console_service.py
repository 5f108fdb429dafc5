"""The console without HTTP: families, pages of keys, an overview, and acts that are audited before they are done."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from keystead.console.console_access import ConsoleAccess
from keystead.console.console_keys import ConsoleKeys
from keystead.console.key_visibility import hides_values, shown_key, shown_value
from keystead.console.value_editor import save_form
from keystead.errors import KeysteadError
from keystead.kits.kit import Site
from keystead.schema import Keyspace
from keystead.schema.browsing import KeyContent, KeyPage, RelatedKey, read_content, related_keys, scan_page
from keystead.schema.clock import store_clock_ms
from keystead.schema.deletion import Plan
from keystead.schema.erasure import ErasurePlan, erase, plan_erase, subject_kinds, value_of
from keystead.schema.family import Bound, Family
from keystead.schema.family_lookup import by_store, name_of
from keystead.schema.keyspace import with_parts
from keystead.schema.lifetime import After, Sliding, Spread
from keystead.schema.survey import Survey, survey
from keystead.stores import Store

SAMPLE_S: Final = 1.0
HEALTH_S: Final = 3.0
_EVENTS: Final = {"delete": "console-deleted", "renew": "console-renewed", "edit": "console-edited"}


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
class FamilySize:
    """A family with its estimated number of keys and bytes. `is_estimate`: extrapolated from a sample."""

    bound: Bound[Any]
    count: int
    bytes: int
    is_estimate: bool


@dataclass(frozen=True, slots=True)
class Overview:
    stores: Sequence[StoreState]
    sizes: Mapping[str, Sequence[FamilySize]]  # by keyspace
    unknown: int
    shapes: Mapping[str, int]
    is_sample: bool


@dataclass(frozen=True, slots=True)
class ShownKey:
    """All that the page of a key shows."""

    content: KeyContent
    value: Any
    entries: Sequence[Any]
    related: Sequence[RelatedKey]


class Console:
    """The console of some keyspaces. They are bound to the stores of the console's own keyspace.

    known   keyspaces whose keys are not unknown, although they are not shown
    """

    def __init__(
        self,
        keys: ConsoleKeys,
        classes: Sequence[type[Keyspace]],
        site: Site,
        known: Sequence[type[Keyspace]] = (),
    ) -> None:
        others: dict[str, Any] = {role: store for role, store in keys.roles.items() if role != "default"}
        shown = [one for one in with_parts(classes) if one is not ConsoleKeys]
        self.keyspaces: list[Keyspace] = [
            one(keys.roles["default"], seal=keys.ring, needs_seal=False, now_ms=keys.now_ms, **others) for one in shown
        ]
        self.known: list[type[Keyspace]] = [ConsoleKeys, *known]
        self.access = ConsoleAccess(keys)
        self.site = site
        self._stores = keys.roles
        self._by_name = {
            (type(one).__name__, bound.family.name): bound
            for one in self.keyspaces
            for bound in one.bounds()
            if bound.family.kind != "channel"
        }

    @property
    def families(self) -> dict[str, list[Bound[Any]]]:
        """The families by keyspace, as declared."""
        found: dict[str, list[Bound[Any]]] = {}
        for (keyspace, _), bound in self._by_name.items():
            found.setdefault(keyspace, []).append(bound)
        return found

    def family(self, keyspace: str, family: str) -> Bound[Any] | None:
        return self._by_name.get((keyspace, family))

    def find_key(self, text: str) -> tuple[Bound[Any], str] | None:
        """The family of this key, by its name alone."""
        for place in by_store(self.keyspaces):
            member = place.of(text.encode("utf-8", "surrogatepass"))
            if member is not None:
                return member.bound, member.key
        return None

    # --- reading -------------------------------------------------------------------------------------------

    async def overview(self) -> Overview:
        """The stores, and a sample of their keys. Takes a few seconds at most, however many keys there are."""
        stores = await self._store_states()
        readable = [one for one in self.keyspaces if not self._is_down(one, stores)]
        found = await self._survey(readable) if readable else Survey([])
        is_sample = found.is_cut and found.total is not None and found.examined > 0
        scale = max(1.0, (found.total or 0) / found.examined) if is_sample else 1.0
        sizes: dict[str, list[FamilySize]] = {}
        by_family = {one.family: one for one in found.families}
        for keyspace, bounds in self.families.items():
            for bound in bounds:
                one = by_family.get(bound.family)
                if one is not None:
                    size = FamilySize(bound, round(one.count * scale), round(one.bytes * scale), is_sample or one.about)
                    sizes.setdefault(keyspace, []).append(size)
        return Overview(stores, sizes, round(found.unknown * scale), _count_shapes(found), is_sample)

    async def _survey(self, keyspaces: Sequence[Keyspace]) -> Survey:
        listing = [one for one in keyspaces if all(store.guarantees.scans for store in one.stores)]
        if not listing:
            return Survey([])
        return await survey(listing, None, 0, known=self.known, limit_s=SAMPLE_S)

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

    def _is_down(self, keyspace: Keyspace, states: Sequence[StoreState]) -> bool:
        down = {id(one.store) for one in states if one.problem is not None}
        return any(id(store) in down for store in keyspace.stores)

    async def page(self, bound: Bound[Any], filters: Mapping[str, str], cursor: str) -> KeyPage:
        """One page of a family. Raises BadKey for a filter that is not a value of its placeholder."""
        pattern = bound.family.pattern
        values = {name: value_of(pattern, name, text) for name, text in filters.items()}
        if values and set(values) == set(pattern.names):
            key = bound(**values)
            there = await key.exists()
            return KeyPage([key.key] if there else [], "", 1)
        return await scan_page(bound, values, cursor)

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
        await self._note("delete", bound, key, actor)
        return bool(await bound.key(key).delete())

    def can_renew(self, bound: Bound[Any]) -> bool:
        return isinstance(bound.family.lifetime, Sliding | After | Spread)

    async def renew(self, bound: Bound[Any], key: str, actor: Actor) -> bool:
        """Start its declared lifetime again. False: there is no such key."""
        await self._note("renew", bound, key, actor)
        lifetime = bound.family.lifetime
        record = bound.key(key)
        if not isinstance(lifetime, Sliding):
            record = record.lasting(lifetime.longest_ms)
        return bool(await record.touch())

    async def edit(self, bound: Bound[Any], key: str, version: str, given: Mapping[str, str], actor: Actor) -> None:
        """As `save_form`."""
        await save_form(bound, key, version, given, lambda: self._note("edit", bound, key, actor))

    async def _note(self, act: str, bound: Bound[Any], key: str, actor: Actor) -> None:
        """The audit entry comes before the act: if it cannot be written, nothing is done."""
        what = f"{name_of(bound.family)} {shown_key(bound, key)}"
        await self.access.audit.note(_EVENTS[act], who=actor.who, what=what, where=actor.where)

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

    async def erase(self, subject: str, actor: Actor) -> tuple[int, int, int]:
        """Erase a person. Returns how many keys and rows were deleted, and how many keys are left."""
        tables = self.site.tables
        subjects = [subject, *([] if tables is None else await tables.known_as(subject))]
        await self.access.audit.note("console-erased", who=actor.who, what=subject, where=actor.where)
        # Keys before rows, and the keys again: a request in between may have cached a row.
        erased, *others = [await erase(self.keyspaces, one) for one in subjects]
        rows = 0
        if tables is not None:
            rows = sum([sum((await tables.erase(one)).values()) for one in subjects])
            others += [await erase(self.keyspaces, one) for one in subjects] if rows else []
        for other in others:
            erased.include(other)
        return erased.keys, rows, erased.left


async def _problem_of(store: Store) -> str | None:
    try:
        async with asyncio.timeout(HEALTH_S):
            await store_clock_ms(store)
    except KeysteadError as error:
        return str(error)
    except TimeoutError:
        return f"no answer within {HEALTH_S:g} seconds"
    return None


def _count_shapes(found: Survey) -> dict[str, int]:
    return {str(one["shape"]): int(one["count"]) for one in found.unknown_shapes.as_json()}
