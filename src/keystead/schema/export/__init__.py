"""Export the stored data of keyspaces for other languages: JSON Schema and TypeScript."""

from collections.abc import Sequence
from typing import Any

from keystead.schema.export import schema_document, typescript_module, upstash_module
from keystead.schema.keyspace import Keyspace

__all__ = ["json_schema", "typescript", "upstash_client"]


def json_schema(keyspaces: Sequence[type[Keyspace]]) -> dict[str, Any]:
    """One document of JSON Schema 2020-12 for these keyspaces. The same declarations give the same document.

    `keyspaces` has each family by the names of its keyspace and its own: pattern, kind, role, lifetime, and the schema
    of its values. Models and records are in `$defs`, each once. Validators ignore `keyspaces`: point them to a
    definition, `#/$defs/Session`.
    """
    return schema_document.document(keyspaces)


def typescript(keyspaces: Sequence[type[Keyspace]]) -> str:
    """A TypeScript module: a type for each model and each key, and `KeyPatterns`, which maps keys to values.

    It has types only, so it adds nothing to the compiled program, and it compiles under `tsc --strict`.
    """
    return typescript_module.module(keyspaces)


def upstash_client(keyspaces: Sequence[type[Keyspace]]) -> str:
    """The same types, and for each keyspace a function such as `createShopKeys(redis)` over `@upstash/redis`.

    It returns one factory per family: `keys.cart("ann").set(cart)` writes the value in its stored form, with the
    declared lifetime. The module has no other dependency, and compiles under `tsc --strict`.
    """
    return upstash_module.module(keyspaces)
