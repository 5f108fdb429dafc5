"""`check`: findings from the declarations of keyspaces, without reading a store."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import combinations, zip_longest
from typing import Any

from keystead.errors import printable
from keystead.schema.family import Family
from keystead.schema.family_lookup import name_of
from keystead.schema.finding import CODES, Finding
from keystead.schema.keyspace import Keyspace
from keystead.schema.lifetime import EndOfDay, Lifetime, Sliding, Until, in_words
from keystead.schema.procedure import Procedure
from keystead.schema.procedure_tracing import traced
from keystead.schema.store_fit import misfits, weaknesses
from keystead.stores import Guarantees


def check(
    keyspaces: Sequence[type[Keyspace]],
    guarantees: Mapping[str, tuple[str, Guarantees]] | None = None,
    cluster: bool = False,
) -> list[Finding]:
    """The findings of these keyspaces together: rule by rule, each in the order of declaration.

    `guarantees` describes the stores by role: the name or URL of the store, and what it promises. A role that is not
    given falls back to `default`. Without them no store is assumed, and all roles may share one. `cluster` treats every
    store as a cluster.

    An error in a single declaration is raised on import, as BadDeclaration.
    """
    families = list(dict.fromkeys(family for one in keyspaces for family in one.families.values()))
    stores = _Stores(guarantees, cluster)
    found = [*_overlaps(families, stores), *_naming(keyspaces)]
    for rule in (_misfits, _weak, _across_slots):
        found += [finding for family in families for finding in rule(family, stores)]
    for keyspace in keyspaces:
        found += _procedures(keyspace, stores)
    for family in families:
        found += [_finding("index-too-short", family, why) for why in _too_short(family)]
        found += [_finding("outlives-owner", family, why) for why in _outliving(family)]
        found += [_finding("until-field", family, why) for why in _misspelt_moments(family)]
    return found + [
        _finding("undocumented", family, "it has no documentation") for family in families if not family.doc
    ]


@dataclass(frozen=True)
class _Stores:
    """The stores by role, as far as they are known."""

    by_role: Mapping[str, tuple[str, Guarantees]] | None
    cluster: bool

    def of(self, family: Family[Any]) -> tuple[str, Guarantees] | None:
        if self.by_role is None:
            return None
        return self.by_role.get(family.role, self.by_role.get("default"))

    def may_be_one(self, one: Family[Any], other: Family[Any]) -> bool:
        """Whether two families may share a store. Without stores they may: every role falls back to one."""
        first, second = self.of(one), self.of(other)
        return first is None or second is None or first[0] == second[0]

    def has_slots(self, family: Family[Any]) -> bool:
        store = self.of(family)
        return self.cluster or (store is not None and store[1].atomic == "one slot")


def _finding(code: str, family: Family[Any], sentence: str, key: str | None = None) -> Finding:
    return Finding(code, family.place, sentence, CODES[code].remedy, name_of(family), key)


def _overlaps(families: Sequence[Family[Any]], stores: _Stores) -> Iterator[Finding]:
    for one, other in combinations(families, 2):
        # Channels have their own namespace: a message to `user:1` does not touch the key `user:1`.
        if (one.kind == "channel") is not (other.kind == "channel") or not stores.may_be_one(one, other):
            continue
        key = one.pattern.overlap(other.pattern) if _may_overlap(one, other) else None
        if key is not None:
            what = "channel" if one.kind == "channel" else "key"
            both = f"{one.place} and {other.place} can both produce the {what} {printable(key)}"
            yield _finding("overlap", one, both, key)


def _may_overlap(one: Family[Any], other: Family[Any]) -> bool:
    """A fast check before the exact one: most pairs differ in their first literals."""
    first, second = (family.pattern.prefix for family in (one, other))
    return first.startswith(second) or second.startswith(first)


def _naming(keyspaces: Sequence[type[Keyspace]]) -> Iterator[Finding]:
    held_to = {family: one for one in keyspaces if one.naming for family in one.families.values()}
    for family in dict.fromkeys(family for one in keyspaces for family in one.families.values()):
        wrong = _naming_violation(family.pattern.display)
        keyspace = held_to.get(family)
        if keyspace is not None and wrong and not family.naming_exempt:
            yield _finding("naming", family, f"{keyspace.__name__} requires {keyspace.naming}, but {wrong}")
        elif family.naming_exempt and (keyspace is None or not wrong):
            why = "its keyspace has no naming rule" if keyspace is None else "its keys follow the rule"
            yield _finding("naming-exemption", family, f"its exemption from the naming rule is not needed: {why}")


def _naming_violation(pattern: str) -> str | None:
    """What violates `domain:entity:scope`: two literals, then segments that are a literal or one placeholder."""
    segments = pattern.split(":")
    for name, segment in zip_longest(("domain", "entity"), segments[:2], fillvalue=""):
        if not re.fullmatch(_LITERAL, segment):
            return f"the {name} is {segment!r}, which is not a literal" if segment else f"there is no {name}"
    for segment in segments[2:]:
        if not re.fullmatch(rf"{_LITERAL}|\{{\w+\}}", segment):
            return f"{segment!r} in the scope is neither a literal nor one placeholder"
    return None


_LITERAL = r"[^{}\[\]]+"


def _misfits(family: Family[Any], stores: _Stores) -> Iterator[Finding]:
    if stores.by_role is None:
        return
    store = stores.of(family)
    if store is None:
        yield _finding("role-unfit", family, f"there is no store for its role {family.role!r}, nor for 'default'")
        return
    for why in misfits(family, store[1]):
        yield _finding("role-unfit", family, f"it does not fit {store[0]}: {why}")
    for relation in family.listed_in:
        if not stores.may_be_one(family, relation.target):
            why = "they are written in one atomic step, which needs one store"
            yield _finding("role-unfit", family, f"it is listed in {relation.target.place}, but {why}")


def _weak(family: Family[Any], stores: _Stores) -> Iterator[Finding]:
    store = stores.of(family)
    if store is not None:
        for why in weaknesses(family, store[1]):
            yield _finding("role-weak", family, f"in {store[0]}: {why}")


def _across_slots(family: Family[Any], stores: _Stores) -> Iterator[Finding]:
    if not stores.has_slots(family):
        return
    for relation in (*family.listed_in, *family.owns):
        # Scanned keys are deleted in separate steps on any store, and two stores share no slots.
        if relation.scans or relation.one_slot or not stores.may_be_one(family, relation.target):
            continue
        place = relation.target.place
        yield _finding("cross-slot", family, _ACROSS_SLOTS[relation.kind].format(place))


_ACROSS_SLOTS = {
    "listed_in": "it is listed in {}, which may be in another slot: the entry is written first and the record in a "
    "second step, so an interruption leaves an entry that readers skip and prune",
    "owns": "it owns {}, which may be in another slot: what it owns is deleted in a separate step, so an "
    "interruption leaves an orphan that `keystead doctor` finds",
}


def _procedures(keyspace: type[Keyspace], stores: _Stores) -> Iterator[Finding]:
    for one in keyspace.procedures.values():
        known = traced(keyspace, one)
        if known.problem:
            yield _procedure_finding("procedure-unknown", one, f"its steps cannot be determined: {known.problem}")
        elif one.ordered is None and not known.one_slot and any(map(stores.has_slots, known.families)):
            names = " and ".join(family.name for family in known.families)
            yield _procedure_finding(
                "procedure-cross-slot", one, f"it changes {names}, whose keys may be in different slots"
            )
        for family in known.families:
            store = stores.of(family)
            if store is not None and store[1].atomic == "nothing":
                why = f"{family.name} is in {store[0]}, which has no atomic steps"
                yield _procedure_finding("role-unfit", one, f"it is an atomic step, but {why}")


def _procedure_finding(code: str, procedure: Procedure[Any, Any, Any], sentence: str) -> Finding:
    return Finding(code, procedure.place, sentence, CODES[code].remedy, procedure.place)


def _too_short(family: Family[Any]) -> Iterator[str]:
    for relation in family.lists:
        why = ends_before(family.lifetime, relation.source.lifetime)
        if why:
            yield f"it lists {relation.source.place} and can expire before it: {why}"


def _outliving(family: Family[Any]) -> Iterator[str]:
    """A key that never expires must not depend on an owner that does."""
    owners = [relation.source for relation in family.owned_by]
    if owners and not family.lifetime.ends and all(owner.lifetime.ends for owner in owners):
        yield f"it never expires, but its owner {owners[0].place} does: {owners[0].lifetime.describe()}"


def _misspelt_moments(family: Family[Any]) -> Iterator[str]:
    """A deadline that no field holds is passed with each write; a name close to a field is a typo."""
    if isinstance(family.lifetime, Until) and family.takes_deadline:
        near = get_close_matches(family.lifetime.field, family.field_names, 1)
        if near:
            yield f"it lives until {family.lifetime.field!r}, which its value does not have; did you mean {near[0]!r}?"


def ends_before(index: Lifetime, record: Lifetime) -> str | None:
    """Why an index can expire before a record in it; None: it cannot.

    A write of a record writes its entry, and that renews the index by its own lifetime. A sliding index is assumed to
    be touched with its records.
    """
    if not index.ends or (isinstance(index, EndOfDay) and index == record):
        return None
    if not record.ends:
        return "the record never expires"
    if not isinstance(index, Sliding | Until):
        return "later entries do not extend its deadline"
    if isinstance(record, Sliding) and isinstance(index, Until):
        return "a touch extends the record, but not an index with until"
    if index.longest_ms is None:
        return None
    if record.longest_ms is None:
        return f"it expires after {in_words(index.longest_ms)}, but the record has no maximum lifetime"
    if index.longest_ms < record.longest_ms:
        return f"it expires after {in_words(index.longest_ms)}, the record after {in_words(record.longest_ms)}"
    return None
