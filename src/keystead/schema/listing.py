"""Index entries: written with their record, and pruned after it is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from keystead.errors import BadCall, BadKey, BadValue, CommandError, StoreError, Unreadable
from keystead.schema.lifetime import Until
from keystead.schema.operation import Compound
from keystead.schema.relation import Relation, read_origin
from keystead.schema.slots import one_step
from keystead.schema.unreadable import log_unreadable, logging_unreadable
from keystead.stores import Command, Reply, Required, Step, Store, absent, holds

if TYPE_CHECKING:
    from keystead.schema.family import Bound

# A write prunes its index at this many entries, and again each time the index has doubled. So an index has at most
# about twice as many entries as live records, and the amortised cost of a write is constant.
PRUNE_FROM = 16
_AT_ONCE = 200


class ListedEntry(NamedTuple):
    """The entry of one record in one index."""

    relation: Relation
    index: Bound[Any]
    key: str
    member: bytes


def entries(bound: Bound[Any], values: dict[str, Any], value: Any) -> list[ListedEntry]:
    """The index entries of a record with these placeholder values and this value."""
    return [entry_of(bound, relation, values, value) for relation in bound.family.listed_in]


def entry_of(bound: Bound[Any], relation: Relation, values: dict[str, Any], value: Any) -> ListedEntry:
    """Its entry in one index. Raises BadValue or BadKey if the value does not determine it."""
    index = bound.related(relation.target)
    where = relation.target_values(values, value)
    if where is None:
        missing = ", ".join(o.name or "its value" for o in relation.origins.values() if o and o.kind != "placeholder")
        raise BadValue(f"{bound.family.place} is listed in {relation.target.name} by {missing}, which is empty")
    key = index(**where).key
    return ListedEntry(relation, index, key, index.family.codecs["member"].encode(values[relation.member], key))


def put(
    entry: ListedEntry,
    values: dict[str, Any],
    value: Any,
    now_ms: int,
    at_ms: int | None,
    *,
    kept: bool = False,
    new: bool = True,
) -> list[Command]:
    """The commands that write an entry. The first replies whether it is new, the last counts the index, for `upkeep`.

    `kept`: the record keeps its deadline, so an entry that is sorted by it keeps its score.
    `new`: the write may create the record. If it cannot, an index with `admits` is only renewed: an entry that was
    removed meanwhile stays removed.
    """
    lifetime = entry.index.family.lifetime
    # A record that keeps its deadline needs no renewal of an index that lives until the latest deadline.
    keeps = at_ms is None and isinstance(lifetime, Until)
    renewal = [] if keeps else lifetime.on_write(entry.key, now_ms, at_ms)
    if entry.index.family.kind == "set":
        count = ("SCARD", entry.key)
        return [("SADD", entry.key, entry.member) if new or not entry.relation.admits else count, *renewal, count]
    score = _score(entry, values, value, now_ms if at_ms is None else at_ms)
    flags = ("NX",) if kept and entry.relation.score is None else ()
    return [("ZADD", entry.key, *flags, score, entry.member), *renewal, ("ZCARD", entry.key)]


def removal_command(entry: ListedEntry) -> Command:
    return ("SREM" if entry.index.family.kind == "set" else "ZREM", entry.key, entry.member)


def upkeep(entry: ListedEntry, added: Reply, count: Reply) -> Awaitable[None] | None:
    """The pruning that is due at this size of an index, if any."""
    if added == 1 and isinstance(count, int) and count >= PRUNE_FROM and count & (count - 1) == 0:
        return prune(entry.index, entry.key)
    return None


async def relist(bound: Bound[Any], key: str, value: Any, at_ms: int | None = None, *, kept: bool = False) -> None:
    """Write the entries of a record again, so that an index lives as long as its records.

    An index with `admits` is only renewed. A record that was deleted meanwhile is not listed again, except across slots
    of a cluster, where no guard is possible: the next reader prunes such an entry.
    """
    values, now_ms = bound.parse(key) or {}, bound.now_ms()
    dies_ms = bound.family.lifetime.deadline_ms(now_ms, at_ms)
    for entry in entries(bound, values, value):
        commands = put(entry, values, value, now_ms, dies_ms, kept=kept, new=False)
        if one_step(bound.store, key, entry.key):
            await bound.store.atomically([Required(("EXISTS", key)), *commands])
        else:
            await bound.store.run(commands)


async def prune(index: Bound[Any], key: str) -> None:
    """Remove the index entries whose records are gone."""
    await live(index, key)


async def live(index: Bound[Any], key: str) -> list[Any]:
    """The members of an index whose records exist; the others are pruned. Two round trips, or three."""
    if not index.family.lists:
        raise BadCall(f"{index.family.place}: no family is listed in it, so its members are not records")
    by_name = index.family.kind == "set"
    command: Command = ("SMEMBERS", key) if by_name else ("ZRANGE", key, 0, -1)
    with logging_unreadable(index.store):
        raw: Iterable[bytes] = (await index.store.run([command]))[0]
    codec, where = index.family.codecs["member"], index.parse(key) or {}
    members = []
    for data in raw:
        try:
            member = codec.decode(data, key, index.ring)
            members.append((data, member, sources(index, where, member)))
        except (Unreadable, BadKey) as error:
            # It does not name a live record.
            log_unreadable(index.store, error if isinstance(error, Unreadable) else Unreadable("names no key", key))
    alive: list[Any] = []
    for at in range(0, len(members), _AT_ONCE):
        page = members[at : at + _AT_ONCE]
        found = await index.store.run([("EXISTS", *keys) for _, _, keys in page])
        there = [entry for entry, count in zip(page, found, strict=True) if count]
        dead = [entry for entry, count in zip(page, found, strict=True) if not count]
        await asyncio.gather(*(remove_dead(index, key, data, keys) for data, _, keys in dead))
        moved = await _remove_moved(index, key, where, [(data, keys) for data, _, keys in there])
        alive += [member for data, member, _ in there if data not in moved]
    return alive


async def _remove_moved(
    index: Bound[Any], key: str, where: dict[str, Any], there: list[tuple[bytes, list[str]]]
) -> set[bytes]:
    """Remove the entries of live records that now belong to another index. Returns them.

    The index of a record may depend on a field, and a new record of the same key may have another value.
    """
    relations = [
        one for one in index.family.lists if one.needs_value and one.source in index.keyspace.families.values()
    ]
    if len(index.family.lists) != 1 or not relations or not there:
        return set()
    [relation] = relations
    source = index.related(relation.source)
    found = await _replies_or_errors(index.store, [source.family.read_command(names[0]) for _, names in there])
    moved = set()
    for (data, names), raw in zip(there, found, strict=True):
        try:
            if isinstance(raw, Unreadable):
                raise raw
            value = source.family.value_of(raw, names[0], source.ring)
        except Unreadable as error:
            log_unreadable(source.store, error)  # it may still belong to this index
            continue
        if value is not None and relation.target_values(source.parse(names[0]) or {}, value) != where:
            moved.add(data)
            guards = [holds(names[0], raw)] if isinstance(raw, bytes) and one_step(index.store, key, names[0]) else []
            take: Command = ("SREM" if index.family.kind == "set" else "ZREM", key, data)
            await index.store.atomically([*guards, take])
    return moved


async def _replies_or_errors(store: Store, commands: list[Command]) -> list[Reply]:
    """As `store.run`, with the error in place of the reply for each key of another kind."""
    try:
        return await store.run(commands)
    except Unreadable as error:
        replies: list[Reply] = error.replies if isinstance(error, CommandError) and error.replies else [error]
        for reply in replies:
            if isinstance(reply, StoreError) and not isinstance(reply, Unreadable):
                raise reply from None
        return replies


def sources(index: Bound[Any], where: dict[str, Any], member: Any) -> list[str]:
    """The keys that an entry names: one for each family that is listed here."""
    keys = []
    for relation in index.family.lists:
        values = relation.source_values(where, member)
        if values is None:
            continue
        family = relation.source
        if family in index.keyspace.families.values():
            keys.append(index.related(family)(**values).key)
        else:  # listed by a keyspace that inherits this one: in the same store, like every index and its records
            tagged = index.store.guarantees.atomic == "one slot" and family.pattern.tag is not None
            keys.append(family.pattern.render(values, tagged=tagged))
    return keys


async def remove_dead(index: Bound[Any], key: str, data: bytes, names: list[str]) -> bool:
    """Remove one entry if its record is still gone: a record created since then keeps its entry."""
    store, by_name = index.store, index.family.kind == "set"
    remove: Command = ("SREM" if by_name else "ZREM", key, data)
    if one_step(store, key, *names):
        guards: list[Step] = [absent(name) for name in names]
        outcome = await store.atomically([*guards, remove])
        return bool(outcome) and bool(outcome.replies[-1])
    # Across slots of a cluster no guard is possible. A writer there writes the entry before and after the record. So a
    # record created between the check and this step is found by a second check, or its entry is still to come.
    score, gone = await store.run([("EXISTS", key) if by_name else ("ZSCORE", key, data), remove])
    if (await store.run([("EXISTS", *names)]))[0]:
        if any(relation.admits for relation in index.family.lists):
            return False  # a concurrent removal may have ended it; a record that is created is listed once more
        if by_name:
            await store.run([("SADD", key, data)])
        elif score is not None:  # otherwise another pruner removed it, and restores it as this one would
            await store.run([("ZADD", key, "NX", score, data)])
        return False
    return bool(gone)


def _score(entry: ListedEntry, values: dict[str, Any], value: Any, otherwise: int) -> float | int:
    if entry.relation.score is None:
        return otherwise
    score = read_origin(entry.relation.score, values, value)
    if isinstance(score, datetime):
        return round(score.timestamp() * 1000)
    if isinstance(score, bool) or not isinstance(score, int | float):
        index = entry.relation.target.name
        raise BadValue(f"{entry.relation.source.place}: its score in {index} is neither a number nor a time")
    return score


class ListedWrite(Compound[Any]):
    """A write of a record and of the index entries that name it.

    One atomic step if the store allows it. Across slots of a cluster the entries are written first: the next reader
    prunes an entry without a record, while a record without an entry would never be found. They are written again
    after the record, because a reader may have pruned them before the record existed.
    """

    __slots__ = ("_entries", "takes_several")

    stops_by_itself = True

    def __init__(
        self,
        bound: Bound[Any],
        verb: str,
        key: str,
        record: list[Any],
        writes: list[tuple[ListedEntry, list[Command]]],
        result: Any,
    ) -> None:
        self.takes_several = not one_step(bound.store, key, *(entry.key for entry, _ in writes))
        steps: list[Any] = [] if self.takes_several else list(record)
        self._entries: list[tuple[ListedEntry, int, int]] = []  # with the places of its first and its last command
        for entry, commands in writes:
            self._entries.append((entry, len(steps), len(steps) + len(commands) - 1))
            steps += commands
        super().__init__(
            bound,
            verb,
            steps + (list(record) if self.takes_several else []),
            result,
            atomic=True,
            stopped=False,
            follow=partial(_prune, self._entries),  # not a method, which would make a reference cycle
        )

    async def _alone(self) -> Any:
        if not self.takes_several:
            return await super()._alone()
        last = self._entries[-1][2] + 1
        entries = self.steps[:last]
        # First only missing entries: an `add` that finds an existing record must not change its score.
        first = [
            ("ZADD", step[1], "NX", *step[2:]) if step[0] == "ZADD" and "NX" not in step else step for step in entries
        ]
        counts = await self.store.run(first)
        outcome = await self.store.atomically(self.steps[last:])
        if not outcome:
            return self.stopped
        await self.store.run(entries)
        await self.upkeep(counts)
        return self.finish(outcome.replies)


def _prune(entries: list[tuple[ListedEntry, int, int]], replies: list[Reply]) -> Awaitable[None] | None:
    due = [upkeep(entry, replies[first], replies[last]) for entry, first, last in entries]
    work = [one for one in due if one is not None]
    return _gather(work) if work else None


async def _gather(work: list[Awaitable[None]]) -> None:
    await asyncio.gather(*work)
