"""Writes that depend on what a key holds, on every store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from keystead.stores.commands import Command
from keystead.stores.store_contract import Outcome, Planned, Step, Store, plan


def is_written_whole(store: Store) -> bool:
    """Whether a key is one record that is only read and written as a whole, with its deadline (Cloudflare KV)."""
    return not store.guarantees.updates


async def run_guarded(store: Store, steps: Sequence[Step]) -> Outcome:
    """Run guards and the writes after them as one atomic step.

    A store that only writes whole keys has none. There the guards are checked in one request, and the last write, which
    replaces all others of its key, follows in another: a write in between is lost.
    """
    if not is_written_whole(store):
        return await store.atomically(steps)
    planned = plan(steps)
    guards = [one for one in planned if one.guard]
    found = await store.run(_commands(guards)) if guards else []
    for place, (one, reply) in enumerate(zip(guards, found, strict=True)):
        if not one.verdict(reply, 0):
            return Outcome([0], stopped_at=place)
    return Outcome(await store.run(_commands(planned[-1:])))


def _commands(planned: list[Planned]) -> list[Command]:
    """Their calls: parsed commands, which a store takes as they are."""
    return [cast("Command", one.call) for one in planned]
