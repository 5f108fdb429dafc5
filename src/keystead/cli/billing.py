"""What a long command costs on a store that bills what it does, such as Upstash: one sentence before the work."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import typer

from keystead.cli.formatting import pluralize
from keystead.schema import Keyspace
from keystead.stores import Store
from keystead.stores.transfer.reader import count_keys


class _Rates(NamedTuple):
    """What is billed for each key that is read, written or examined, and the keys in one request."""

    unit: str
    read: int
    write: int
    examine: int
    keys_per_request: int = 100


# Scripts read and write many keys at a time, but the commands in them count, too: to read a key takes its kind, size,
# deadline and value; to write it, whether it is there, its value and its deadline.
_COMMANDS: Final = _Rates("commands", read=4, write=3, examine=3)
_OPERATIONS: Final = _Rates("reads and writes", read=1, write=1, examine=1)


def _rates(store: Store) -> _Rates:
    return _COMMANDS if store.guarantees.updates else _OPERATIONS


def _announce(store: Store, what: str, count: int | None, per_key: int) -> None:
    if count is None:
        return
    rates = _rates(store)
    billed, requests = count * per_key, count // rates.keys_per_request + 10
    typer.echo(
        f"{store.url} bills {rates.unit}: to {what} {pluralize(count, 'key')} takes about {billed:,} of them, in about "
        f"{requests:,} requests",
        err=True,
    )


async def announce_reading(store: Store) -> None:
    """For a job that reads all keys once."""
    if store.guarantees.billed:
        _announce(store, "read", await count_keys(store), _rates(store).read)


def announce_writing(store: Store, keys: int) -> None:
    """For a job that writes this many keys."""
    if store.guarantees.billed:
        _announce(store, "write", keys, _rates(store).write)


async def announce_copy(source: Store, target: Store, verified: bool) -> None:
    """For a copy of all keys of one store into another."""
    if not (source.guarantees.billed or target.guarantees.billed):
        return
    count = await count_keys(source)
    if source.guarantees.billed:
        _announce(source, "read", count, _rates(source).read * (1 + verified))
    if target.guarantees.billed:
        rates = _rates(target)
        _announce(target, "write", count, rates.write + rates.read * verified)


async def announce_examination(keyspaces: Iterable[Keyspace]) -> None:
    for store in {id(store): store for keys in keyspaces for store in keys.stores}.values():
        if store.guarantees.billed:
            _announce(store, "examine", await count_keys(store), _rates(store).examine)
