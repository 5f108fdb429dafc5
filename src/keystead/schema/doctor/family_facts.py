"""Facts that the doctor needs for every key of a family, computed once per family."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from keystead.errors import BadKey, BadValue, NotANumber, Unreadable
from keystead.schema.chunked_reading import UNKNOWN
from keystead.schema.doctor.deadlines import CLOCKS_MS, wrong_deadline
from keystead.schema.doctor.key_state import KeyState, is_model
from keystead.schema.doctor.relation_checks import NamedEntry, keys_named_by
from keystead.schema.family import Bound
from keystead.schema.family_lookup import name_of
from keystead.schema.kinds import Counter
from keystead.schema.lifetime import After, Sliding, Spread
from keystead.schema.listing import ListedEntry
from keystead.schema.relation import Origin, Relation, read_origin
from keystead.stores import TABLE, Call, Store
from keystead.stores.commands import integer

# Lifetimes whose only rule is that a TTL is at most their longest.
_PLAIN: Final = (After, Spread, Sliding)


class Owner(NamedTuple):
    """A family that owns this one: its key consists of these placeholders of the owned key, in this order."""

    bound: Bound[Any]
    names: tuple[str, ...]


class ListingIndex(NamedTuple):
    """An index that lists a family, and the origins of the index's placeholders, in order."""

    relation: Relation
    index: Bound[Any]
    origins: tuple[Origin, ...]
    has_score: bool  # whether the right score of an entry is known


class Facts:
    """One family in its store, and how many of its keys and entries were seen."""

    __slots__ = (
        "bound",
        "decode",
        "entries",
        "intact",
        "is_counter",
        "is_index",
        "is_record",
        "is_sealed",
        "keeps",
        "keys",
        "kind",
        "latest_ms",
        "leads_to",
        "listed",
        "may_be_old",
        "name",
        "never_ends",
        "owners",
        "ring",
        "source",
    )

    def __init__(self, bound: Bound[Any]) -> None:
        family = bound.family
        self.bound = bound
        self.name = name_of(family)
        self.kind: str = family.kind
        self.is_record = family.kind == "string" or is_model(bound)
        self.is_sealed = bound.ring is not None and family.needs_ring
        self.may_be_old = self.is_sealed or any(codec.versions is not None for codec in family.codecs.values())
        self.keeps: int | None = getattr(family, "keep", None)
        lifetime = family.lifetime
        self.never_ends = not lifetime.ends
        self.latest_ms = lifetime.longest_ms + CLOCKS_MS if isinstance(lifetime, _PLAIN) else None
        self.leads_to: tuple[Relation, ...] = family.leads_to if self.is_record else ()
        self.owners = _owners(bound)
        self.listed = [_listing_index(bound, relation) for relation in family.listed_in]
        self.is_index = bool(family.lists)
        self.source = _source(bound)
        self.ring = bound.ring
        self.is_counter = isinstance(family, Counter)
        is_plain = family.kind == "string" and not (family.needs_ring and bound.ring is None)
        self.decode = family.codecs["value"].decode if is_plain else None
        self.keys = 0
        self.entries = 0
        self.intact = {"orphan": 0, "leads-nowhere": 0}  # relations that hold, by the code of those that do not

    def read(self, look: KeyState) -> None:
        """Decode the value of a record, as `look.read` does, but faster for each key."""
        if self.decode is None:
            look.read()
            return
        try:
            look.value = self.decode(look.raw, look.key, self.ring)
            if self.is_counter:
                integer(look.raw)
        except (Unreadable, NotANumber):
            look.read()  # finds the reason

    def keys_named_by(self, look: KeyState, data: bytes, member: Any) -> NamedEntry | None:
        """What an index entry names; None if that cannot be determined."""
        source = self.source
        if source is None:
            return keys_named_by(look, data, member)
        values = look.values
        try:
            key = source.bound.render(*[values[name] if name else member for name in source.names])
        except BadKey:
            return NamedEntry(data, [])  # no record can have this name
        return NamedEntry(data, [key])

    def wrong_deadline(self, look: KeyState) -> str | None:
        """The code of what is wrong with the deadline of a key. One comparison is enough for most keys."""
        left_ms = look.left_ms
        if self.never_ends:
            return "unexpected-deadline" if left_ms >= 0 else None
        if self.latest_ms is not None and 0 <= left_ms <= self.latest_ms:
            return None
        return wrong_deadline(look)

    def owner_keys(self, values: Mapping[str, Any]) -> list[tuple[Store, str]]:
        """The keys that could own a key with these values; none if one of them cannot be determined."""
        try:
            return [(one.bound.store, one.bound.render(*[values[name] for name in one.names])) for one in self.owners]
        except BadKey:
            return []


def entry_of(look: KeyState, listed: ListingIndex) -> ListedEntry | None:
    """The index entry that a record should have; None if its value does not determine it."""
    value = None if look.value is UNKNOWN else look.value
    values, where = look.values, []
    for origin in listed.origins:
        if origin.kind == "placeholder":
            one = values[origin.name]
        else:
            one = None if value is None else read_origin(origin, values, value)
        if one is None:
            return None
        where.append(one)
    index = listed.index
    try:
        key = index.render(*where)
        member = index.family.codecs["member"].encode(values[listed.relation.member], key)
    except (BadKey, BadValue):
        return None
    return ListedEntry(listed.relation, index, key, member)


def is_there(entry: ListedEntry) -> Call:
    """The command that tells whether an entry exists: nil or 0 if not."""
    name = "SISMEMBER" if entry.index.family.kind == "set" else "ZSCORE"
    return Call(TABLE[name], (entry.key.encode(), entry.member), None)


def _owners(bound: Bound[Any]) -> list[Owner]:
    """Empty if not all follow from the key alone, or if a key may exist without an owner."""
    found = []
    for relation in bound.family.owned_by:
        if relation.optional or relation.source not in bound.keyspace.families.values():
            return []
        by_name = {
            origin.name: name for name, origin in relation.origins.items() if origin and origin.kind == "placeholder"
        }
        if by_name.keys() != set(relation.source.pattern.names):
            return []
        names = tuple(by_name[name] for name in relation.source.pattern.names)
        found.append(Owner(bound.related(relation.source), names))
    return found


def _source(index: Bound[Any]) -> Owner | None:
    """The family that an index lists, and the placeholders of the index that form its key; "" is the member.

    None if there is not exactly one, if it is of another keyspace, or if it cannot be determined.
    """
    if len(index.family.lists) != 1 or index.family.lists[0].source not in index.keyspace.families.values():
        return None
    [relation] = index.family.lists
    by_name = {
        origin.name: name for name, origin in relation.origins.items() if origin and origin.kind == "placeholder"
    }
    by_name[relation.member] = ""
    if by_name.keys() != set(relation.source.pattern.names):
        return None
    return Owner(index.related(relation.source), tuple(by_name[name] for name in relation.source.pattern.names))


def _listing_index(bound: Bound[Any], relation: Relation) -> ListingIndex:
    index = bound.related(relation.target)
    # An index needs all its placeholders, so every origin is known.
    origins = tuple(origin for name in index.family.pattern.names if (origin := relation.origins[name]) is not None)
    # A score that is a deadline comes from the clock of the writer, the deadline itself from the clock of the store.
    return ListingIndex(relation, index, origins, index.family.kind == "zset" and relation.score is not None)
