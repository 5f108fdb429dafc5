"""Write records to a store: each key with its deadline in one atomic step."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final, TypeVar, cast

from keystead.stores.store_contract import Outcome, Step, Store, absent
from keystead.stores.transfer.guarded_writes import is_written_whole, run_guarded
from keystead.stores.transfer.reader import PIECE, taking_long
from keystead.stores.transfer.records import Record, commands_of, set_command, why_unwritable

AT_ONCE: Final = 512  # keys of one batch
_BYTES_AT_ONCE: Final = 1 << 20
_PART_BYTES: Final = 8  # what a part takes in a request besides its bytes
BATCHES: Final = 4  # concurrent; on SQLite those that wait share a commit

T = TypeVar("T")


class Writer:
    """Writes keys to one store. No reader sees a partial key, or a key without its deadline."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def add(self, records: list[Record]) -> list[Record]:
        """Write the records whose keys do not exist; returns the others, which are kept."""
        large = [record for record in records if len(record.parts) > PIECE]
        small = [record for record in records if len(record.parts) <= PIECE] if large else records
        done = await self._store.add_whole_keys(small)
        if done is None:
            return await self._write(records, b"NX", absent)
        present = [record for record, written in zip(small, done, strict=True) if not written]
        return present + await self._write(large, b"NX", absent) if large else present

    async def put(self, records: list[Record]) -> None:
        """Write all of these, replacing existing keys."""
        await self._write(records, b"", lambda key: ("DEL", key))

    async def _write(self, records: list[Record], only_if: bytes, first: Callable[[bytes], Step]) -> list[Record]:
        """Returns those that were not written. `first` is the step before the commands of a collection."""
        strings = [record for record in records if record.kind == "string"]
        others = [record for record in records if record.kind != "string"]
        wrote = await gather_all([self._set(strings, only_if), self._write_others(others, first)])
        return [*wrote[0], *wrote[1]]

    async def _set(self, records: list[Record], only_if: bytes) -> list[Record]:
        """Write each with one command, which is atomic."""
        if not records:
            return []
        replies = await self._store.run([set_command(record, only_if) for record in records])
        return [record for record, reply in zip(records, replies, strict=True) if reply is None]

    async def _write_others(self, records: list[Record], first: Callable[[bytes], Step]) -> list[Record]:
        outcomes = await gather_all(self.write_after([first(record.key)], record) for record in records)
        return [record for record, outcome in zip(records, outcomes, strict=True) if not outcome]

    async def write_after(self, before: list[Step], record: Record) -> Outcome:
        """Run these steps, such as guards, and the commands that write the record, as one atomic step."""
        with taking_long(record.key, len(record.parts)):
            return await run_guarded(self._store, [*before, *commands_of(record)])


async def gather_all(steps: Iterable[Awaitable[T]]) -> list[T]:
    """As `asyncio.gather`, but if one fails, the others are awaited before its error is raised."""
    done = await asyncio.gather(*steps, return_exceptions=True)
    for one in done:
        if isinstance(one, BaseException):
            raise one
    return cast("list[T]", done)


def split(records: list[Record]) -> Iterator[list[Record]]:
    """Split into batches that are written quickly and take little memory."""
    batch: list[Record] = []
    size = 0
    for record in records:
        batch.append(record)
        size += sum(map(len, record.parts))
        if len(batch) >= AT_ONCE or size >= _BYTES_AT_ONCE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


# --- what fits ---------------------------------------------------------------------------------------------


def why_unfit(record: Record, store: Store) -> str:
    """Why the store cannot hold this key, or empty."""
    promised = store.guarantees
    key, kind, at_ms, parts = record
    longest = max(map(len, parts), default=0)
    if kind not in promised.kinds:
        return f"is a {kind}, which {store.url} does not have"
    if promised.key_max_bytes is not None and len(key) > promised.key_max_bytes:
        return f"has {len(key):,} bytes; a key of {store.url} may have at most {promised.key_max_bytes:,}"
    if promised.value_max_bytes is not None and longest > promised.value_max_bytes:
        return f"holds {longest:,} bytes; a value of {store.url} may have at most {promised.value_max_bytes:,}"
    if promised.step_max_bytes is not None:
        whole = sum(map(len, parts)) + _PART_BYTES * len(parts)
        if whole > promised.step_max_bytes:
            return f"holds {whole:,} bytes; one step on {store.url} may write at most {promised.step_max_bytes:,}"
    if at_ms is not None and promised.shortest_lifetime_ms > 1 and at_ms % promised.shortest_lifetime_ms:
        return f"has a deadline that {store.url} would round"
    if promised.atomic == "nothing" and not is_written_whole(store):
        return f"needs an atomic step for value and deadline, which {store.url} does not have"
    return why_unwritable(record)
