"""Watching: the changes of keys by family, as they happen, whoever makes them.

    async with watch([AppKeys(store)]) as changes:
        async for change in changes:
            print(change.at_ms, change.family_name, change.key, change.kind)

Each store is watched by the means it has, none of which needs configuration:

- Redis, Valkey, a cluster: the server reports changed keys at once (client-side caching with prefixes).
- SQLite: its version shows in microseconds whether anything was committed; then the keys are compared.
- PostgreSQL, MySQL: the keys are compared every second.
- A store that cannot list its keys, or charges for each look, is refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, Self, TypeAlias

from keystead.errors import KeysteadError, StoreRefused
from keystead.schema.compared_keys import ComparedKeys
from keystead.schema.doctor.examination import NOTES_PREFIXES
from keystead.schema.doctor.key_state import ms_of
from keystead.schema.family import Bound, Family
from keystead.schema.family_lookup import Belonging, by_store, literal_prefix, name_of
from keystead.schema.keyspace import Keyspace
from keystead.stores import Command, Store
from keystead.stores.changed_keys import ChangedKeys

ChangeKind: TypeAlias = Literal["written", "gone", "flushed", "missed"]

EVERY_S: Final = 1.0  # between two looks at a store that does not report changes
_MOST_WAITING: Final = 1_000  # changes; further ones wait in the store's own, bounded reports
_LOOKED_UP: Final = 500  # keys in one round trip


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one key.

    at_ms    when it was seen, by the clock of the store
    kind     `written`; `gone`: deleted or expired; `flushed`: all keys of the store were deleted at once; `missed`:
             `count` changes that were not recorded, because the reader was too far behind
    key      empty for the last two
    bound    its family, bound to the keyspace and store; None: it belongs to none
    values   the values of its placeholders
    """

    at_ms: int
    kind: ChangeKind
    key: str = ""
    bound: Bound[Any] | None = None
    values: dict[str, Any] | None = None
    count: int = 1

    @property
    def family_name(self) -> str:
        """`AppKeys.session`; empty: no family."""
        return "" if self.bound is None else name_of(self.bound.family)


class Changes:
    """The changes of all watched stores: an async iterator. `means` says how each store, by its URL, is watched."""

    def __init__(self, means: dict[str, str]) -> None:
        self.means = means
        self._waiting: asyncio.Queue[Change | KeysteadError] = asyncio.Queue(_MOST_WAITING)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Change:
        found = await self._waiting.get()
        if isinstance(found, KeysteadError):
            raise found
        return found

    async def follow(self, place: Belonging, reports: AsyncIterator[ChangedKeys], unknown: bool) -> None:
        """Pass on what a store reports, until it fails."""
        try:
            async for report in reports:
                for change in await _changes(place, report, unknown):
                    await self._waiting.put(change)
        except KeysteadError as error:
            await self._waiting.put(error)


@asynccontextmanager
async def watch(
    keyspaces: Sequence[Keyspace],
    families: Collection[Family[Any]] | None = None,
    *,
    unknown: bool = False,
    every_s: float = EVERY_S,
) -> AsyncIterator[Changes]:
    """The changes of these keyspaces' keys, or those of some families, from the moment the block is entered.

    `unknown` includes keys that belong to no family. Keys that change often may be reported once for several changes;
    values are not read. Channels are not watched: subscribe to them. `every_s` is how often a store that does not
    report changes is looked at.

    Raises StoreRefused, when it is entered, for a store that cannot be watched. The iterator raises StoreUnavailable if
    changes may have been missed because a connection was lost: enter again.
    """
    async with AsyncExitStack() as stack:
        changes = Changes({})
        for place in by_store(keyspaces, families):
            reports = await _reports(stack, place, changes.means, unknown, every_s)
            task = asyncio.create_task(changes.follow(place, reports, unknown))
            stack.push_async_callback(_end, task)
        yield changes


async def _end(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})


async def _reports(
    stack: AsyncExitStack, place: Belonging, means: dict[str, str], unknown: bool, every_s: float
) -> AsyncIterator[ChangedKeys]:
    store = place.store
    prefixes = {"" if unknown else literal_prefix(bound.family) for bound in place.bounds}
    reporting = store.changed_keys([prefix.encode() for prefix in sorted(prefixes)])
    if reporting is not None:
        means[store.url] = "the server reports each change"
        return await stack.enter_async_context(reporting)
    _refuse_costly(store)
    compared = ComparedKeys(store, sorted({"*" if unknown else bound.glob() for bound in place.bounds}), every_s)
    await compared.start()
    means[store.url] = f"the store does not report changes, so its keys are compared every {every_s:g} s" + (
        " if anything was committed" if store.version() is not None else ""
    )
    return aiter(compared)


def _refuse_costly(store: Store) -> None:
    if not store.guarantees.scans:
        raise StoreRefused(f"{store.url} cannot be watched: it neither reports changes nor lists its keys")
    if store.guarantees.billed:
        raise StoreRefused(f"{store.url} cannot be watched: it does not report changes, and charges for each look")


async def _changes(place: Belonging, report: ChangedKeys, unknown: bool) -> list[Change]:
    """What became of the reported keys."""
    members = []
    for raw in report.keys:
        member = place.of(raw)
        if member is not None or (unknown and not raw.startswith(NOTES_PREFIXES)):
            members.append((raw, member))
    found: list[Change] = []
    at_ms = 0
    for start in range(0, max(len(members), 1), _LOOKED_UP):
        some = members[start : start + _LOOKED_UP]
        commands: list[Command] = [("TIME",), *(("EXISTS", raw) for raw, _ in some)]
        [time, *exist] = await place.store.run(commands)
        at_ms = ms_of(time)
        for (raw, member), there in zip(some, exist, strict=True):
            kind: ChangeKind = "written" if there else "gone"
            bound, values = (None, None) if member is None else (member.bound, member.values)
            found.append(Change(at_ms, kind, raw.decode("utf-8", "backslashreplace"), bound, values))
    if report.is_flushed:
        found.insert(0, Change(at_ms, "flushed"))
    if report.missed:
        found.append(Change(at_ms, "missed", count=report.missed))
    return found
