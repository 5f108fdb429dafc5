"""The key document as data, the source of Markdown, HTML and `--json`."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from inspect import cleandoc
from typing import Any

from keystead.schema import lifetime
from keystead.schema.docs.procedures import ProcedureEntry, procedure_entries
from keystead.schema.docs.relation_rows import Edge, edges, sentences
from keystead.schema.docs.value_phrases import Model, models
from keystead.schema.docs.verbs import Operations, operations, verbs_of_kind
from keystead.schema.family import Family
from keystead.schema.keyspace import Keyspace, with_parts
from keystead.schema.kinds import Channel
from keystead.schema.placeholder_types import TYPES

_LONGEST_SHAPE = 90  # in a table cell; longer values are only in the family's section


@dataclass(frozen=True)
class Placeholder:
    """A placeholder with a restricted type."""

    name: str
    takes: str


@dataclass(frozen=True)
class FamilyEntry:
    """One family: a row of the table, and a section.

    `doc`, `value`, `lifetime`, `changed`, `naming_exempt` and `relations` are prose, with code between backticks.
    """

    name: str
    key: str
    pattern: str
    example: str
    kind: str
    role: str
    doc: str
    value: str
    lifetime: str
    operations: Operations
    used_by: tuple[str, ...]
    placeholders: tuple[Placeholder, ...]
    hash_tag: str | None
    belongs_to: str | None
    relations: tuple[str, ...]
    models: tuple[Model, ...]
    changed: str
    naming_exempt: str

    @property
    def anchor(self) -> str:
        """The Markdown anchor of its section, as GitHub derives it from a one-word heading."""
        return self.name.lower()

    @property
    def short_value(self) -> str:
        """The shape of the value, if it fits a table cell."""
        if len(self.value) <= _LONGEST_SHAPE or not self.models:
            return self.value
        fields = len(self.models[0].fields)
        return f"JSON {self.models[0].name}, {fields} fields" if self.kind != "Hash" else f"{fields} fields"

    @property
    def says_what_it_holds(self) -> bool:
        """Whether the value is more than the fields of its models."""
        return not self.models or self.kind not in ("Value", "Hash")


@dataclass(frozen=True)
class Kind:
    """A kind of family in the keyspace, with all its verbs."""

    name: str
    operations: Operations


@dataclass(frozen=True)
class PartKey:
    """A key of a part that the keyspace's program uses. See the document of the part."""

    keyspace: str
    key: str
    kind: str
    doc: str


@dataclass(frozen=True)
class KeyDocument:
    """One keyspace. `doc` is its docstring; `made_from` is where it is declared, as `keystead docs` takes it."""

    name: str
    title: str
    made_from: str
    doc: str
    source: str
    changes: tuple[str, ...]
    families: tuple[FamilyEntry, ...]
    kinds: tuple[Kind, ...]
    edges: tuple[Edge, ...]
    procedures: tuple[ProcedureEntry, ...] = ()
    part_keys: tuple[PartKey, ...] = ()

    def first_with(self, model: Model) -> FamilyEntry:
        """The first family that has a model: its fields are shown there, and only there."""
        return next(entry for entry in self.families if model in entry.models)

    def as_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self) | {"edges": [edge._asdict() for edge in self.edges]}


def document(keyspace: type[Keyspace]) -> KeyDocument:
    """The key document of a keyspace. It reads declarations only, and is the same each time."""
    return KeyDocument(
        name=keyspace.__name__,
        title=in_words(keyspace.__name__),
        made_from=f"{keyspace.__module__}:{keyspace.__qualname__}",
        doc=cleandoc(vars(keyspace).get("__doc__") or ""),
        source=" ".join(keyspace.source.split()),
        changes=tuple(" ".join(change.split()) for change in keyspace.changes),
        families=tuple(_entry(family, keyspace) for family in keyspace.families.values()),
        kinds=tuple(Kind(name, verbs_of_kind(verbs)) for name, verbs in _kinds(keyspace).items()),
        edges=edges(keyspace.families),
        procedures=procedure_entries(keyspace),
        part_keys=tuple(
            PartKey(in_words(part.__name__), family.pattern.display, family.kind_name, family.doc)
            for part in with_parts([keyspace])[1:]
            for family in part.families.values()
        ),
    )


def in_words(name: str) -> str:
    """`SharingKeys` -> `Sharing keys`. Capitals in a row stay as they are: `URLKeys` -> `URL keys`."""
    first, *others = re.sub(r"(?<=[a-z\d])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_+", " ", name).split() or [name]
    rest = [one if one.isupper() and len(one) > 1 else one.lower() for one in others]
    return " ".join([first[0].upper() + first[1:], *rest])


def _entry(family: Family[Any], keyspace: type[Keyspace]) -> FamilyEntry:
    pattern = family.pattern
    return FamilyEntry(
        name=family.name,
        key=pattern.display,
        pattern=pattern.text,
        example=pattern.example(),
        kind=family.kind_name,
        role=family.role,
        doc=family.doc,
        value=family.value_shape,
        lifetime=_lifetime(family),
        operations=operations(family),
        used_by=family.used_by,
        placeholders=tuple(
            Placeholder(name, kind.doc) for name, kind in pattern.types.items() if kind is not TYPES["text"]
        ),
        hash_tag=pattern.tag,
        belongs_to=family.subject.kind if family.subject else None,
        relations=sentences(family, keyspace.families),
        models=models(family),
        changed=family.changed,
        naming_exempt=family.naming_exempt,
    )


def _lifetime(family: Family[Any]) -> str:
    if isinstance(family, Channel):
        return "messages are not stored"
    near = f"; reads may be {lifetime.in_words(family.near_ms)} behind" if family.near_ms else ""
    return f"{family.lifetime.describe()}{near}"


def _kinds(keyspace: type[Keyspace]) -> dict[str, type[Any]]:
    return {family.kind_name: family.verbs for family in keyspace.families.values()}
