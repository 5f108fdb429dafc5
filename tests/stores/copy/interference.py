"""Concurrent writes at the worst moment, with keys of every kind."""

from collections.abc import Sequence

import pytest

from keystead import Store
from keystead.stores import Command, Outcome, Step
from keystead.stores.store_contract import WholeKey

# Commands that create a key of each kind, and that an application then runs on it.
EVERY_KIND: dict[str, tuple[Command, Command, Command]] = {
    "string": (("SET", "key", "1"), ("SET", "key", "2"), ("SET", "key", "theirs")),
    "hash": (("HSET", "key", "a", "1", "b", "2"), ("HSET", "key", "a", "2"), ("HSET", "key", "b", "theirs")),
    "set": (("SADD", "key", "a", "b"), ("SADD", "key", "c"), ("SREM", "key", "b")),
    "zset": (("ZADD", "key", 1, "a", 2, "b"), ("ZADD", "key", 3, "a"), ("ZADD", "key", 2.5, "b")),
    "list": (("RPUSH", "key", "a", "b"), ("RPUSH", "key", "c"), ("LSET", "key", 0, "theirs")),
    "stream": (("XADD", "key", "1-1", "a", "1"), ("XADD", "key", "1-2", "b", "2"), ("XADD", "key", "9-9", "c", "3")),
}


def meanwhile(patch: pytest.MonkeyPatch, store: Store, *commands: Command) -> list[Outcome]:
    """Between a check of this store and the step that changes a key there, another writer is faster, once.

    Returns the outcomes of all steps that write.
    """
    atomically, add_whole_keys = store.atomically, store.add_whole_keys
    waiting = [list(commands)]
    outcomes: list[Outcome] = []

    async def interrupted(steps: Sequence[Step]) -> Outcome:
        if not any(step == ("DEL", b"key") or getattr(step, "key", None) == b"key" for step in steps):
            return await atomically(steps)
        if waiting:
            await store.run(waiting.pop())
        outcome = await atomically(steps)
        outcomes.append(outcome)
        return outcome

    async def interrupted_add(keys: Sequence[WholeKey]) -> list[bool] | None:
        if waiting and any(key == b"key" for key, *_ in keys):
            await store.run(waiting.pop())
        return await add_whole_keys(keys)

    patch.setattr(store, "atomically", interrupted)
    patch.setattr(store, "add_whole_keys", interrupted_add)
    return outcomes
