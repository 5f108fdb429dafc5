"""Browsing: one page of a family's keys, one key with its content, and the keys it is related to. Read-only."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, Literal, NamedTuple

from keystead.errors import BadKey, BadValue, Unreadable, WrongKind
from keystead.schema import listing
from keystead.schema.chunked_reading import SIZES
from keystead.schema.codec import Codec
from keystead.schema.deletion import unsealed_fields
from keystead.schema.family import Bound, Family
from keystead.schema.family_lookup import Belonging, Member
from keystead.schema.pace import replies_of
from keystead.schema.paced_scan import pages_within
from keystead.schema.relation import Relation
from keystead.schema.survey import shown_entry, some_entries

_SPARSE: Final = 1_000  # keys per request while few of them belong to the family
_ENTRIES_SHOWN: Final = 100
_RAW_MAX_BYTES: Final = 64 * 1024


class KeyPage(NamedTuple):
    """Some keys of a family. `cursor` continues after them; empty: these are the last ones, or the store has no cursor
    (`is_cut`)."""

    keys: list[str]
    cursor: str
    examined: int
    is_cut: bool = False


async def scan_page(
    bound: Bound[Any],
    values: Mapping[str, Any] | None = None,
    cursor: str = "",
    *,
    wanted: int = 50,
    limit_s: float = 1.0,
) -> KeyPage:
    """About `wanted` keys of a family, or those with these placeholder values, from a cursor on.

    It ends after about `limit_s`, however many keys the store has, and then may have found fewer. Each request to the
    store is short, so other callers are not held up. As in a scan, a key may occur on two pages. A cursor is a number
    that the store gave; anything else starts at the beginning. Raises BadKey for a value that does not fit.
    """
    wanted_values = dict(values or {})
    glob = bound.glob(wanted_values)
    matches = _Matches(bound, wanted_values)
    if bound.store.guarantees.atomic == "one slot":
        return await _scan_without_cursor(bound, glob, matches, wanted, limit_s)
    at = cursor if cursor.isascii() and cursor.isdigit() and len(cursor) <= 20 else "0"
    ends_at, examined, size = monotonic() + limit_s, 0, wanted
    while True:
        [(following, raw_keys)] = await bound.store.run([("SCAN", at, "MATCH", glob, "COUNT", size)])
        examined += size
        matches.add(raw_keys)
        at = following.decode()
        if at == "0":
            return KeyPage(matches.keys, "", examined)
        if len(matches.keys) >= wanted or monotonic() > ends_at:
            return KeyPage(matches.keys, at, examined)
        size = _SPARSE if len(matches.keys) * 4 < wanted else wanted
        await asyncio.sleep(0)  # an embedded store replies without waiting


async def _scan_without_cursor(bound: Bound[Any], glob: str, matches: _Matches, wanted: int, limit_s: float) -> KeyPage:
    """The first keys only: in a cluster a cursor belongs to one node."""
    examined = 0
    async with aclosing(pages_within(bound.store.scan(glob, page=wanted), limit_s)) as pages:
        async for raw_keys in pages:
            examined += len(raw_keys or ())
            matches.add(raw_keys or ())
            if raw_keys is None or len(matches.keys) >= wanted:
                return KeyPage(matches.keys, "", examined, is_cut=True)
    return KeyPage(matches.keys, "", examined)


class _Matches:
    """The keys of a page, each once. Values are compared as rendered: a key holds a long text as its digest."""

    def __init__(self, bound: Bound[Any], values: Mapping[str, Any]) -> None:
        self._bound = bound
        self._pattern = bound.family.pattern
        self._wanted = {name: self._pattern.render_one(name, value) for name, value in values.items()}
        self._found: dict[str, None] = {}

    def add(self, raw_keys: Sequence[bytes]) -> None:
        for raw in raw_keys:
            values = self._bound.parse(raw)
            if values is not None and all(
                values[name] is not None and self._pattern.render_one(name, values[name]) == text
                for name, text in self._wanted.items()
            ):
                self._found[raw.decode()] = None

    @property
    def keys(self) -> list[str]:
        return list(self._found)


@dataclass(slots=True)
class KeyContent:
    """One key as an operator may see it: sealed fields are hidden.

    kind      what the store holds: `none` if there is no such key
    left_ms   how long it will live; None: forever
    size      bytes of a string, otherwise the number of entries
    value     the value of a string, or the first entries
    """

    kind: str
    left_ms: int | None = None
    size: int = 0
    value: Any = None
    entries: list[Any] = field(default_factory=list)

    @property
    def exists(self) -> bool:
        return self.kind != "none"


async def read_content(bound: Bound[Any], key: str) -> KeyContent:
    """The content of a key of this family. Nothing is unsealed. Of many entries, the first are read."""
    kind_raw, left_ms = await bound.store.run([("TYPE", key), ("PTTL", key)])
    found = KeyContent(kind_raw.decode(), left_ms if left_ms >= 0 else None)
    if found.kind != bound.family.kind:
        return found
    [held] = await replies_of(bound.store, [(SIZES[found.kind], key)])
    if held is None or isinstance(held, WrongKind):  # it was deleted or replaced meanwhile
        return KeyContent("none")
    if found.kind == "string":
        found.size = len(held)
        found.value = bound.family.codecs["value"].shown(held, key)
    else:
        found.size = held
        entries = await some_entries(bound, key, held)
        found.entries = [shown_entry(bound, key, entry) for entry in entries[:_ENTRIES_SHOWN]]
    return found


async def read_raw(bound: Bound[Any], key: str) -> list[bytes]:
    """The stored bytes: of a string its value, otherwise of its first entries. Empty: there is no such key."""
    [kind] = await bound.store.run([("TYPE", key)])
    if kind.decode() != bound.family.kind:
        return []
    [held] = await replies_of(bound.store, [(SIZES[bound.family.kind], key)])
    if held is None or isinstance(held, WrongKind):
        return []
    if bound.family.kind == "string":
        return [held[:_RAW_MAX_BYTES]]
    entries = await some_entries(bound, key, held)
    return [b" ".join(_flat(entry))[:_RAW_MAX_BYTES] for entry in entries[:_ENTRIES_SHOWN]]


def _flat(entry: Any) -> list[bytes]:
    if isinstance(entry, bytes):
        return [entry]
    if isinstance(entry, list | tuple):
        return [piece for one in entry for piece in _flat(one)]
    return [str(entry).encode()]


RelationKind = Literal["owned_by", "owns", "listed_in", "lists", "leads_to"]


@dataclass(slots=True)
class RelatedKey:
    """A key that another one is related to.

    key      None: only a search finds it, for the keys of `bound` with these `values`
    exists   None: it was not looked for
    """

    kind: RelationKind
    bound: Bound[Any]
    key: str | None
    values: dict[str, Any] = field(default_factory=dict)
    exists: bool | None = None


async def related_keys(bound: Bound[Any], key: str) -> list[RelatedKey]:
    """What owns this key, what lists it, what it owns, lists and leads to. Of a large index, the first entries."""
    values = bound.parse(key) or {}
    family: Family[Any] = bound.family
    value = await _value_for_relations(bound, key)
    own = set(bound.keyspace.families.values())  # a keyspace that inherits this one may relate more families to it
    found = [_owner(bound, relation, values) for relation in family.owned_by if relation.source in own]
    for relation in family.listed_in:
        with suppress(BadKey, BadValue):
            entry = listing.entry_of(bound, relation, values, value)
            found.append(RelatedKey("listed_in", entry.index, entry.key))
    for kind, relations in (("owns", family.owns), ("leads_to", family.leads_to)):
        found += [one for relation in relations for one in _targets(bound, relation, values, value, kind)]
    if family.lists:
        found += await _listed(bound, key, values)
    known = [one for one in found if one.key is not None]
    for one, there in zip(known, await _existence(known), strict=True):
        one.exists = there
    return found


def _owner(bound: Bound[Any], relation: Relation, values: dict[str, Any]) -> RelatedKey:
    owner = bound.related(relation.source)
    found = relation.source_values(values)
    if found is not None:
        with suppress(BadKey):
            return RelatedKey("owned_by", owner, owner(**found).key)
    partial = {
        origin.name: values[name]
        for name, origin in relation.origins.items()
        if origin is not None and origin.kind == "placeholder" and values.get(name) is not None
    }
    return RelatedKey("owned_by", owner, None, partial)


def _targets(bound: Bound[Any], relation: Relation, values: dict[str, Any], value: Any, kind: Any) -> list[RelatedKey]:
    target = bound.related(relation.target)
    where = relation.target_values(values, value)
    if where is None:
        return []
    if relation.scans:
        return [RelatedKey(kind, target, None, where)]
    try:
        return [RelatedKey(kind, target, target(**where).key)]
    except BadKey:
        return []


async def _listed(bound: Bound[Any], key: str, values: dict[str, Any]) -> list[RelatedKey]:
    """The records that the first entries of an index name."""
    [size] = await replies_of(bound.store, [(SIZES[bound.family.kind], key)])
    if isinstance(size, WrongKind) or not size:
        return []
    member_codec: Codec[Any] = bound.family.member
    by_pattern = Belonging(bound.store, bound.keyspace.bounds())
    found = []
    for entry in (await some_entries(bound, key, size))[:_ENTRIES_SHOWN]:
        data = entry[0] if bound.family.kind == "zset" else entry
        with suppress(Unreadable, BadKey):
            member = member_codec.decode(data, key, bound.ring)
            for name in listing.sources(bound, values, member):
                record: Member | None = by_pattern.of(name.encode())
                if record is not None:
                    found.append(RelatedKey("lists", record.bound, name))
    return found


async def _existence(related: Sequence[RelatedKey]) -> list[bool]:
    there: dict[tuple[int, str | None], bool] = {}
    for store in {id(one.bound.store): one.bound.store for one in related}.values():
        keys = [one.key for one in related if one.bound.store is store and one.key is not None]
        replies = await store.run([("EXISTS", key) for key in keys])
        there |= {(id(store), key): bool(reply) for key, reply in zip(keys, replies, strict=True)}
    return [there[id(one.bound.store), one.key] for one in related]


async def _value_for_relations(bound: Bound[Any], key: str) -> Any:
    """The value, if a relation depends on it; None if it cannot be read."""
    family = bound.family
    if not any(relation.needs_value for relation in (*family.listed_in, *family.owns, *family.leads_to)):
        return None
    [raw] = await replies_of(bound.store, [family.read_command(key)])
    if isinstance(raw, WrongKind):
        return None
    try:
        return family.value_of(raw, key, bound.ring)
    except Unreadable:
        return unsealed_fields(raw)
