"""From records to a store: each key with its deadline in one atomic step."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import Final, TypeAlias, TypeVar, cast

from keystead.stores.backup.reading import PIECE, taking_long
from keystead.stores.backup.records import Record, commands_of, set_of, unwritable
from keystead.stores.store_contract import Outcome, Step, Store, absent

AT_ONCE: Final = 512  # keys of one batch
_BYTES_AT_ONCE: Final = 1 << 20
BATCHES: Final = 4  # under way at once; on SQLite those that wait share a commit

T = TypeVar("T")


class Writing:
    """Writes keys into one store. No reader sees a part of one, or one that has not its deadline yet."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def add(self, records: list[Record]) -> list[Record]:
        """Write those whose keys are not there; returns the others, whose keys are left as they are."""
        large = [record for record in records if len(record.parts) > PIECE]
        small = [record for record in records if len(record.parts) <= PIECE] if large else records
        done = await self._store.add_whole_keys(small)
        if done is None:
            return await self._write(records, b"NX", absent)
        met = [record for record, written in zip(small, done, strict=True) if not written]
        return met + await self._write(large, b"NX", absent) if large else met

    async def put(self, records: list[Record]) -> None:
        """Write all of these, in the place of what is there."""
        await self._write(records, b"", _delete)

    async def _write(self, records: list[Record], only_if: bytes, first: _First) -> list[Record]:
        strings = [record for record in records if record.kind == "string"]
        others = [record for record in records if record.kind != "string"]
        met = await all_of((self._strings(strings, only_if), self._others(others, first)))
        return [*met[0], *met[1]]

    async def _strings(self, records: list[Record], only_if: bytes) -> list[Record]:
        """Each in one command, which is a step of its own."""
        if not records:
            return []
        replies = await self._store.run([set_of(record, only_if) for record in records])
        return [record for record, reply in zip(records, replies, strict=True) if reply is None]

    async def _others(self, records: list[Record], first: _First) -> list[Record]:
        outcomes = await all_of(self.step(record, [first(record.key)]) for record in records)
        return [record for record, outcome in zip(records, outcomes, strict=True) if not outcome]

    async def step(self, record: Record, before: list[Step]) -> Outcome:
        """These steps, and then what writes the record, as one."""
        with taking_long(record.key, len(record.parts)):
            return await self._store.atomically([*before, *commands_of(record)])


_First: TypeAlias = Callable[[bytes], Step]


def _delete(key: bytes) -> Step:
    return ("DEL", key)


async def all_of(steps: Iterable[Awaitable[T]]) -> list[T]:
    """The result of each. Where one fails, the others are waited for first: none goes on behind the caller's back."""
    done = await asyncio.gather(*steps, return_exceptions=True)
    for one in done:
        if isinstance(one, BaseException):
            raise one
    return cast("list[T]", done)


def batches(records: list[Record]) -> Iterator[list[Record]]:
    """So many that each is written soon, and holds little memory."""
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


def is_over(record: Record, now_ms: int) -> bool:
    return record.expires_at_ms is not None and record.expires_at_ms <= now_ms


def unfit(record: Record, store: Store) -> str:
    """Why the store cannot hold this key as it is, or nothing."""
    promised = store.guarantees
    key, kind, at_ms, parts = record
    longest = max(map(len, parts), default=0)
    if kind not in promised.kinds:
        return f"is a {kind}, a kind that {store.url} does not have"
    if promised.key_max_bytes is not None and len(key) > promised.key_max_bytes:
        return f"has {len(key):,} bytes; a key of {store.url} has at most {promised.key_max_bytes:,}"
    if promised.value_max_bytes is not None and longest > promised.value_max_bytes:
        return f"holds {longest:,} bytes; a value of {store.url} has at most {promised.value_max_bytes:,}"
    if at_ms is not None and promised.shortest_lifetime_ms > 1 and at_ms % promised.shortest_lifetime_ms:
        return f"ends at a millisecond that {store.url} would round"
    if promised.atomic == "nothing":
        return f"needs a value and a deadline in one step, which {store.url} does not have"
    return unwritable(record)


async def clock_ms(store: Store) -> int:
    [(seconds, micros)] = await store.run([("TIME",)])
    return int(seconds) * 1000 + int(micros) // 1000
