"""Families that a family brings along: where their keys are, and which stores can write both in one step."""

from __future__ import annotations

from collections.abc import Iterator

from keystead.errors import BadDeclaration
from keystead.schema import Pattern
from keystead.stores import Guarantees


def beside(pattern: str, name: str) -> str:
    """The pattern of the keys beside those of a family: `report:{id}:mark`."""
    if Pattern(pattern).has_tail:
        raise BadDeclaration(f"{pattern}: keys with an optional end cannot have others beside them; leave [...] out")
    return f"{pattern}:{name}"


def tag_of(pattern: str) -> str | None:
    """The first placeholder, as the hash tag that puts a key and those beside it into one slot of a cluster."""
    return next(iter(Pattern(pattern).names), None)


def misfits_beside(pattern: Pattern, guarantees: Guarantees) -> Iterator[str]:
    """Why a store cannot write such a key and those beside it in one atomic step."""
    if guarantees.atomic == "one slot" and pattern.tag is None:
        yield "it is written in one step with the keys beside it, so they need one slot; give it a placeholder"
    elif guarantees.atomic in ("one key", "nothing"):
        yield "it is written in one step with the keys beside it, and the store has no atomic steps on two keys"
