"""Describe a value in words, from the JSON Schema of its stored form."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from keystead.schema.docs.prose import code
from keystead.schema.family import Family
from keystead.schema.shape import shapes

Schema = Mapping[str, Any]

_FORMATS = {
    "big-integer": "integer as a text of digits",
    "binary": "bytes",
    "date": "date as `YYYY-MM-DD`",
    "date-time": "time in ISO 8601",
    "epoch-ms": "time in ms since 1970",
    "epoch-s": "time in seconds since 1970",
    "sealed": "string",  # that it is sealed has its own column
    "uuid": "UUID",
}
_SAID_BY_FORMAT = ("milliseconds since 1970", "seconds since 1970")


@dataclass(frozen=True)
class Field:
    """One stored field of a model. `required`: it is always present."""

    name: str
    type: str
    required: bool
    sealed: bool
    description: str


@dataclass(frozen=True)
class Model:
    """A model that a family stores, directly or nested."""

    name: str
    doc: str
    fields: tuple[Field, ...]

    @property
    def has_sealed(self) -> bool:
        return any(field.sealed for field in self.fields)

    @property
    def has_descriptions(self) -> bool:
        return any(field.description for field in self.fields)


def models(family: Family[Any]) -> tuple[Model, ...]:
    """The models in a family, outer ones first."""
    found: dict[str, Model] = {}
    for schema in shapes(family).values():
        definitions = schema.get("$defs", {})
        for one in _objects(schema, definitions, set()):
            model = _model(one, definitions)
            found.setdefault(model.name, model)
    return tuple(found.values())


def words(schema: Schema, definitions: Mapping[str, Any], within: frozenset[str] = frozenset()) -> str:
    """A type as prose: "list of string", "integer, 0 or more", the name of a model."""
    name = _reference(schema)
    if name is not None:
        target = definitions[name]
        if "properties" in target or name in within:
            return code(target.get("title") or name)
        return words(target, definitions, within | {name})
    if "const" in schema or "enum" in schema:
        return " or ".join(code(_literal(value)) for value in schema.get("enum", [schema.get("const")]))
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        return " or ".join(dict.fromkeys(words(choice, definitions, within) for choice in choices))
    return _plain_words(schema, definitions, within)


def _plain_words(schema: Schema, definitions: Mapping[str, Any], within: frozenset[str]) -> str:
    format_ = schema.get("format", "")
    match schema.get("type"):
        case "array" if "prefixItems" in schema:
            return f"[{', '.join(words(item, definitions, within) for item in schema['prefixItems'])}]"
        case "array":
            return f"list of {words(schema.get('items') or {}, definitions, within)}"
        case "object" if "properties" in schema:
            return code(schema.get("title", "object"))
        case "object":
            values = schema.get("additionalProperties")
            return f"map of string to {words(values, definitions, within) if isinstance(values, dict) else 'any JSON'}"
        case "string":
            return _FORMATS.get(format_, f"string ({format_})" if format_ else "string") + _lengths(schema)
        case "integer" | "number":
            return _FORMATS.get(format_, str(schema["type"])) + _bounds(schema)
        case None:
            return "any JSON"
        case other:
            return str(other)


def _bounds(schema: Schema) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is not None and high is not None:
        return f", {low} to {high}"
    phrase = [
        sentence.format(schema[name])
        for name, sentence in (
            ("minimum", "{} or more"),
            ("exclusiveMinimum", "more than {}"),
            ("maximum", "{} at most"),
            ("exclusiveMaximum", "less than {}"),
        )
        if name in schema
    ]
    return f", {' and '.join(phrase)}" if phrase else ""


def _lengths(schema: Schema) -> str:
    low, high = schema.get("minLength"), schema.get("maxLength")
    phrase = ""
    if low is not None and high is not None:
        phrase = f", {low} characters" if low == high else f", {low} to {high} characters"
    elif low is not None:
        phrase = f", {low} or more characters"
    elif high is not None:
        phrase = f", at most {high} characters"
    if "pattern" in schema and schema.get("format") != "big-integer":
        phrase += f", like {code(schema['pattern'])}"
    return phrase


def _literal(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _reference(schema: Schema) -> str | None:
    reference = schema.get("$ref")
    return reference.rpartition("/")[2] if isinstance(reference, str) else None


def _objects(schema: Schema, definitions: Mapping[str, Any], seen: set[str]) -> Iterator[Schema]:
    """The objects with named fields in a schema, outer ones first."""
    name = _reference(schema)
    if name is not None:
        if name not in seen:
            seen.add(name)
            yield from _objects({"title": name, **definitions[name]}, definitions, seen)
        return
    if "properties" in schema:
        yield schema
    for inner in (*schema.get("properties", {}).values(), *_within(schema)):
        yield from _objects(inner, definitions, seen)


def _within(schema: Schema) -> Iterator[Schema]:
    """The schemas of a list's items, a map's values and a union's choices."""
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield schema[name]
    for name in ("prefixItems", "anyOf", "oneOf"):
        yield from schema.get(name, ())


def _model(schema: Schema, definitions: Mapping[str, Any]) -> Model:
    required = schema.get("required", ())
    fields = tuple(
        Field(name, words(one, definitions), name in required, _is_sealed(one), _description(one))
        for name, one in schema["properties"].items()
    )
    return Model(schema.get("title", "object"), " ".join(schema.get("description", "").split()), fields)


def _description(schema: Schema) -> str:
    phrase = " ".join(schema.get("description", "").split())
    return "" if phrase.startswith(_SAID_BY_FORMAT) else phrase


def _is_sealed(schema: Schema) -> bool:
    return schema.get("format") == "sealed" or any(map(_is_sealed, _within(schema)))
