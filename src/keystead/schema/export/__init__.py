"""Export: what keyspaces store, for programs in other languages: JSON Schema and TypeScript."""

from collections.abc import Sequence
from typing import Any

from keystead.schema.export import schema_document, typescript_module
from keystead.schema.keyspace import Keyspace

__all__ = ["json_schema", "typescript"]


def json_schema(keyspaces: Sequence[type[Keyspace]]) -> dict[str, Any]:
    """One document of JSON Schema 2020-12 for these keyspaces. The same declarations give the same document.

    `keyspaces` holds each family by the names of its keyspace and its own: pattern, kind, role, lifetime, and the
    schema of what it holds. Models and records are in `$defs`, each once. Validators pass over `keyspaces`: point
    them at a definition, `#/$defs/Session`.
    """
    return schema_document.document(keyspaces)


def typescript(keyspaces: Sequence[type[Keyspace]]) -> str:
    """A module of TypeScript: a type for each model and each key, and `KeyPatterns`, which leads from keys to values.

    It has types only, so nothing of it is left when a program runs, and it compiles under `tsc --strict`.
    """
    return typescript_module.module(keyspaces)
