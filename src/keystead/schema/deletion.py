"""Cascading deletes: planned first, then done."""

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
    """One thing that a delete does: `delete` a key, or `take out` an entry of an index."""

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
    """What a delete would do. `notes` says what could not be followed."""

    steps: list[PlannedStep] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def keys(self) -> list[str]:
        """The keys that would be deleted, each once."""
        return list(dict.fromkeys(step.key for step in self.steps if step.action == "delete"))

    def __str__(self) -> str:
        return "\n".join([*map(str, self.steps), *self.notes])


@dataclass(slots=True)
class _Known:
    """What a delete takes with it as far as it can be told without scanning."""

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
        self.commands.append((entry.index.store, listing.take_out(entry), step))


class _Since(set[tuple[int, str]]):
    """What is met from now on; it also knows what was met before, without a copy of it."""

    def __init__(self, before: set[tuple[int, str]]) -> None:
        super().__init__()
        self._before = before

    def __contains__(self, one: object) -> bool:
        return super().__contains__(one) or one in self._before


async def plan(bound: Bound[Any], key: str) -> Plan:
    """Everything that deleting this key would delete, scans included. Nothing is changed."""
    known = await _known(bound, key, "what you asked for")
    found = Plan()
    commands: list[tuple[Store, Command, PlannedStep]] = []
    waiting = deque([known])
    while waiting:
        one = waiting.popleft()
        commands += one.commands
        found.notes += one.notes
        async for scanned, owned_key, reason in _scanned(one):
            waiting.append(await _known(scanned, owned_key, reason, known.seen))
    found.steps = await _there(commands)
    return found


async def _there(commands: list[tuple[Store, Command, PlannedStep]]) -> list[PlannedStep]:
    """The steps whose keys and entries are there: of what is gone, or never was, there is nothing to show."""
    there = set()
    for at in range(0, len(commands), _AT_ONCE):
        page = list(enumerate(commands[at : at + _AT_ONCE], at))
        for store in {id(store): store for _, (store, _, _) in page}.values():
            own = [(place, _looks_for(command)) for place, (of, command, _) in page if of is store]
            replies = await replies_of(store, [question for _, question in own])
            there |= {place for (place, _), reply in zip(own, replies, strict=True) if _is_there(reply)}
    return [step for place, (_, _, step) in enumerate(commands) if place in there]


def _looks_for(command: Command) -> Command:
    """The command that says whether there is what this one would delete."""
    name, *where = command
    return ({"SREM": "SISMEMBER", "ZREM": "ZSCORE"}.get(str(name), "EXISTS"), *where)


def _is_there(reply: Reply) -> bool:
    return not (reply is None or isinstance(reply, WrongKind) or (type(reply) is int and reply == 0))


class Consumption(Compound[Any]):
    """A consume and all that goes with it. In a batch it stops the others only where it is `.required()`."""

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
        """The steps, where the key alone tells them. Raises BadArgument where it takes several round trips."""
        if not super().in_batch():
            known = _Known()
            for store, command, step in _told_by_key(self.bound, self._key, "what you asked for", known):
                if store is not self.store:
                    raise BadArgument(
                        f"{step.key} lives in another store, so deleting it cannot be part of this batch; "
                        "await the delete alone"
                    )
                self.steps.append(command)
        return self.steps

    async def _alone(self) -> bool:
        for _ in range(_ATTEMPTS):
            known = await _known(self.bound, self._key, "what you asked for")
            deleted = await _delete_known(self.bound, known)
            if deleted is not None:
                break
        else:
            return await self._anyway()
        await _delete_scanned(known)
        return deleted

    async def _anyway(self) -> bool:
        """The key is written to all the time: it goes at once, and what its last value tells goes after it."""
        bound, key = self.bound, self._key
        steps: list[Step] = [bound.family.read_command(key), ("DEL", key)]
        raw, deleted = (await bound.store.atomically(steps)).replies
        with suppress(Unreadable):  # then the doctor finds what belonged to it
            await delete_related(bound, key, bound.family.value_of(raw, key, bound.ring))
        return bool(deleted)


async def delete_if(bound: Bound[Any], key: str, reason: str, guards: Iterable[tuple[Store, Step]]) -> bool:
    """Delete a key with all that goes with it, if these guards hold in the same step. False: nothing was done."""
    known = await _known(bound, key, reason)
    known.guards += guards
    if not await _delete_known(bound, known):
        return False
    await _delete_scanned(known)
    return True


async def delete_related(bound: Bound[Any], key: str, value: Any) -> None:
    """Delete what belonged to a key that is gone already, and whose last value this was."""
    known = await _known(bound, key, "it is gone", value=value)
    # The key itself is gone; one that was made since then is another record, and so is what belongs to it.
    del known.commands[0]
    known.guards = [(bound.store, absent(key))]
    if await _delete_known(bound, known) is not None:
        await _delete_scanned(known)


def consume(bound: Bound[Any], key: str, read: Callable[[list[Reply]], R]) -> Operation[R]:
    """Read and delete, with what belongs to it. `read` makes the result of the reply of GETDEL."""
    if not bound.family.has_relations:
        return Operation(bound, "consume", [("GETDEL", key)], taking(read))
    steps = _consumption(bound, key)
    if steps is not None:
        return Consumption(bound, "consume", steps, taking(read), atomic=True, stopped=read([None]))

    def follow(replies: list[Reply]) -> Any:
        return None if replies[0] is None else delete_related(bound, key, read(replies))

    return Compound(bound, "consume", [("GETDEL", key)], taking(read), follow=follow)


def _consumption(bound: Bound[Any], key: str) -> list[Step] | None:
    """The steps that read and delete a key and what belongs to it as one; None where it takes several."""
    try:
        told = list(_told_by_key(bound, key, "it is consumed", _Known()))
    except BadArgument:
        return None
    if any(store is not bound.store for store, _, _ in told):
        return None
    if not one_step(bound.store, *(step.key for _, _, step in told)):
        return None
    return [Required(("GETDEL", key)), *(command for _, command, _ in told[1:])]


def _first_deleted(replies: list[Any]) -> bool:
    return bool(replies[0])


async def _delete_known(bound: Bound[Any], known: _Known) -> bool | None:
    """Delete what is known, the key itself first. None: a value that was read has changed, so nothing was done."""
    if not known.commands and not known.guards:
        return False
    own = [(command, step) for store, command, step in known.commands if store is bound.store]
    guards = [guard for store, guard in known.guards if store is bound.store]
    commands = [command for command, _ in own]
    guarded = [str(getattr(guard, "key", "")) for guard in guards]
    replies: list[Any] = []
    if one_step(bound.store, *guarded, *(step.key for _, step in own)):
        outcome = await bound.store.atomically([*guards, *commands])
        if not outcome:
            return None
        replies = outcome.replies[len(guards) :]
    else:
        # Across slots of a cluster the first key goes in one step with the guard of its own value. The other guards are
        # looked at just before, each in its slot; the other keys follow.
        first = own[0][1].key if own else None
        for guard, key in zip(guards, guarded, strict=True):
            if key != first and not await bound.store.atomically([guard]):
                return None
        mine = [guard for guard, key in zip(guards, guarded, strict=True) if key == first]
        if own:
            outcome = await bound.store.atomically([*mine, commands[0]])
            if not outcome:
                return None
            replies = [outcome.replies[-1]]
        if len(own) > 1:
            await bound.store.run(commands[1:])
    for store, command, _ in known.commands:
        if store is not bound.store:
            await store.run([command])
    return bool(replies and replies[0])


async def _delete_scanned(known: _Known) -> None:
    waiting = [known]
    while waiting:
        async for bound, key, reason in _scanned(waiting.pop()):
            for _ in range(_ATTEMPTS):
                found = await _known(bound, key, reason, _Since(known.seen))
                if await _delete_known(bound, found) is not None:
                    break
            else:
                raise StoreUnavailable(f"{key} was changed each time before it could be deleted; try again")
            known.seen |= found.seen
            found.seen = known.seen
            waiting.append(found)


async def _known(
    bound: Bound[Any], key: str, reason: str, seen: set[tuple[int, str]] | None = None, value: Any = None
) -> _Known:
    """What deleting this key takes with it, read from the store where the values tell it.

    `value` is the value of the key itself, where it is known.
    """
    known = _Known(seen=set() if seen is None else seen)
    waiting = [(bound, key, reason)]
    while waiting:
        one, name, why = waiting.pop(0)
        if (id(one.store), name) in known.seen:
            continue
        known.add(one, name, why)
        values = one.parse(name) or {}
        held = value if name == key and value is not None else await _value(one, name, known)
        for relation in one.family.listed_in:
            try:
                known.entry(listing.entry_of(one, relation, values, held), name)
            except (BadKey, BadValue):
                known.notes.append(f"{name}: which entry of {relation.target.name} names it cannot be told")
        for relation in one.family.owns:
            target = one.related(relation.target)
            where = relation.target_values(values, held)
            if where is None:
                continue
            if relation.scans:
                try:
                    target.glob(where)
                    known.scans.append((target, where, f"owned by {name}"))
                except BadKey as error:
                    known.notes.append(f"{name} names no key of {relation.target.name}: {error}")
                continue
            try:
                waiting.append((target, target(**where).key, f"owned by {name}"))
            except BadKey as error:
                known.notes.append(f"{name} names no key of {relation.target.name}: {error}")
    return known


async def _value(bound: Bound[Any], key: str, known: _Known) -> Any:
    """The value, where a relation takes something from it; it must not change until the delete."""
    relations = (*bound.family.listed_in, *bound.family.owns)
    if not any(relation.needs_value for relation in relations):
        return None
    raw: Any = None
    try:
        raw = (await bound.store.run([bound.family.read_command(key)]))[0]
        value = bound.family.value_of(raw, key, bound.ring)
    except (Unreadable, WrongKind) as error:
        value = _plainly(raw) if bound.ring is None and bound.family.needs_ring else None
        if value is None:
            known.notes.append(f"{error}; what it names in its value is not deleted with it")
            return None
    if isinstance(raw, bytes):
        known.guards.append((bound.store, holds(key, raw)))
    elif raw:
        known.guards += [(bound.store, field_holds(key, name, raw.get(name))) for name in _told_by(bound, relations)]
    return value


def _plainly(raw: Any) -> dict[str, Any] | None:
    """What stands in the clear in a record with sealed fields, for whoever has no keys: what it names is none of them.

    None: that cannot be read either.
    """
    try:
        found = json.loads(raw)
    except (ValueError, TypeError, RecursionError):
        return None
    if not isinstance(found, dict):
        return None
    return {name: one for name, one in found.items() if not (isinstance(one, str) and KeyRing.sealed_with(one))}


def _told_by(bound: Bound[Any], relations: Iterable[Relation]) -> list[bytes]:
    """The fields of a hash that relations take something from, as they are stored."""
    origins = [origin for relation in relations for origin in relation.origins.values()]
    names = dict.fromkeys(origin.name for origin in origins if origin is not None and origin.kind == "field")
    return [bound.family.field_name(name, "") for name in names]


async def _scanned(known: _Known) -> Any:
    """The keys that scans find: each with its family and the reason."""
    for bound, where, reason in known.scans:
        async for owned in bound.scan(**where):
            if (id(bound.store), owned.key) not in known.seen:
                yield bound, owned.key, reason


def _told_by_key(
    bound: Bound[Any], key: str, reason: str, known: _Known
) -> Iterator[tuple[Store, Command, PlannedStep]]:
    """All commands of a delete whose relations the key alone tells. Raises BadArgument where it does not."""
    values = bound.parse(key) or {}
    known.add(bound, key, reason)
    yield known.commands[-1]
    relations = (*bound.family.listed_in, *bound.family.owns)
    for relation in relations:
        if not relation.from_key:
            raise BadArgument(
                f"deleting {bound.family.place} takes more than one step, because {relation.target.name} is not told "
                "by its key; await the delete alone"
            )
    for entry in listing.entries(bound, values, None) if bound.family.listed_in else ():
        known.entry(entry, key)
        yield known.commands[-1]
    for relation in bound.family.owns:
        target = bound.related(relation.target)
        owned = target(**(relation.target_values(values, None) or {})).key
        if (id(target.store), owned) not in known.seen:
            yield from _told_by_key(target, owned, f"owned by {key}", known)
