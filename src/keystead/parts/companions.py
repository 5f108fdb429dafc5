"""Families that a family brings along: where their keys are."""

from __future__ import annotations

from keystead.errors import BadDeclaration
from keystead.schema import Pattern


def beside(pattern: str, name: str) -> str:
    """The pattern of the keys beside those of a family: `report:{id}:mark`."""
    if Pattern(pattern).has_tail:
        raise BadDeclaration(f"{pattern}: keys with an optional end cannot have others beside them; leave [...] out")
    return f"{pattern}:{name}"


def tag_of(pattern: str) -> str | None:
    """The first placeholder, as the hash tag that puts a key and those beside it into one slot of a cluster."""
    return next(iter(Pattern(pattern).names), None)
