"""Cascading deletes: planned first, then executed."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from keystead.errors import BadArgument, BadKey, BadValue, StoreUnavailable, Unreadable, WrongKind
from keystead.schema import listing
from keystead.schema.operation import Compound, Deleting, Operation, taking
from keystead.schema.pace import replies_of
from keystead.schema.relation import Relation
from keystead.schema.seal import KeyRing
from keystead.schema.slots import one_step
from keystead.stores import Command, Reply, Required, Step, Store, absent, field_holds, holds

if TYPE_CHECKING:
    from keystead.schema.family import Bound

R = TypeVar("R")

_ATTEMPTS = 5
_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step of a delete: `delete` a key, or `take out` an index entry."""

    action: str
    key: str
    family: str
    reason: str
    member: str | None = None

    def __str__(self) -> str:
        what = self.key if self.member is None else f"{self.member} of {self.key}"
        return f"{self.action} {what}: {self.reason}"


@dataclass(slots=True)
class Plan:
    """What a delete would do. `notes` lists the relations that could not be resolved."""

    steps: list[PlannedStep] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def keys(self) -> list[str]:
        """The keys that would be deleted, each once."""
        return list(dict.fromkeys(step.key for step in self.steps if step.action == "delete"))

    def __str__(self) -> str:
        return "\n".join([*map(str, self.steps), *self.notes])


@dataclass(slots=True)
class _Related:
    """What a delete removes, as far as that is known without scanning."""

    commands: list[tuple[Store, Command, PlannedStep]] = field(default_factory=list)
    guards: list[tuple[Store, Step]] = field(default_factory=list)
    scans: list[tuple[Bound[Any], dict[str, Any], str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seen: set[tuple[int, str]] = field(default_factory=set)

    def add(self, bound: Bound[Any], key: str, reason: str) -> None:
        self.seen.add((id(bound.store), key))
        step = PlannedStep("delete", key, bound.family.name, reason)
        self.commands.append((bound.store, ("DEL", key), step))

    def entry(self, entry: listing.ListedEntry, of: str) -> None:
        member = entry.member.decode("utf-8", "backslashreplace")
        step = PlannedStep("take out", entry.key, entry.index.family.name, f"it names {of}", member)
        self.commands.append((entry.index.store, listing.removal_command(entry), step))


class _SeenSince(set[tuple[int, str]]):
    """Keys seen from now on, on top of those seen before, without copying them."""

    def __init__(self, before: set[tuple[int, str]]) -> None:
        super().__init__()
        self._before = before

    def __contains__(self, one: object) -> bool:
        return super().__contains__(one) or one in self._before


async def plan(bound: Bound[Any], key: str) -> Plan:
    """Everything that deleting this key would delete, including scans. Read-only."""
    related = await _find_related(bound, key, "requested")
    found = Plan()
    commands: list[tuple[Store, Command, PlannedStep]] = []
    waiting = deque([related])
    while waiting:
        one = waiting.popleft()
        commands += one.commands
        found.notes += one.notes
        async for scanned, owned_key, reason in _scan_owned(one):
            waiting.append(await _find_related(scanned, owned_key, reason, related.seen))
    found.steps = await _existing_steps(commands)
    return found


async def _existing_steps(commands: list[tuple[Store, Command, PlannedStep]]) -> list[PlannedStep]:
    """The steps whose key or entry exists; the others would delete nothing."""
    there = set()
    for at in range(0, len(commands), _AT_ONCE):
        page = list(enumerate(commands[at : at + _AT_ONCE], at))
        for store in {id(store): store for _, (store, _, _) in page}.values():
            own = [(place, _existence_probe(command)) for place, (of, command, _) in page if of is store]
            replies = await replies_of(store, [question for _, question in own])
            there |= {place for (place, _), reply in zip(own, replies, strict=True) if _is_there(reply)}
    return [step for place, (_, _, step) in enumerate(commands) if place in there]


def _existence_probe(command: Command) -> Command:
    """The command that tells whether there is anything for this one to delete."""
    name, *where = command
    return ({"SREM": "SISMEMBER", "ZREM": "ZSCORE"}.get(str(name), "EXISTS"), *where)


def _is_there(reply: Reply) -> bool:
    return not (reply is None or isinstance(reply, WrongKind) or (type(reply) is int and reply == 0))


class Consumption(Compound[Any]):
    """A consume with its cascade. In a batch it stops the others only if it is `.required()`."""

    __slots__ = ()

    def in_batch(self) -> list[Any]:
        first = super().in_batch()[0]
        return [first.command if isinstance(first, Required) else first, *self.steps[1:]]


class Cascade(Deleting[bool]):
    """A delete of a key with relations."""

    __slots__ = ("_key",)

    def __init__(self, bound: Bound[Any], key: str) -> None:
        super().__init__(bound, "delete", [], _first_deleted, atomic=True, stopped=False)
        self._key = key

    @property
    def takes_several(self) -> bool:  # type: ignore[override]
        return self.store.guarantees.atomic != "any keys"

    def in_batch(self) -> list[Any]:
        """The steps, if they follow from the key alone. Raises BadArgument if it takes several round trips."""
        if not super().in_batch():
            related = _Related()
            for store, command, step in _steps_from_key(self.bound, self._key, "requested", related):
                if store is not self.store:
                    raise BadArgument(
                        f"{step.key} is in another store, so deleting it cannot be part of this batch; "
                        "await the delete alone"
                    )
                self.steps.append(command)
        return self.steps

    async def _alone(self) -> bool:
        for _ in range(_ATTEMPTS):
            related = await _find_related(self.bound, self._key, "requested")
            deleted = await _delete_found(self.bound, related)
            if deleted is not None:
                break
        else:
            return await self._delete_unguarded()
        await _delete_scanned(related)
        return deleted

    async def _delete_unguarded(self) -> bool:
        """The key is written too often for optimistic locking: delete it now, then what its last value refers to."""
        bound, key = self.bound, self._key
        steps: list[Step] = [bound.family.read_command(key), ("DEL", key)]
        raw, deleted = (await bound.store.atomically(steps)).replies
        with suppress(Unreadable):  # `keystead doctor` finds its orphans
            await delete_related(bound, key, bound.family.value_of(raw, key, bound.ring))
        return bool(deleted)


async def delete_if(bound: Bound[Any], key: str, reason: str, guards: Iterable[tuple[Store, Step]]) -> bool:
    """Delete a key with its cascade, if these guards hold in the same step. False: nothing was done."""
    related = await _find_related(bound, key, reason)
    related.guards += guards
    if not await _delete_found(bound, related):
        return False
    await _delete_scanned(related)
    return True


async def delete_related(bound: Bound[Any], key: str, value: Any) -> None:
    """Delete what belonged to a key that is already gone and had this last value."""
    related = await _find_related(bound, key, "it is gone", value=value)
    # A key created since then is a new record that keeps what belongs to it; hence the guard.
    del related.commands[0]
    related.guards = [(bound.store, absent(key))]
    if await _delete_found(bound, related) is not None:
        await _delete_scanned(related)


def consume(bound: Bound[Any], key: str, read: Callable[[list[Reply]], R]) -> Operation[R]:
    """Read and delete a key, with its cascade. `read` turns the reply of GETDEL into the result."""
    if not bound.family.has_relations:
        return Operation(bound, "consume", [("GETDEL", key)], taking(read))
    steps = _consume_steps(bound, key)
    if steps is not None:
        return Consumption(bound, "consume", steps, taking(read), atomic=True, stopped=read([None]))

    def follow(replies: list[Reply]) -> Any:
        return None if replies[0] is None else delete_related(bound, key, read(replies))

    return Compound(bound, "consume", [("GETDEL", key)], taking(read), follow=follow)


def _consume_steps(bound: Bound[Any], key: str) -> list[Step] | None:
    """The steps of a consume with its cascade, as one atomic step; None if it takes several."""
    try:
        steps = list(_steps_from_key(bound, key, "it is consumed", _Related()))
    except BadArgument:
        return None
    if any(store is not bound.store for store, _, _ in steps):
        return None
    if not one_step(bound.store, *(step.key for _, _, step in steps)):
        return None
    return [Required(("GETDEL", key)), *(command for _, command, _ in steps[1:])]


def _first_deleted(replies: list[Any]) -> bool:
    return bool(replies[0])


async def _delete_found(bound: Bound[Any], related: _Related) -> bool | None:
    """Delete what was found, the key itself first. None: a value that was read has changed, so nothing was done."""
    if not related.commands and not related.guards:
        return False
    own = [(command, step.key) for store, command, step in related.commands if store is bound.store]
    guards = [(guard, str(getattr(guard, "key", ""))) for store, guard in related.guards if store is bound.store]
    replies: list[Any] | None
    if one_step(bound.store, *(key for _, key in guards), *(key for _, key in own)):
        outcome = await bound.store.atomically([*(guard for guard, _ in guards), *(command for command, _ in own)])
        replies = outcome.replies[len(guards) :] if outcome else None
    else:
        replies = await _delete_across_slots(bound.store, own, guards)
    if replies is None:
        return None
    for store, command, _ in related.commands:
        if store is not bound.store:
            await store.run([command])
    return bool(replies and replies[0])


async def _delete_across_slots(
    store: Store, own: list[tuple[Command, str]], guards: list[tuple[Step, str]]
) -> list[Any] | None:
    """Delete the first key in one step with the guard of its own value. None: a guard stopped it.

    The other guards are checked just before, each in its slot; the other keys follow.
    """
    first = own[0][1] if own else None
    for guard, key in guards:
        if key != first and not await store.atomically([guard]):
            return None
    replies: list[Any] = []
    if own:
        outcome = await store.atomically([*(guard for guard, key in guards if key == first), own[0][0]])
        if not outcome:
            return None
        replies = [outcome.replies[-1]]
    if len(own) > 1:
        await store.run([command for command, _ in own[1:]])
    return replies


async def _delete_scanned(related: _Related) -> None:
    waiting = [related]
    while waiting:
        async for bound, key, reason in _scan_owned(waiting.pop()):
            for _ in range(_ATTEMPTS):
                found = await _find_related(bound, key, reason, _SeenSince(related.seen))
                if await _delete_found(bound, found) is not None:
                    break
            else:
                raise StoreUnavailable(f"{key} kept changing before it could be deleted; try again")
            related.seen |= found.seen
            found.seen = related.seen
            waiting.append(found)


async def _find_related(
    bound: Bound[Any], key: str, reason: str, seen: set[tuple[int, str]] | None = None, value: Any = None
) -> _Related:
    """What deleting this key removes. Values are read from the store where relations depend on them.

    `value` is the value of the key itself, if it is known.
    """
    related = _Related(seen=set() if seen is None else seen)
    waiting = [(bound, key, reason)]
    while waiting:
        one, name, why = waiting.pop(0)
        if (id(one.store), name) in related.seen:
            continue
        related.add(one, name, why)
        values = one.parse(name) or {}
        held = value if name == key and value is not None else await _read_value(one, name, related)
        _add_entries(related, one, name, values, held)
        waiting += _owned_keys(related, one, name, values, held)
    return related


def _add_entries(related: _Related, bound: Bound[Any], key: str, values: dict[str, Any], value: Any) -> None:
    """Add the index entries of a record."""
    for relation in bound.family.listed_in:
        try:
            related.entry(listing.entry_of(bound, relation, values, value), key)
        except (BadKey, BadValue):
            related.notes.append(f"{key}: its entry in {relation.target.name} cannot be determined")


def _owned_keys(
    related: _Related, bound: Bound[Any], key: str, values: dict[str, Any], value: Any
) -> Iterator[tuple[Bound[Any], str, str]]:
    """The keys that a record owns, with the reason. Those that only a scan finds are added to `related.scans`."""
    for relation in bound.family.owns:
        target = bound.related(relation.target)
        where = relation.target_values(values, value)
        if where is None:
            continue
        try:
            if relation.scans:
                target.glob(where)
                related.scans.append((target, where, f"owned by {key}"))
            else:
                yield target, target(**where).key, f"owned by {key}"
        except BadKey as error:
            related.notes.append(f"{key} does not name a key of {relation.target.name}: {error}")


async def _read_value(bound: Bound[Any], key: str, related: _Related) -> Any:
    """The value, if a relation depends on it. It is guarded: it must not change until the delete."""
    relations = (*bound.family.listed_in, *bound.family.owns)
    if not any(relation.needs_value for relation in relations):
        return None
    raw: Any = None
    try:
        raw = (await bound.store.run([bound.family.read_command(key)]))[0]
        value = bound.family.value_of(raw, key, bound.ring)
    except (Unreadable, WrongKind) as error:
        value = unsealed_fields(raw) if bound.ring is None and bound.family.needs_ring else None
        if value is None:
            related.notes.append(f"{error}; keys that its value names are not deleted with it")
            return None
    if isinstance(raw, bytes):
        related.guards.append((bound.store, holds(key, raw)))
    elif raw:
        related.guards += [
            (bound.store, field_holds(key, name, raw.get(name))) for name in _fields_used(bound, relations)
        ]
    return value


def unsealed_fields(raw: Any) -> dict[str, Any] | None:
    """The unsealed fields of a record, for a program without a key ring: relations never depend on sealed ones.

    None: they cannot be read either.
    """
    try:
        found = json.loads(raw)
    except (ValueError, TypeError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    return {name: one for name, one in found.items() if not (isinstance(one, str) and KeyRing.sealed_with(one))}


def _fields_used(bound: Bound[Any], relations: Iterable[Relation]) -> list[bytes]:
    """The stored names of the hash fields that relations depend on."""
    origins = [origin for relation in relations for origin in relation.origins.values()]
    names = dict.fromkeys(origin.name for origin in origins if origin is not None and origin.kind == "field")
    return [bound.family.field_name(name, "") for name in names]


async def _scan_owned(related: _Related) -> Any:
    """The keys found by scanning, each with its family and the reason."""
    for bound, where, reason in related.scans:
        async for owned in bound.scan(**where):
            if (id(bound.store), owned.key) not in related.seen:
                yield bound, owned.key, reason


def _steps_from_key(
    bound: Bound[Any], key: str, reason: str, related: _Related
) -> Iterator[tuple[Store, Command, PlannedStep]]:
    """All commands of a delete whose relations follow from the key alone. Raises BadArgument otherwise."""
    values = bound.parse(key) or {}
    related.add(bound, key, reason)
    yield related.commands[-1]
    relations = (*bound.family.listed_in, *bound.family.owns)
    for relation in relations:
        if not relation.from_key:
            raise BadArgument(
                f"deleting {bound.family.place} takes more than one step, because its key does not determine "
                f"{relation.target.name}; await the delete alone"
            )
    for entry in listing.entries(bound, values, None) if bound.family.listed_in else ():
        related.entry(entry, key)
        yield related.commands[-1]
    for relation in bound.family.owns:
        target = bound.related(relation.target)
        owned = target(**(relation.target_values(values, None) or {})).key
        if (id(target.store), owned) not in related.seen:
            yield from _steps_from_key(target, owned, f"owned by {key}", related)
