"""Shapes: the JSON Schema of a family's values, the source of the key document and the export."""

from __future__ import annotations

from typing import Any

from keystead.schema.codec import without_none
from keystead.schema.family import Family
from keystead.schema.kinds import Counter, Hash

# 64 bits: JavaScript numbers are not exact beyond 2^53, so a counter is text.
COUNTER: dict[str, Any] = {"type": "string", "format": "int64", "pattern": "^(0|-?[1-9][0-9]*)$"}


def shapes(family: Family[Any]) -> dict[str, dict[str, Any]]:
    """The schema of each part of a key: of its value, its fields, or each member, item or message."""
    if isinstance(family, Counter):
        return {"value": dict(COUNTER)}
    if isinstance(family, Hash):
        return {"fields": record_shape(family) if family.fields else _map_shape(family)}
    return {name: codec.json_schema() for name, codec in family.codecs.items()}


def record_shape(family: Hash[Any, Any, Any]) -> dict[str, Any]:
    """A hash of a model as one object. A field that is None is omitted, so none is ever null."""
    record: dict[str, Any] = {"title": family.type.__name__, "type": "object", "properties": {}, "required": []}
    doc = vars(family.type).get("__doc__")
    if doc:
        record["description"] = " ".join(doc.split())
    definitions: dict[str, Any] = {}
    for (stored, codec), info in zip(family.fields.items(), family.type.model_fields.values(), strict=True):
        schema = _with_definitions(codec.json_schema(), definitions)
        record["properties"][stored] = schema | ({"description": info.description} if info.description else {})
        declared = info.rebuild_annotation()
        if without_none(declared) == declared:
            record["required"].append(stored)
    return record | ({"$defs": definitions} if definitions else {})


def _map_shape(family: Hash[Any, Any, Any]) -> dict[str, Any]:
    definitions: dict[str, Any] = {}
    names, values = (_with_definitions(codec.json_schema(), definitions) for codec in family.codecs.values())
    free = {"type": "object", "propertyNames": names, "additionalProperties": values}
    return free | ({"$defs": definitions} if definitions else {})


def _with_definitions(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """A schema as a part of another: its definitions, and itself if it is a model, move to the other's definitions."""
    definitions |= schema.pop("$defs", {})
    name = schema.get("title", "")
    if "properties" not in schema or definitions.setdefault(name, schema) != schema:
        return schema
    return {"$ref": f"#/$defs/{name}"}
