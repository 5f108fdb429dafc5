"""The module of TypeScript, made from the document of JSON Schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from keystead.schema.export.schema_document import PATTERNS, PROCEDURES, Schema, document, key_types, keyspace_names
from keystead.schema.keyspace import Keyspace

# The largest integer up to which a number of JavaScript is exact.
SAFE: Final = 2**53 - 1

_HEADER = """\
// Made by `keystead export --format typescript`: change the declarations, not this file.
//
// Values are as they are stored: a time is a string, or a number of ms or seconds, and a sealed field is the text that
// stands for it. An integer is a number, which JavaScript keeps exactly up to 2^53 - 1; a counter, and an integer that
// is declared to go beyond, is a string of digits. Models, lists and maps are stored as JSON, all else as plain text.
"""
_PARTS: Final = ("value", "fields", "member", "score", "item", "message")
_IDENTIFIER = re.compile(r"[A-Za-z_$][\w$]*", re.ASCII)
_BOUNDS: Final = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")


def module(keyspaces: Sequence[type[Keyspace]]) -> str:
    """The whole module."""
    described = document(keyspaces)
    types = key_types(keyspace_names(keyspaces))
    blocks = [
        _HEADER,
        *(_definition(name, schema) for name, schema in described["$defs"].items()),
        *(
            _key_type(types[label, name], family)
            for label, keyspace in described["keyspaces"].items()
            for name, family in keyspace["families"].items()
        ),
        _patterns(described["keyspaces"], types),
        *_procedures(described["keyspaces"], types),
    ]
    return "\n".join(blocks)


def _definition(name: str, schema: Schema) -> str:
    if "properties" in schema:
        return f"{_comment(schema, '')}export interface {name} {_object(schema, '')}\n"
    return f"{_comment(schema, '')}export type {name} = {_type(schema, '')};\n"


def _key_type(name: str, family: Schema) -> str:
    return f"{_comment(family, '')}export type {name} = {' | '.join(_keys(family['display']))};\n"


def _keys(display: str) -> Iterator[str]:
    """The template of a key: any text for each placeholder. A key with a tail is written with it or without."""
    body, _, tail = display.removesuffix("]").partition("[")
    for text in (body, body + tail) if tail else (body,):
        literals = re.split(r"\{\w+\}", text)
        yield f"`{'${string}'.join(map(_template, literals))}`" if len(literals) > 1 else _literal(text)


def _template(literal: str) -> str:
    """A text between backticks. It has no brace, as no literal of a pattern has."""
    return _literal(literal)[1:-1].replace('\\"', '"').replace("`", "\\`")


def _patterns(keyspaces: Mapping[str, Schema], types: Mapping[tuple[str, str], str]) -> str:
    lines = [
        "/** Each family by the names of its keyspace and its own: its keys, and what they hold. */",
        f"export interface {PATTERNS} {{",
    ]
    for label, keyspace in keyspaces.items():
        lines += [*_comment(keyspace, "  ").splitlines(), f"  {_property(label)}: {{"]
        for name, family in keyspace["families"].items():
            lines += [*_comment(family, "    ").splitlines(), f"    {_property(name)}: {{"]
            lines += _family(family, types[label, name])
            lines.append("    };")
        lines.append("  };")
    return "\n".join([*lines, "}", ""])


def _procedures(keyspaces: Mapping[str, Schema], types: Mapping[tuple[str, str], str]) -> Iterator[str]:
    if not any("procedures" in keyspace for keyspace in keyspaces.values()):
        return
    lines = [
        "/** Each procedure by the names of its keyspace and its own: the keys that it touches, and what stops it. */",
        f"export interface {PROCEDURES} {{",
    ]
    indent = "      "
    for label, keyspace in keyspaces.items():
        lines.append(f"  {_property(label)}: {{")
        for name, one in keyspace.get("procedures", {}).items():
            lines += [*_comment(one, "    ").splitlines(), f"    {_property(name)}: {{"]
            lines.append(f"{indent}arguments: [{', '.join(map(_literal, one['arguments']))}];")
            lines += [
                f"{indent}{part}: {_union(types[label, key] for key in one[part])};" for part in ("changes", "reads")
            ]
            lines += [f"{indent}stopped: {_union(map(_literal, one['stops']))};", "    };"]
        lines.append("  };")
    yield "\n".join([*lines, "}", ""])


def _family(family: Schema, key_type: str) -> Iterator[str]:
    indent = "      "
    yield f"{indent}pattern: {_literal(family['pattern'])};"
    yield f"{indent}key: {key_type};"
    yield f"{indent}kind: {_literal(family['kind'])};"
    yield f"{indent}role: {_literal(family['role'])};"
    for part in _PARTS:
        if part in family:
            schema = family[part]
            # What is stored as it is comes back as bytes; within JSON it is text.
            held = "Uint8Array" if schema.get("format") == "binary" else _type(schema, indent)
            yield f"{_comment(schema, indent)}{indent}{part}: {held};"


def _type(schema: Any, indent: str) -> str:
    """A type as an expression. `indent` is that of the line on which it stands."""
    if not isinstance(schema, dict):
        return "unknown"
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "const" in schema or "enum" in schema:
        return _union(_literal(value) for value in schema.get("enum", [schema.get("const")]))
    choices = schema.get("anyOf") or schema.get("oneOf")
    if choices:
        return _union(_type(choice, indent) for choice in choices)
    if "allOf" in schema:
        return " & ".join(_parenthesize(_type(one, indent)) for one in schema["allOf"])
    return _plain_type(schema, indent)


def _plain_type(schema: Schema, indent: str) -> str:
    match schema.get("type"):
        case "string":
            return "string"
        case "integer":
            return "string" if goes_beyond(schema) else "number"
        case "number" | "boolean" | "null" as name:
            return str(name)
        case "array":
            return _array(schema, indent)
        case "object":
            return _object(schema, indent)
        case [*names]:
            return _union(_plain_type(schema | {"type": name}, indent) for name in names)
        case _:
            return "unknown"


def goes_beyond(schema: Mapping[str, Any]) -> bool:
    """Whether the bounds of an integer allow one that JavaScript does not keep exactly. Without bounds: no."""
    return any(abs(schema[bound]) > SAFE + bound.startswith("exclusive") for bound in _BOUNDS if bound in schema)


def _array(schema: Schema, indent: str) -> str:
    if "prefixItems" not in schema:
        return f"{_parenthesize(_type(schema.get('items'), indent))}[]"
    items = [_type(item, indent) for item in schema["prefixItems"]]
    if isinstance(schema.get("items"), dict):
        items.append(f"...{_parenthesize(_type(schema['items'], indent))}[]")
    return f"[{', '.join(items)}]"


def _object(schema: Schema, indent: str) -> str:
    properties: dict[str, Schema] = schema.get("properties", {})
    others = schema.get("additionalProperties", "properties" not in schema)
    if not properties:
        return _map(schema, others, indent)
    required, inner = schema.get("required", ()), indent + "  "
    lines = ["{"]
    for name, one in properties.items():
        optional = "" if name in required else "?"
        lines.append(f"{_comment(one, inner)}{inner}{_property(name)}{optional}: {_type(one, inner)};")
    if others:
        lines.append(f"{inner}[name: string]: unknown;")
    return "\n".join([*lines, f"{indent}}}"])


def _map(schema: Schema, values: Any, indent: str) -> str:
    names = schema.get("propertyNames", {})
    if values is False:
        return "{ [name: string]: never }"
    value = _type(values, indent)
    if "enum" in names or "const" in names or "$ref" in names:
        return f"{{ [name in {_type(names, indent)}]?: {value} }}"
    return f"{{ [name: string]: {value} }}"


def _union(types: Iterable[str]) -> str:
    return " | ".join(dict.fromkeys(types)) or "never"


def _parenthesize(type_: str) -> str:
    """A type behind which `[]` can be put: a union needs parentheses."""
    return f"({type_})" if re.search(r"[|&]", type_) else type_


def _property(name: str) -> str:
    return name if _IDENTIFIER.fullmatch(name) else _literal(name)


def _literal(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _comment(schema: Schema, indent: str) -> str:
    said = [str(schema.get("description", ""))]
    if _is_sealed(schema):
        said.append("Sealed: the text that stands in the store.")
    if schema.get("type") == "integer" and goes_beyond(schema):
        said.append("An integer beyond 2^53: read it with a JSON parser that keeps its digits.")
    if schema.get("format") == "int64":
        said.append("An integer of 64 bits, as a text of digits.")
    return _comment_of(said, indent)


def _is_sealed(schema: Schema) -> bool:
    inner = [*schema.get("anyOf", ()), *(schema[name] for name in ("items", "additionalProperties") if name in schema)]
    return schema.get("format") == "sealed" or any(_is_sealed(one) for one in inner if isinstance(one, dict))


def _comment_of(said: Iterable[str], indent: str) -> str:
    sentences = [" ".join(one.split()) for one in said if one.strip()]
    ended = [one if one.endswith((".", "!", "?", ":")) else f"{one}." for one in sentences[:-1]] + sentences[-1:]
    text = " ".join(ended).replace("*/", "*\\/")
    return f"{indent}/** {text} */\n" if text else ""
