"""Hides sealed fields from the `repr` of their classes, which ends up in logs and tracebacks."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from functools import partial
from typing import Any

from pydantic import BaseModel, TypeAdapter

from keystead.schema.codec.core_schemas import CLASSES, FIELDS, CoreSchemas, fields_of, is_sealed
from keystead.schema.codec.sentences import Refusal, bad_type


def hide_sealed(core: CoreSchemas, node: Mapping[str, Any], bad: Refusal) -> None:
    """Make the class of a node leave its sealed fields out of its `repr`.

    Raises the error that `bad` returns, for a class whose `repr` cannot be changed.
    """
    owner = node["cls"]
    inner = core.root(node["schema"], FIELDS)
    names = [name for name, field in fields_of(inner or {}) if any(map(is_sealed, core.within_class(field)))]
    if node.get("root_model") and any(map(is_sealed, core.within_class(node["schema"]))):
        raise bad(f"{owner.__name__} shows its sealed value", "write Sealed[...] without a RootModel")
    for name in names:
        if issubclass(owner, BaseModel):
            owner.model_fields[name].repr = False
        elif any(field.name == name and field.repr for field in dataclasses.fields(owner)):
            raise bad(f"{owner.__name__} shows its sealed {name} in its repr", f"write {name} = field(repr=False)")


def hide_sealed_fields(model: type[BaseModel], where: str) -> None:
    """`hide_sealed` for a model without a codec, because each of its fields is stored separately.

    `where` names the family in error messages. Raises `BadDeclaration`.
    """
    core = CoreSchemas(TypeAdapter(model).core_schema)
    for node in core.nodes:
        if node["type"] in CLASSES:
            hide_sealed(core, node, partial(bad_type, f"{where}: ", model))
