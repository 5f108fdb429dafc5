"""Core schemas: Pydantic's description of a type."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from keystead.schema.seal import SEALED_MARK

FIELDS = frozenset({"model-fields", "typed-dict", "dataclass-args"})
CLASSES = frozenset({"model", "dataclass"})
_NO_SCHEMAS = frozenset({"metadata", "default", "config", "expected"})


class CoreSchemas:
    """The core schema of a type, together with the definitions that it refers to."""

    def __init__(self, top: Any) -> None:
        self.top = top
        self._definitions = {node["ref"]: node for node in _nodes(top, {}) if isinstance(node.get("ref"), str)}
        self.nodes = list(_nodes(top, self._definitions))
        """Every schema that the type consists of."""

    def root(self, node: Any, wanted: frozenset[str]) -> Any:
        """The node of one of these types, without the validators wrapped around it."""
        while isinstance(node, dict) and node.get("type") not in wanted:
            node = self._definitions[node["schema_ref"]] if node["type"] == "definition-ref" else node.get("schema")
        return node

    def resolve(self, node: dict[str, Any]) -> dict[str, Any]:
        """Resolve a reference; any other schema is returned unchanged."""
        while node["type"] == "definition-ref":
            node = self._definitions[node["schema_ref"]]
        return node

    def below(self, schema: Any) -> Iterator[dict[str, Any]]:
        """Every schema at and below one."""
        return _nodes(schema, self._definitions)

    def within_class(self, schema: Any) -> Iterator[dict[str, Any]]:
        """Every schema at and below one, but not below classes."""
        return _nodes(schema, self._definitions, CLASSES)


def _nodes(
    schema: Any, definitions: Mapping[str, Any], stop_at: frozenset[str] = frozenset(), seen: set[str] | None = None
) -> Iterator[dict[str, Any]]:
    """Every schema at and below one, through the definitions it refers to, and not below the types of `stop_at`."""
    seen = set() if seen is None else seen
    inner: Iterable[Any] = schema if isinstance(schema, (list, tuple)) else ()
    if isinstance(schema, dict):
        kind = schema.get("type")
        is_schema = isinstance(
            kind, str
        )  # otherwise it is a dict of schemas by name, and one of the names may be `type`
        if is_schema and kind in stop_at:
            return
        if kind == "definition-ref" and schema["schema_ref"] not in seen:
            seen.add(schema["schema_ref"])
            yield from _nodes(definitions.get(schema["schema_ref"]), definitions, stop_at, seen)
        if is_schema:
            yield schema
        inner = [value for name, value in schema.items() if not (is_schema and name in _NO_SCHEMAS)]
    for value in inner:
        yield from _nodes(value, definitions, stop_at, seen)


def fields_of(node: Mapping[str, Any]) -> Iterable[tuple[str, dict[str, Any]]]:
    """The fields of a model, a TypedDict or a dataclass by their Python names; none for other nodes."""
    if node.get("type") not in FIELDS:
        return ()
    fields = node["fields"]
    return fields.items() if isinstance(fields, dict) else ((field["name"], field) for field in fields)


def stored_name(name: str, field: Mapping[str, Any]) -> str:
    """The name under which a field is written."""
    return str(field.get("serialization_alias", name))


def all_names(node: Mapping[str, Any]) -> Iterator[str]:
    """The names of the fields of a node, in Python and as they are written."""
    for name, field in fields_of(node):
        yield name
        yield stored_name(name, field)


def is_sealed(node: Mapping[str, Any]) -> bool:
    """Whether this is `Sealed[...]` itself, not a wrapper around it."""
    return bool((node.get("metadata") or {}).get(SEALED_MARK))


_CONSTRAINTS = frozenset({"gt", "ge", "lt", "le", "multiple_of", "min_length", "max_length", "pattern"})
_CHECKS = frozenset({"literal", "enum", "function-before", "function-after", "function-wrap", "function-plain", "url"})


def is_constrained(node: Mapping[str, Any]) -> bool:
    """Whether a value of the right Python type may still be refused when it is read."""
    return node["type"] in _CHECKS or not _CONSTRAINTS.isdisjoint(node)


def may_hold_floats(node: Mapping[str, Any]) -> bool:
    """Whether a float may be written. A type inferred from the value (`Any`, extra fields, serializers) may be one."""
    serialization = node.get("serialization") or {}
    return (
        node["type"] in ("float", "any")
        or (str(serialization.get("type")).startswith("function") and "return_schema" not in serialization)
        or "allow" in (node.get("extra_behavior"), (node.get("config") or {}).get("extra_fields_behavior"))
    )
