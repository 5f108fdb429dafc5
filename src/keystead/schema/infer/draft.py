"""Drafts: families that were read from somewhere else than Python, before they are written as a `keys.py`."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field
from keyword import iskeyword
from typing import Final, Literal, TypeAlias

from pydantic import BaseModel

from keystead.schema.keyspace import Keyspace
from keystead.schema.lifetime import Lifetime
from keystead.schema.relation import Link

Confidence: TypeAlias = Literal["sure", "likely", "guess"]
Kind: TypeAlias = Literal["Value", "Counter", "Hash", "Set", "SortedSet", "List", "Log", "Channel"]


@dataclass(frozen=True, slots=True)
class DraftField:
    """A field of a model. `name` is the stored one; the writer finds a Python name for it if it is none.

    `type` is a Python type as text, of the names in `keys_module.IMPORTS`, builtins and models of the draft. A field
    that is not `required` may be missing; one that is `nullable` may be null.
    """

    name: str
    type: str = "str"
    required: bool = True
    nullable: bool = False
    doc: str = ""


@dataclass(frozen=True, slots=True)
class DraftModel:
    """A Pydantic model. A model comes before those that use it."""

    name: str
    fields: tuple[DraftField, ...]
    doc: str = ""


@dataclass(frozen=True, slots=True)
class DraftRelation:
    """A relation to another family of the draft. `link.target` is its attribute name; it may be declared later."""

    kind: Literal["listed_in", "owns", "leads_to"]
    link: Link


@dataclass(slots=True)
class DraftFamily:
    """One family. `value` is the type of its value, member, item or message as text; empty for a Counter."""

    name: str
    pattern: str
    kind: Kind
    value: str
    lifetime: Lifetime | None  # None: a Channel
    doc: str
    evidence: tuple[str, ...] = ()
    """What it was drafted from, one line each, without secrets: written as comments."""
    confidence: Confidence = "guess"
    relations: tuple[DraftRelation, ...] = ()
    tag: str | None = None
    role: str = "default"
    member_of: str | None = None
    score: str = ""  # SortedSet: what the score means
    keep: int | None = None  # List, Log


@dataclass(slots=True)
class DraftKeyspace:
    """A drafted `keys.py`: one keyspace and its models."""

    name: str
    doc: str
    families: list[DraftFamily] = field(default_factory=list)
    models: list[DraftModel] = field(default_factory=list)
    notes: tuple[str, ...] = ()
    """About the whole draft: comments at its top."""


# Names that the class bodies of a `keys.py` use: an attribute of the same name would hide them further down.
USED_NAMES: Final = frozenset(
    {"after", "bool", "bytes", "date", "dict", "end_of_day", "float", "int", "link", "list", "never", "set", "sliding"}
    | {"str", "tuple", "until"}
)
# Names that no family can have.
TAKEN: Final = USED_NAMES | {name for name in dir(Keyspace) if not name.startswith("__")}
_MODEL_NAMES: Final = frozenset(dir(BaseModel))
_TAKEN_CLASSES: Final = frozenset(
    {"Any", "BaseModel", "BigInt", "Channel", "Counter", "EpochMs", "EpochSeconds", "False", "Field", "Hash"}
    | {"IsoSeconds", "IsoTime", "Keyspace", "List", "Literal", "Log", "None", "OmittedIfNone", "Sealed", "Set"}
    | {"SortedSet", "True", "UUID", "VALUE", "Value"}
)


def is_field_name(name: str, taken: Collection[str] = USED_NAMES) -> bool:
    """Whether a stored name can be the name of a field of a model."""
    is_plain = name.isidentifier() and name.isascii() and not iskeyword(name)
    return is_plain and name not in taken and name not in _MODEL_NAMES and not name.startswith(("_", "model_"))


def identifier(text: str, taken: Collection[str] = TAKEN) -> str:
    """A Python name like this text that is free. Only ASCII letters, digits and `_`."""
    words = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", text)
    name = re.sub(r"[^a-z0-9]+", "_", words.lower()).strip("_")[:40].strip("_") or "keys"
    if not name[0].isalpha():
        name = f"n{name}"
    if iskeyword(name) or name in taken:
        name = f"{name}_keys"
    number, free = 2, name
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    return free


def class_name(text: str, taken: Collection[str] = ()) -> str:
    """A class name like this text that is free, and no name that a `keys.py` imports."""
    name = "".join(word.capitalize() for word in identifier(text, frozenset()).split("_"))
    if name in _TAKEN_CLASSES:
        name = f"{name}Record"
    number, free = 2, name
    while free in taken:
        free, number = f"{name}{number}", number + 1
    return free


def shape_of(pattern: str) -> str:
    """A pattern without the names and types of its placeholders: the same for `user:{uid}` and `user:{id:int}`."""
    return re.sub(r"(?<!\{)((?:\{\{)*)\{[^{}]+\}", r"\1{}", pattern)
