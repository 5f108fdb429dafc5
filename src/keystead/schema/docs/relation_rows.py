"""Relations in words, and as the edges of the diagram."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from keystead.catalogue import message
from keystead.schema.docs.prose import code
from keystead.schema.family import Family
from keystead.schema.relation import Origin, Relation

Families = Mapping[str, Family[Any]]

# The label of an edge, from its start to its end.
OWNS: Final = message("owns")
LISTS: Final = message("lists")
LEADS_TO: Final = message("leads to")


class Edge(NamedTuple):
    """One relation between two families, by their names: source, then target."""

    start: str
    says: str
    end: str


def edges(families: Families) -> tuple[Edge, ...]:
    """All relations among these families, in the order of their declaration."""
    found = []
    for family in families.values():
        found += [Edge(r.target.name, LISTS, family.name) for r in family.listed_in]
        found += [Edge(family.name, OWNS, r.target.name) for r in family.owns]
        found += [Edge(family.name, LEADS_TO, r.target.name) for r in family.leads_to]
    return tuple(dict.fromkeys(found))


def sentences(family: Family[Any], families: Families) -> tuple[str, ...]:
    """The relations of a family, as prose."""
    return tuple(_sentences(family, families))


def _sentences(family: Family[Any], families: Families) -> Iterator[str]:
    for relation in family.listed_in:
        yield _listing_sentence(relation)
    for relation in _from(family.lists, families):
        yield f"Lists {_key(relation.source)} by {code(relation.member)}."
    for relation in family.owns:
        yield _ownership_sentence(relation)
    for relation in _from(family.owned_by, families):
        yield f"Deleted with {_key(relation.source)}{', if there is one' if relation.optional else ''}."
    for relation in family.leads_to:
        yield f"Leads to {_key(relation.target)}{_where(relation)}."
    for other in families.values():
        if any(relation.target is family for relation in other.leads_to):
            yield f"{_key(other)} leads here."
    if family.subject is not None:
        yield _belongs(family)


def _from(relations: tuple[Relation, ...], families: Families) -> Iterator[Relation]:
    """Those whose source is in this keyspace: a keyspace derived from it may have added others."""
    known = set(map(id, families.values()))
    return (relation for relation in relations if id(relation.source) in known)


def _listing_sentence(relation: Relation) -> str:
    phrase = f"Listed in {_key(relation.target)} by {code(relation.member)}{_where(relation)}"
    if relation.admits:
        return f"{phrase}, only when it is created: it is valid only while it is listed."
    if relation.target.kind != "zset":
        return f"{phrase}."
    score = (
        _origin_phrase(relation.source, relation.score) if relation.score else "its deadline, or the time of writing"
    )
    return f"{phrase}; its score is {score}."


def _ownership_sentence(relation: Relation) -> str:
    if not relation.scans:
        return f"Deleted with it: {_key(relation.target)}{_where(relation)}."
    any_of = " and ".join(code(name) for name, origin in relation.origins.items() if origin is None)
    return f"Deleted with it: every {_key(relation.target)}{_where(relation)}, whatever {any_of} is; a scan finds them."


def _belongs(family: Family[Any]) -> str:
    subject = family.subject
    if subject is None:
        return ""
    name = subject.origin.name
    is_placeholder = subject.origin.kind == "placeholder"
    whose = code(f"{{{name}}}") if is_placeholder else f"in its field {code(family.stored_name(name))}"
    return f"Belongs to the {subject.kind} {whose}: {code(f'keystead erase {subject.kind}:ID')} deletes it."


def _where(relation: Relation) -> str:
    """The origins of the placeholders, except those from a placeholder of the same name."""
    phrase = [
        f"{code(name)} is {_origin_phrase(relation.source, origin)}"
        for name, origin in relation.origins.items()
        if origin is not None and (origin.kind, origin.name) != ("placeholder", name)
    ]
    return f", where {' and '.join(phrase)}" if phrase else ""


def _origin_phrase(source: Family[Any], origin: Origin) -> str:
    match origin.kind:
        case "placeholder":
            return f"its {code(origin.name)}"
        case "field":
            return f"its field {code(source.stored_name(origin.name))}"
        case "value":
            return "its value"


def _key(family: Family[Any]) -> str:
    return code(family.pattern.display)
