"""Whether a declared type can be stored and read back: refused at declaration, not at use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from keystead.schema.codec.core_schemas import CLASSES, CoreSchemas, fields_of, is_sealed, stored_name
from keystead.schema.codec.hiding import hide_sealed
from keystead.schema.codec.json_schemas import CONTAINERS, dicts_in, kinds_of
from keystead.schema.codec.sentences import STORABLE, Refusal


def storable_kinds(schema: dict[str, Any], bad: Refusal) -> frozenset[str]:
    """The JSON types of a whole value: one scalar type, or containers. Raises the error that `bad` returns."""
    kinds = frozenset(kinds_of(schema, schema.get("$defs", {})))
    if any(node.get("writeOnly") for node in dicts_in(schema)):
        raise bad("a secret type of Pydantic is written as asterisks", "write Sealed[str] instead of SecretStr")
    if "binary" in kinds:
        raise bad("bytes are stored as they are, without constraints", "write bytes")
    if "null" in kinds:
        raise bad("its value may be None", "leave out None: a missing key is read as None; delete the key instead")
    if "anything" in kinds:
        raise bad("its stored form is not defined", STORABLE)
    if len(kinds) != 1 and not kinds <= CONTAINERS:
        raise bad("its values could not be distinguished in the store", "put the choice into a field of a model")
    return kinds


def check_storable(core: CoreSchemas, bad: Refusal) -> None:
    """Check everything that a type consists of, and hide sealed fields from the `repr` of its classes.

    Raises the error that `bad` returns.
    """
    for node in core.nodes:
        _check_node(core, node, bad)


def _check_node(core: CoreSchemas, node: Mapping[str, Any], bad: Refusal) -> None:
    for name, field in fields_of(node):
        _check_field(name, field, node.get("total", True), bad)
    if node["type"] in CLASSES:
        hide_sealed(core, node, bad)
    if node["type"] == "dict" and any(map(is_sealed, core.below(node.get("keys_schema")))):
        raise bad("the keys of a dict cannot be sealed", "seal its values, or the dict as a whole")
    if node["type"] == "union" and any(_is_sealed_choice(core, choice) for choice in node["choices"]):
        raise bad("one choice of a union cannot be sealed", "seal the whole: Sealed[str | int]")
    if is_sealed(node) and any(map(is_sealed, core.below(node["python_schema"]))):
        raise bad("a sealed value contains a sealed field", "seal either the field or the whole")


def _check_field(name: str, field: Mapping[str, Any], total: bool, bad: Refusal) -> None:
    stored, alias = stored_name(name, field), field.get("validation_alias", name)
    read = {alias} if isinstance(alias, str) else {path[0] for path in _alias_paths(alias) if len(path) == 1}
    if stored not in read:
        raise bad(
            f"its field {name} is written as {stored!r} but not read under that name",
            f"write {name}: ... = Field(alias={stored!r})",
        )
    left_out = field.get("serialization_exclude") or field.get("serialization_exclude_if")
    may_be_absent = not field.get("required", total) or field["schema"]["type"] == "default"
    if left_out and not may_be_absent:
        raise bad(f"its field {name} is optional but has no default", f"write {name}: ... = None")


def _alias_paths(alias: list[Any]) -> list[list[Any]]:
    return alias if alias and isinstance(alias[0], list) else [alias]


def _is_sealed_choice(core: CoreSchemas, choice: Any) -> bool:
    return is_sealed(core.resolve(choice[0] if isinstance(choice, tuple) else choice))
