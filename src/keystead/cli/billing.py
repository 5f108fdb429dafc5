"""What a long command costs on a store that bills commands, such as Upstash: one sentence before the work."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import typer

from keystead.cli.formatting import pluralize
from keystead.schema import Keyspace
from keystead.stores import Store
from keystead.stores.transfer.reader import count_keys

# Commands of the server for each key. Scripts read and write many keys at a time, but the commands in them count, too.
READ: Final = 4  # its kind, size, deadline and value
WRITE: Final = 3  # whether it is there, its value and its deadline
EXAMINE: Final = 3
_KEYS_PER_REQUEST: Final = 100


async def announce(store: Store, what: str, commands_per_key: int, keys: int | None = None) -> None:
    """Say how many commands will be used, if the store bills them. `keys`: how many; by default all of the store."""
    if not store.guarantees.billed:
        return
    count = await count_keys(store) if keys is None else keys
    if count is None:
        return
    commands, requests = count * commands_per_key, count // _KEYS_PER_REQUEST + 10
    typer.echo(
        f"{store.url} bills commands: to {what} {pluralize(count, 'key')} takes about {commands:,} of them, in about "
        f"{requests:,} requests",
        err=True,
    )


async def announce_copy(source: Store, target: Store, verified: bool) -> None:
    """For a copy of all keys of one store into another."""
    await announce(source, "read", READ * (1 + verified))
    if target.guarantees.billed:
        await announce(target, "write", WRITE + READ * verified, await count_keys(source))


async def announce_examination(keyspaces: Iterable[Keyspace]) -> None:
    for store in {id(store): store for keys in keyspaces for store in keys.stores}.values():
        await announce(store, "examine", EXAMINE)
