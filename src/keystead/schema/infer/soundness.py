"""Make a draft sound, so that `keystead check` finds nothing in it: one name, no overlaps, relations that hold."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from keystead.errors import BadDeclaration
from keystead.schema.check import ends_before
from keystead.schema.infer.draft import TAKEN, DraftFamily, DraftKeyspace, DraftRelation, identifier
from keystead.schema.pattern import Pattern


def sound(draft: DraftKeyspace) -> DraftKeyspace:
    """The draft without what `check` would report, as notes: duplicate names are numbered; of two families that
    overlap the less certain one, and of relations the unsound ones, are left out.
    """
    notes = list(draft.notes)
    families = _without_overlaps(_with_unique_names(draft.families), notes)
    by_name = {family.name: family for family in families}
    for family in families:
        kept = []
        for relation in family.relations:
            why = _unsound(family, relation, by_name)
            if why is None:
                kept.append(relation)
            else:
                family.evidence = (*family.evidence, f"left out: {relation.kind} {relation.link.target}, {why}")
        family.relations = tuple(kept)
        family.doc = family.doc.strip() or f"{family.kind} of {family.name}."
    return replace(draft, families=families, notes=tuple(notes))


def _with_unique_names(families: list[DraftFamily]) -> list[DraftFamily]:
    taken = set(TAKEN)
    named = []
    for family in families:
        name = identifier(family.name, taken)
        taken.add(name)
        named.append(replace(family, name=name))
    return named


_RANKS = {"sure": 0, "likely": 1, "guess": 2}


def _without_overlaps(families: list[DraftFamily], notes: list[str]) -> list[DraftFamily]:
    patterns: dict[str, Pattern] = {}
    for family in families:
        try:
            patterns[family.name] = Pattern(family.pattern, tag=family.tag)
        except BadDeclaration as error:
            notes.append(f"left out: {family.name}, {error}")
    families = [family for family in families if family.name in patterns]
    dropped: set[str] = set()
    for one, other in combinations(sorted(families, key=lambda family: _RANKS[family.confidence]), 2):
        if {one.name, other.name} & dropped or (one.kind == "Channel") is not (other.kind == "Channel"):
            continue
        if patterns[one.name].overlap(patterns[other.name]) is not None:
            dropped.add(other.name)
            notes.append(f"left out: {other.name} ({other.pattern}), which overlaps {one.name} ({one.pattern})")
    return [family for family in families if family.name not in dropped]


def _unsound(family: DraftFamily, relation: DraftRelation, by_name: dict[str, DraftFamily]) -> str | None:
    """Why a relation would be a finding of `check`; None: it would not."""
    target = by_name.get(relation.link.target if isinstance(relation.link.target, str) else relation.link.target.name)
    if target is None:
        return "which is not in the draft"
    if family.lifetime is None or target.lifetime is None:
        return "which has no lifetime"
    if relation.kind == "listed_in":
        if target.kind not in ("Set", "SortedSet") or family.kind not in ("Value", "Hash"):
            return f"a {family.kind} in a {target.kind}"
        return ends_before(target.lifetime, family.lifetime)
    if relation.kind == "owns" and not target.lifetime.ends and family.lifetime.ends:
        return "which never expires, but its owner does"
    return None
