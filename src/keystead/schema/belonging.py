"""Which family a key belongs to, among all families of a store."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

from keystead.schema.family import Bound, Family
from keystead.schema.keyspace import Keyspace
from keystead.stores import Store


class Member(NamedTuple):
    """A key, its family, and the values of its placeholders."""

    bound: Bound[Any]
    key: str
    values: dict[str, Any]


class Belonging:
    """The families of one store, found by the first segment of a key.

    Where two families make the same key, which `keystead check` refuses, the one declared first has it.
    """

    def __init__(self, store: Store, bounds: Iterable[Bound[Any]]) -> None:
        self.store = store
        self.bounds = [bound for bound in bounds if bound.family.kind != "channel"]
        self._anywhere: list[Bound[Any]] = []
        self._by_segment: dict[str, list[Bound[Any]]] = {}
        for bound in self.bounds:
            segment, colon, _ = _literal(bound.family).partition(":")
            if colon:
                self._by_segment.setdefault(segment, []).append(bound)
            else:
                self._anywhere.append(bound)

    def of(self, raw: bytes) -> Member | None:
        """None: no family makes this key."""
        try:
            key = raw.decode()
        except UnicodeDecodeError:
            return None
        segment, colon, _ = key.partition(":")
        for bound in self._by_segment.get(segment, ()) if colon else ():
            values = bound.parse(key)
            if values is not None:
                return Member(bound, key, values)
        for bound in self._anywhere:
            values = bound.parse(key)
            if values is not None:
                return Member(bound, key, values)
        return None


def by_store(keyspaces: Sequence[Keyspace], families: Collection[Family[Any]] | None = None) -> list[Belonging]:
    """The families of these keyspaces, or those that are named, store by store, each once."""
    stores: dict[int, Store] = {}
    bounds: dict[int, dict[Family[Any], Bound[Any]]] = {}
    for keys in keyspaces:
        for bound in keys.bounds():
            if families is None or bound.family in families:
                stores.setdefault(id(bound.store), bound.store)
                found = bounds.setdefault(id(bound.store), {})
                held = found.get(bound.family)
                # A family that is inherited is in several keyspaces: the larger one knows more of its relations.
                if held is None or len(held.keyspace.families) < len(keys.families):
                    found[bound.family] = bound
    return [Belonging(store, bounds[place].values()) for place, store in stores.items()]


def name_of(family: Family[Any]) -> str:
    """`AppKeys.token`"""
    return f"{family.keyspace.__name__}.{family.name}" if family.keyspace else family.name


def _literal(family: Family[Any]) -> str:
    """What every key of a family begins with."""
    return family.pattern.text.partition("{")[0].partition("[")[0]
