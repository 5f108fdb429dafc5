"""The document of JSON Schema: families by keyspace, and the definitions that they share."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from inspect import cleandoc
from typing import Any, Final, cast

from keystead.schema.docs.procedures import procedure_entries
from keystead.schema.export.definitions import Definitions
from keystead.schema.export.type_names import capitalised, distinct, short
from keystead.schema.family import Family
from keystead.schema.keyspace import Keyspace
from keystead.schema.kinds import SortedSet
from keystead.schema.lifetime import Lifetime
from keystead.schema.procedure_tracing import traced
from keystead.schema.shape import shapes

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
PATTERNS: Final = "KeyPatterns"  # the map of the TypeScript module
PROCEDURES: Final = "KeyProcedures"  # and that of the procedures
_OTHERS: Final = (PATTERNS, PROCEDURES, "Uint8Array")  # names that no definition may have there

_DESCRIPTION: Final = (
    "What these keyspaces store: models, lists and maps as JSON, all else as plain text. "
    "Made by `keystead export`: change the declarations, not this file."
)

Schema = dict[str, Any]
FamilyId = tuple[str, str]  # the names of its keyspace and its own


def document(keyspaces: Sequence[type[Keyspace]]) -> Schema:
    """The whole document."""
    labels = keyspace_names(keyspaces)
    definitions = Definitions([*_OTHERS, *key_types(labels).values()])
    held = {
        (label, name): {part: definitions.add(schema, label, name) for part, schema in shapes(family).items()}
        for label, cls in labels.items()
        for name, family in cls.families.items()
    }
    return {
        "$schema": DIALECT,
        "title": ", ".join(labels),
        "description": _DESCRIPTION,
        "keyspaces": {
            label: {
                **_without_empty(
                    description=cleandoc(vars(cls).get("__doc__") or ""), source=" ".join(cls.source.split())
                ),
                "families": {
                    name: _family(family) | definitions.named(held[label, name])
                    for name, family in cls.families.items()
                },
                **_without_empty(procedures=_procedures(cls) or None),
            }
            for label, cls in labels.items()
        },
        "$defs": definitions.all(),
    }


def keyspace_names(keyspaces: Sequence[type[Keyspace]]) -> dict[str, type[Keyspace]]:
    """Keyspaces by the names of their classes; with their modules where two have the same."""
    places = {cls: (cls.__name__, f"{cls.__module__}:{cls.__qualname__}") for cls in keyspaces}
    return {name: cls for cls, name in distinct(places).items()}


def key_types(labels: Mapping[str, type[Keyspace]]) -> dict[FamilyId, str]:
    """The TypeScript name of the type of a family's keys: `UserSessionsKey`."""
    wanted = {
        (label, name): (f"{capitalised(name)}Key", f"{short(label)}{capitalised(name)}Key")
        for label, cls in labels.items()
        for name in cls.families
    }
    return distinct(wanted, _OTHERS)


def _family(family: Family[Any]) -> Schema:
    score = (
        {"type": "number", **_without_empty(description=family.score_means)} if isinstance(family, SortedSet) else None
    )
    return {
        **_without_empty(description=family.doc),
        "pattern": family.pattern.text,
        "display": family.pattern.display,
        "example": family.pattern.example(),
        "kind": family.kind_name,
        "role": family.role,
        "lifetime": _lifetime(family.lifetime),
        **_without_empty(hash_tag=family.pattern.tag, score=score),
    }


def _procedures(keyspace: type[Keyspace]) -> Schema:
    """Each procedure: its arguments, the families it touches, and the reasons that stop it."""
    found = {}
    for one in procedure_entries(keyspace):
        families = traced(keyspace, keyspace.procedures[one.name]).families
        found[one.name] = {
            **_without_empty(description=one.doc),
            "arguments": list(one.arguments),
            "changes": [family.name for family, writes in families.items() if writes],
            "reads": [family.name for family, writes in families.items() if not writes],
            "stops": list(one.stops),
            "cluster": one.in_cluster,
            **_without_empty(repair=one.repair, problem=one.problem),
        }
    return found


def _lifetime(lifetime: Lifetime) -> Schema:
    """`{"type": "after", "ms": 2592000000, "text": "30 days"}`: its kind, what it was given, and the same in words."""
    type_ = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", type(lifetime).__name__).lower()
    given = {field.name: getattr(lifetime, field.name) for field in dataclasses.fields(cast("Any", lifetime))}
    return {"type": type_, **_without_empty(**given), "text": lifetime.describe()}


def _without_empty(**values: Any) -> Schema:
    return {name: value for name, value in values.items() if value not in ("", None)}
