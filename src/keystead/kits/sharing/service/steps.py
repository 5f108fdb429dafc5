"""Several operations as one, where the store can."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from keystead.kits.sharing.keys import SharingKeys
from keystead.schema import Operation


@dataclass(frozen=True)
class Needed:
    """An operation without whose effect the others have none either."""

    operation: Operation[Any]


def in_one_step(keys: SharingKeys) -> bool:
    """Whether one atomic step can span any keys, which it cannot in a cluster."""
    return keys.store_of("default").guarantees.atomic == "any keys"


async def as_one(keys: SharingKeys, *steps: Operation[Any] | Needed) -> int | None:
    """All of them take effect, or none. None: they did; else the place of the one that was needed and had no effect.

    Across slots of a cluster they are made one after the other, in this order, up to one that is needed and has no
    effect: so they are given in an order in which an interruption leaves nothing that the clean-up does not find.
    """
    if in_one_step(keys):
        done = await keys.atomically(
            *(step.operation.required() if isinstance(step, Needed) else step for step in steps)
        )
        return done.stopped_at
    operations = [step.operation if isinstance(step, Needed) else step for step in steps]
    try:
        for place, (step, operation) in enumerate(zip(steps, operations, strict=True)):
            if not await operation and isinstance(step, Needed):
                return place
        return None
    finally:
        for operation in operations:  # those that were not come to
            operation.close()
