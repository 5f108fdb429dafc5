"""Find the family of a key, among all families of a store."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from keystead.schema.family import Bound, Family
from keystead.schema.keyspace import Keyspace
from keystead.stores import Store

Parts: TypeAlias = Sequence[tuple[str, Callable[[str], Any]]]


class Member(NamedTuple):
    """A key, its family, and the values of its placeholders."""

    bound: Bound[Any]
    key: str
    values: dict[str, Any]


class Belonging:
    """The families of one store, or its channels, found by the first segment of a key.

    If two families can produce the same key, which `keystead check` reports, the first declared one wins.
    """

    def __init__(self, store: Store, bounds: Iterable[Bound[Any]], *, channels: bool = False) -> None:
        self.store = store
        self.bounds = [bound for bound in bounds if (bound.family.kind == "channel") is channels]
        anywhere: list[Bound[Any]] = []
        by_segment: dict[str, list[Bound[Any]]] = {}
        for bound in self.bounds:
            segment, colon, _ = literal_prefix(bound.family).partition(":")
            if colon:
                by_segment.setdefault(segment, []).append(bound)
            else:
                anywhere.append(bound)
        self._anywhere = _Alternatives(anywhere)
        self._by_segment = {segment: _Alternatives(some) for segment, some in by_segment.items()}

    def glob(self, narrowed: bool) -> str:
        """The pattern to scan for: everything, or the keys of the only selected family."""
        return self.bounds[0].glob() if narrowed and len(self.bounds) == 1 else "*"

    def of(self, raw: bytes) -> Member | None:
        """None: the key matches no family."""
        try:
            key = raw.decode()
        except UnicodeDecodeError:
            return None
        some = self._by_segment.get(key.partition(":")[0])
        member = None if some is None else some.member(key)
        return self._anywhere.member(key) if member is None else member

    def bound_of(self, raw: bytes) -> Bound[Any] | None:
        """The family of a key that Keystead wrote, without reading its placeholders; None: no family makes this key."""
        try:
            key = raw.decode()
        except UnicodeDecodeError:
            return None
        some = self._by_segment.get(key.partition(":")[0])
        bound = None if some is None else some.bound_of(key)
        return self._anywhere.bound_of(key) if bound is None else bound


class _Alternatives:
    """Several families as one regular expression, so that a key is matched once."""

    def __init__(self, bounds: Sequence[Bound[Any]]) -> None:
        self._bounds = bounds
        self._expression = re.compile("|".join(f"({bound.expression})" for bound in bounds) or "(?!)")
        self._by_group: dict[int | None, tuple[Bound[Any], Parts]] = {}
        group = 1
        for bound in bounds:
            self._by_group[group] = bound, bound.family.pattern.parts
            group += 1 + len(bound.family.pattern.names)

    def bound_of(self, key: str) -> Bound[Any] | None:
        match = self._expression.fullmatch(key)
        return None if match is None else self._by_group[match.lastindex or 0][0]

    def member(self, key: str) -> Member | None:
        match = self._expression.fullmatch(key)
        if match is None:
            return None
        group = match.lastindex or 0  # the outermost group that matched: it closes last
        bound, parts = self._by_group[group]
        values: dict[str, Any] = {}
        try:
            for name, read in parts:
                group += 1
                written = match[group]
                values[name] = None if written is None else read(written)
        except Exception:  # a foreign text; it may still be a key of another family
            return self._one_by_one(key)
        return Member(bound, key, values)

    def _one_by_one(self, key: str) -> Member | None:
        for bound in self._bounds:
            values = bound.parse(key)
            if values is not None:
                return Member(bound, key, values)
        return None


class KnownKeys:
    """Families known by their patterns alone, in any store."""

    def __init__(self, keyspaces: Iterable[type[Keyspace]]) -> None:
        self._patterns = [
            (one.__name__, family.pattern)
            for one in keyspaces
            for family in one.families.values()
            if family.kind != "channel"
        ]

    def keyspace_of(self, raw: bytes) -> str | None:
        """The name of the keyspace of this key; None: it matches none."""
        for name, pattern in self._patterns:
            if pattern.parse(raw) is not None:
                return name
            if pattern.tag is not None and pattern.parse(raw, tagged=True) is not None:
                return name
        return None


def by_store(keyspaces: Sequence[Keyspace], families: Collection[Family[Any]] | None = None) -> list[Belonging]:
    """The families of these keyspaces, or only the given ones, by store, each once."""
    stores: dict[int, Store] = {}
    bounds: dict[int, dict[Family[Any], Bound[Any]]] = {}
    for keys in keyspaces:
        for bound in keys.bounds():
            if families is None or bound.family in families:
                stores.setdefault(id(bound.store), bound.store)
                found = bounds.setdefault(id(bound.store), {})
                held = found.get(bound.family)
                # An inherited family is in several keyspaces: the larger one has more of its relations.
                if held is None or len(held.keyspace.families) < len(keys.families):
                    found[bound.family] = bound
    return [Belonging(store, bounds[place].values()) for place, store in stores.items()]


async def total_keys(places: Sequence[Belonging]) -> int:
    """The number of keys that these stores report."""
    return sum([(await place.store.run([("DBSIZE",)]))[0] for place in places])


def name_of(family: Family[Any]) -> str:
    """`AppKeys.token`"""
    return f"{family.keyspace.__name__}.{family.name}" if family.keyspace else family.name


def literal_prefix(family: Family[Any]) -> str:
    """What all keys of a family begin with."""
    return family.pattern.prefix
