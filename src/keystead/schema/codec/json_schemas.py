"""JSON Schemas: their references, their choices, and the JSON types of those."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

CONTAINERS = frozenset({"object", "array"})
_JSON_TYPES: dict[type, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}


def resolve_reference(schema: dict[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Resolve a reference; any other schema is returned unchanged."""
    while "$ref" in schema:
        schema = definitions[schema["$ref"].removeprefix("#/$defs/")]
    return schema


def choices_of(schema: dict[str, Any], definitions: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The alternatives of a schema, at any depth; the schema itself if there are none."""
    schema = resolve_reference(schema, definitions)
    branches = schema.get("anyOf") or schema.get("oneOf")
    if not branches:
        return [schema]
    return [choice for branch in branches for choice in choices_of(branch, definitions)]


def kinds_of(schema: dict[str, Any], definitions: Mapping[str, Any]) -> Iterator[str]:
    """The JSON type of each choice, or `binary` for bytes, or `anything` if the schema does not state one."""
    for choice in choices_of(schema, definitions):
        if choice.get("format") == "binary":
            yield "binary"
        elif "type" in choice:
            yield choice["type"]
        elif "enum" in choice:
            yield from (_JSON_TYPES.get(type(value), "anything") for value in choice["enum"])
        else:
            yield "anything"


def dicts_in(tree: Any) -> Iterator[dict[str, Any]]:
    """Every dict of a tree of dicts and lists, the tree itself first."""
    if isinstance(tree, dict):
        yield tree
        for value in tree.values():
            yield from dicts_in(value)
    elif isinstance(tree, (list, tuple)):
        for value in tree:
            yield from dicts_in(value)
