"""The shape of a value in a few words, for the key document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from keystead.schema.codec.json_schemas import choices_of, resolve_reference


def shape_of_value(schema: dict[str, Any]) -> str:
    """The shape of a whole value, such as `JSON { uid, avatar?, access_token (sealed) }`."""
    definitions = schema.get("$defs", {})
    shapes = [_shape_of(choice, definitions, 1) for choice in choices_of(schema, definitions)]
    return " | ".join(dict.fromkeys(f"JSON {shape}" if shape.startswith(("{", "[")) else shape for shape in shapes))


def _shape_of(schema: dict[str, Any], definitions: Mapping[str, Any], depth: int) -> str:
    schema = resolve_reference(schema, definitions)
    if "const" in schema or "enum" in schema:
        return " | ".join(json.dumps(value, ensure_ascii=False) for value in schema.get("enum", [schema.get("const")]))
    if "anyOf" in schema or "oneOf" in schema:
        return " | ".join(dict.fromkeys(_shape_of(c, definitions, depth) for c in choices_of(schema, definitions)))
    if schema.get("type") == "array":
        items = schema.get("prefixItems") or [schema.get("items") or {}]
        return f"[{', '.join(_shape_of(item, definitions, depth) for item in items)}]"
    if schema.get("type") == "object":
        return _object_shape(schema, definitions, depth)
    kind = schema.get("type", "JSON")
    return f"{kind} ({schema['format']})" if "format" in schema else str(kind)


def _object_shape(schema: dict[str, Any], definitions: Mapping[str, Any], depth: int) -> str:
    if "properties" not in schema:
        values = schema.get("additionalProperties")
        return f"{{ *: {_shape_of(values, definitions, depth)} }}" if isinstance(values, dict) else "{ * }"
    if depth < 0:
        return "{ … }"
    required = schema.get("required", ())
    shapes = [
        name + ("" if name in required else "?") + _field_shape(field, definitions, depth)
        for name, field in schema["properties"].items()
    ]
    return f"{{ {', '.join(shapes)} }}" if shapes else "{}"


def _field_shape(schema: dict[str, Any], definitions: Mapping[str, Any], depth: int) -> str:
    """What follows the name of a field: that it is sealed, may be null, or its own shape."""
    choices = choices_of(schema, definitions)
    shape = ""
    if any(choice.get("format") == "sealed" for choice in choices):
        shape = " (sealed)"
    elif depth and any(_is_nested(choice, definitions) for choice in choices):
        kept = [choice for choice in choices if choice.get("type") != "null"]
        shape = " " + " | ".join(dict.fromkeys(_shape_of(choice, definitions, depth - 1) for choice in kept))
    return shape + (" | null" if any(choice.get("type") == "null" for choice in choices) else "")


def _is_nested(schema: dict[str, Any], definitions: Mapping[str, Any]) -> bool:
    return any("properties" in resolve_reference(item, definitions) for item in (schema, schema.get("items") or {}))
