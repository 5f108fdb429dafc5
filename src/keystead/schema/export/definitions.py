"""Definitions: the models and records of several families, each under one name."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final, NamedTuple

from keystead.schema.export.type_names import capitalize, choose_names, short

Schema = dict[str, Any]

_PREFIX: Final = "#/$defs/"


class _Definition(NamedTuple):
    """A schema whose references are identities, and the names that it may have, the shortest first."""

    schema: Schema
    names: tuple[str, ...]


class Definitions:
    """Collects definitions from schemas that each have their own, then names them all.

    Equal definitions are merged. If different ones share a name, each is prefixed with its keyspace, or with its
    keyspace and its family.
    """

    def __init__(self, reserved: Collection[str]) -> None:
        self._reserved = reserved
        self._found: dict[str, _Definition] = {}

    def add(self, schema: Schema, keyspace: str, family: str) -> Schema:
        """The schema without its definitions, which are collected. The names may become a prefix."""
        own = dict(schema)
        definitions: dict[str, Schema] = own.pop("$defs", {})
        identities = {name: _identity(name, one, definitions) for name, one in definitions.items()}

        def define(identity: str, title: str, one: Schema) -> None:
            name, prefix = capitalize(title), short(keyspace)
            names = (name, prefix + name, prefix + capitalize(family) + name)
            self._found.setdefault(identity, _Definition(_redirect(one, identities), names))

        for name, one in definitions.items():
            define(identities[name], str(one.get("title") or name), one)
        if "properties" not in own:
            plain: Schema = _redirect(own, identities)
            return plain
        title = str(own.get("title") or family)
        identity = _identity(title, own, definitions)
        define(identity, title, own)
        return {"$ref": identity}

    def with_final_names(self, schemas: Mapping[str, Schema]) -> dict[str, Schema]:
        """The schemas that `add` returned, with final names in their references. Call it after all were added."""
        references = {identity: _PREFIX + name for identity, name in self._names().items()}
        return {name: _redirect(schema, references) for name, schema in schemas.items()}

    def all(self) -> dict[str, Schema]:
        """The definitions by their final names, in alphabetical order."""
        names = self._names()
        return dict(
            sorted(self.with_final_names({names[one]: found.schema for one, found in self._found.items()}).items())
        )

    def _names(self) -> dict[str, str]:
        return choose_names({identity: one.names for identity, one in self._found.items()}, self._reserved)


def _identity(name: str, schema: Schema, definitions: Mapping[str, Schema]) -> str:
    """An identity that two definitions share exactly if they are equal, with all that they refer to."""
    reachable = {one: definitions[one] for one in _reachable(schema, definitions, set())}
    return json.dumps([schema.get("title") or name, schema, reachable], sort_keys=True, default=str)


def _redirect(schema: Any, targets: Mapping[str, str]) -> Any:
    """The same schema with redirected references."""
    if isinstance(schema, list):
        return [_redirect(one, targets) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _redirect(value, targets) for name, value in schema.items()}
    reference = found.get("$ref")
    if isinstance(reference, str):
        found["$ref"] = targets[reference.removeprefix(_PREFIX)]
    return found


def _reachable(schema: Any, definitions: Mapping[str, Schema], seen: set[str]) -> set[str]:
    for name in _references(schema):
        if name not in seen:
            seen.add(name)
            _reachable(definitions[name], definitions, seen)
    return seen


def _references(schema: Any) -> Iterator[str]:
    if isinstance(schema, list):
        for one in schema:
            yield from _references(one)
    elif isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].removeprefix(_PREFIX)
        for one in schema.values():
            yield from _references(one)
