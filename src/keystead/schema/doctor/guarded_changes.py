"""Guarded changes: guards and commands in one atomic step, if the store allows it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, cast

from keystead.errors import CrossSlot, NotANumber, WrongKind
from keystead.schema import deletion
from keystead.schema.family import Bound
from keystead.schema.slots import one_step, spans_keys
from keystead.stores import Absent, AtMost, Command, FieldHolds, Holds, Reply, Required, Step, Still, Store
from keystead.stores.commands import encode

SETTLE_S: Final = 0.25  # between two checks, if one atomic check is impossible


class StoreGuard(NamedTuple):
    """A guard and its store."""

    store: Store
    step: Step


async def holds_now(store: Store, guards: Sequence[StoreGuard], probe: Command | None = None) -> list[Reply] | None:
    """The replies of the probe (empty without one) if all guards hold at one moment; None if not.

    Guards in several stores, or several slots of a cluster, cannot be checked at one moment. They are checked twice,
    with a pause that lets a write in two steps finish.
    """
    own = [guard.step for guard in guards if guard.store is store]
    steps: list[Step] = [*own, *([] if probe is None else [probe])]
    if len(own) == len(guards) and spans_keys(store):
        try:
            outcome = await store.atomically(steps)
        except CrossSlot:
            pass
        except (WrongKind, NotANumber):
            return None
        else:
            return None if not outcome else outcome.replies[len(own) :]
    if not await _all_hold(guards):
        return None
    await asyncio.sleep(SETTLE_S)
    if not await _all_hold(guards):
        return None
    try:
        return [] if probe is None else await store.run([probe])
    except (WrongKind, NotANumber):
        return None


async def change(store: Store, guards: Sequence[StoreGuard], commands: Sequence[Step]) -> bool:
    """Run the commands if all guards hold. False: nothing was done. A command may be required.

    Guards in other stores, or in other slots of a cluster, are checked just before.
    """
    own = [guard.step for guard in guards if guard.store is store]
    others = [guard for guard in guards if guard.store is not store]
    if others and not await _all_hold(others):
        return False
    changed = {_command(step)[1] for step in commands}
    for together in (own, [step for step in own if _command(step)[1] in changed]):
        if not spans_keys(store) or (together is not own and not await _all_hold(_guards_in(store, own))):
            break
        try:
            return bool(await store.atomically([*together, *commands]))
        except CrossSlot:
            continue
        except (WrongKind, NotANumber):
            return False
    return await _all_hold(_guards_in(store, own)) and await _run_one_by_one(store, commands)


async def delete(bound: Bound[Any], key: str, guards: Sequence[StoreGuard]) -> bool:
    """Delete a key with its cascade, if all guards hold. False: nothing was done.

    The guards are part of the atomic step that deletes the key itself.
    """
    store = bound.store
    if not bound.family.has_relations:
        return await change(store, guards, [Required(("DEL", key))])
    together, apart = _by_slot(store, key, guards)
    return await _all_hold(apart) and await deletion.delete_if(bound, key, "it has expired", together)


def _by_slot(store: Store, key: str, guards: Sequence[StoreGuard]) -> tuple[list[StoreGuard], list[StoreGuard]]:
    """The guards that can be part of one atomic step with a key, and the others."""
    together: list[StoreGuard] = []
    apart: list[StoreGuard] = []
    for guard in guards:
        is_near = guard.store is store and one_step(store, key, _key(guard.step))
        (together if is_near else apart).append(guard)
    return together, apart


def _key(step: Step) -> str:
    key = _command(step)[1]
    return key.decode("utf-8", "surrogateescape") if isinstance(key, bytes) else str(key)


def _guards_in(store: Store, steps: Sequence[Step]) -> list[StoreGuard]:
    return [StoreGuard(store, step) for step in steps]


async def _run_one_by_one(store: Store, commands: Sequence[Step]) -> bool:
    for step in commands:
        [reply] = await store.run([_command(step)])
        if isinstance(step, Required) and not reply:
            return False
    return True


async def _all_hold(guards: Sequence[StoreGuard]) -> bool:
    for store, step in guards:
        try:
            [reply] = await store.run([_command(step)])
            is_good = _allows(step, reply)
        except (WrongKind, NotANumber):
            return False
        if not is_good:
            return False
    return True


def _allows(step: Step, reply: Reply) -> bool:
    match step:
        case Absent():
            return bool(reply == 0)
        case AtMost():
            return step.allows(reply, 0)  # the doctor has no guards on the time
        case Still(reply=expected):
            return bool(reply == expected)
        case Holds(value=value) | FieldHolds(value=value):
            return bool(reply == (None if value is None else encode(value)))
        case _:
            return reply is not None and not (type(reply) is int and reply == 0)


def _command(step: Step) -> Command:
    match step:
        case Required(command) | AtMost(command) | Still(command):
            return cast("Command", command)
        case Absent(key):
            return ("EXISTS", key)
        case Holds(key=key):
            return ("GET", key)
        case FieldHolds(key=key, field=field):
            return ("HGET", key, field)
        case _:
            return cast("Command", step)
