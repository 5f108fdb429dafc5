"""What a store holds that a keyspace does not declare, or declares differently."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from keystead.schema.family import Family
from keystead.schema.family_lookup import name_of
from keystead.schema.infer.draft import DraftFamily, shape_of
from keystead.schema.infer.drafting import Inferred
from keystead.schema.keyspace import Keyspace

_STRINGS: Final = ("Value", "Counter")


def difference(found: Inferred, declared: Sequence[type[Keyspace]], *, tagged: bool = False) -> list[str]:
    """One line for each drafted family that is new, or whose kind or lifetime differs from the declared one."""
    families = [family for one in declared for family in one.families.values() if family.kind != "channel"]
    lines = []
    for drafted in found.draft.families:
        examples = found.examples.get(drafted.name)
        known = _of_shape(drafted.pattern, families) if examples is None else _declared_for(examples, families, tagged)
        what = f"{drafted.kind} {drafted.pattern}"
        evidence = f"  ({drafted.confidence}: {drafted.evidence[0]})" if drafted.evidence else ""
        if known is None:
            lines.append(f"+ {drafted.name}: {what}{evidence}")
        elif changes := list(_changes(drafted, known)):
            lines.append(f"~ {name_of(known)}: {'; '.join(changes)}{evidence}")
    return lines


def _of_shape(pattern: str, families: Sequence[Family[Any]]) -> Family[Any] | None:
    """The family whose pattern differs from this one in the names and types of its placeholders at most."""
    return next((family for family in families if shape_of(family.pattern.text) == shape_of(pattern)), None)


def _declared_for(examples: Sequence[str], families: Sequence[Family[Any]], tagged: bool) -> Family[Any] | None:
    """The family that most of these keys belong to; None: most belong to none."""
    counts: dict[Family[Any], int] = {}
    for key in examples:
        for family in families:
            pattern = family.pattern
            if pattern.parse(key, tagged=tagged and pattern.tag is not None) is not None:
                counts[family] = counts.get(family, 0) + 1
                break
    best = max(counts, key=lambda family: counts[family], default=None)
    return best if best is not None and counts[best] * 2 > len(examples) else None


def _changes(drafted: DraftFamily, known: Family[Any]) -> list[str]:
    changes = []
    both_strings = drafted.kind in _STRINGS and known.kind_name in _STRINGS
    if drafted.kind != known.kind_name and not both_strings:
        changes.append(f"declared as {known.kind_name}, but the keys are of a {drafted.kind}")
    if drafted.lifetime is not None and drafted.lifetime.ends is not known.lifetime.ends:
        seen = "the keys expire" if drafted.lifetime.ends else "the keys have no deadline"
        changes.append(f"declared as {known.lifetime.describe()}, but {seen}")
    return changes
