"""From a file into a store."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

from keystead.errors import DoesNotFit, shown
from keystead.stores.backup.errors import BackupDamaged, KeysThere
from keystead.stores.backup.file import BackupFile, Counts
from keystead.stores.backup.reading import Reading
from keystead.stores.backup.records import Record, commands_of, deadline_of, entries_of
from keystead.stores.base import ATOMIC_ARGUMENTS, Step, Store, absent
from keystead.stores.commands import LATEST_MS, Command

_AT_ONCE: Final = 256  # keys of one batch
_BYTES_AT_ONCE: Final = 1 << 20
_BATCHES: Final = 4  # under way at once
_JOURNAL: Final = "keystead:restore:"
_KEPT_MS: Final = 30 * 86_400_000


class IfThere(StrEnum):
    """What to do with a key of the backup that is in the store already."""

    REFUSE = "refuse"  # restore nothing if there is one
    SKIP = "skip"  # leave it as it is
    REPLACE = "replace"  # put the one of the backup in its place


class RestoreProgress(NamedTuple):
    phase: Literal["checking", "restoring", "comparing"]
    done: int
    total: int | None


@dataclass(frozen=True, slots=True)
class Restored:
    """What was done, by all runs. `expired` keys were not restored, because their deadline was over.

    `skipped` ones were there already. `resumed_at` says how many keys an interrupted run had dealt with.
    """

    keys: int
    restored: int
    expired: int
    skipped: int
    resumed_at: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class Checked:
    """A backup that was read to its end and is whole, beside the store that it is to go into."""

    counts: Counts = field(default_factory=Counts)
    digest: str = ""
    expired: int = 0
    there: int = 0

    def as_json(self) -> dict[str, Any]:
        return {"keys": self.counts.keys, "kinds": self.counts.kinds, "expired": self.expired, "there": self.there}


async def check(
    store: Store, file: BackupFile, *, on_progress: Callable[[RestoreProgress], None] | None = None
) -> Checked:
    """Read the whole file, and look which of its keys are in the store. Writes nothing.

    Raises BackupDamaged where the file is not as it was written, and DoesNotFit where it holds what the store cannot.
    """
    checked = Checked()
    now_ms = await clock_ms(store)
    for records in _undamaged(file):
        live: list[bytes] = []
        for record in records:
            refuse_unfit(record, store)
            checked.counts.add(record)
            if is_over(record, now_ms):
                checked.expired += 1
            else:
                live.append(record.key)
        for at in range(0, len(live), _AT_ONCE):
            [there] = await store.run([("EXISTS", *live[at : at + _AT_ONCE])])
            checked.there += there
        if on_progress is not None:
            on_progress(RestoreProgress("checking", checked.counts.keys, None))
        await asyncio.sleep(0)
    checked.digest = file.digest
    return checked


def _undamaged(file: BackupFile) -> Iterator[list[Record]]:
    try:
        yield from file.blocks()
    except BackupDamaged as error:
        raise BackupDamaged(f"{error}. Nothing was restored") from None


async def restore(
    store: Store,
    file: BackupFile,
    *,
    if_there: IfThere | None = None,
    resume: bool = False,
    checked: Checked | None = None,
    on_progress: Callable[[RestoreProgress], None] | None = None,
) -> Restored:
    """Write every key of a backup whose deadline is not over, after the whole file was checked.

    Each key comes with its deadline in one atomic step: no reader sees it in part, or without its deadline. The
    restore as a whole is not one step. `if_there` is `refuse` where it is not given, or what an interrupted restore
    was given. Where this ends early, `resume` goes on, and the store ends up as if it had not been interrupted: which
    blocks are done stands in the store, under `keystead:restore:`, until all are. Keys that were changed or deleted
    in these since are left so.

    Raises BackupDamaged, DoesNotFit and KeysThere before anything is written. KeysThere is raised later, too, where a
    key came to be after the check; what was restored until then stays, and `resume` goes on.
    """
    checked = checked or await check(store, file, on_progress=on_progress)
    journal = Journal(store, checked.digest)
    begun = await journal.read()
    goes_on = begun if resume else None
    done = goes_on or _Done()
    done.if_there = if_there or done.if_there
    if done.if_there is IfThere.REFUSE and checked.there and goes_on is None:
        raise KeysThere(_there(checked, begun is not None), checked.there)
    resumed_at = done.keys
    await journal.write(done)
    work = _Restore(store, done.if_there, resumed=goes_on is not None)
    await work.run(file, done, journal, checked.counts.keys, on_progress)
    await journal.end()
    return Restored(checked.counts.keys, done.restored, done.expired, done.skipped, resumed_at)


def _there(checked: Checked, begun: bool) -> str:
    said = f"{checked.there:,} of the {checked.counts.keys:,} keys of the backup are in the store already"
    if begun:
        return f"{said}: a restore of this backup was interrupted. Nothing was written; add --resume to go on with it"
    return (
        f"{said}. Nothing was written; add --if-there skip to leave those as they are, or --if-there replace to put "
        "the keys of the backup in their place"
    )


# --- what fits ---------------------------------------------------------------------------------------------


def is_over(record: Record, now_ms: int) -> bool:
    return record.expires_at_ms is not None and record.expires_at_ms <= now_ms


def refuse_unfit(record: Record, store: Store) -> None:
    """Raises DoesNotFit where the store cannot hold this key as it is."""
    promised = store.guarantees
    key, kind, at_ms, parts = record
    longest = max(map(len, parts), default=0)
    why = ""
    if kind not in promised.kinds:
        why = f"is a {kind}, a kind that {store.url} does not have"
    elif promised.key_max_bytes is not None and len(key) > promised.key_max_bytes:
        why = f"has {len(key):,} bytes; a key of {store.url} has at most {promised.key_max_bytes:,}"
    elif promised.value_max_bytes is not None and longest > promised.value_max_bytes:
        why = f"holds {longest:,} bytes; a value of {store.url} has at most {promised.value_max_bytes:,}"
    elif at_ms is not None and promised.shortest_lifetime_ms > 1 and at_ms % promised.shortest_lifetime_ms:
        why = f"ends at a millisecond that {store.url} would round"
    elif at_ms is not None and not 0 < at_ms <= LATEST_MS:
        why = "has a deadline before 1970 or after the year 9999"
    elif promised.atomic == "nothing":
        why = f"needs a value and a deadline in one step, which {store.url} does not have"
    elif kind == "stream" and (widest := max((len(fields) for _, fields in entries_of(parts)), default=0)) > _WIDEST:
        why = f"has an entry of {widest // 2:,} fields; at most {_WIDEST // 2:,} can be written in one step"
    if why:
        raise DoesNotFit(f"{shown(key)} {why}. Nothing was written")


_WIDEST: Final = ATOMIC_ARGUMENTS - 10  # fields and values of one entry, beside the key and the id


async def clock_ms(store: Store) -> int:
    [(seconds, micros)] = await store.run([("TIME",)])
    return int(seconds) * 1000 + int(micros) // 1000


# --- how far it is -----------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Done:
    """What was dealt with: so many blocks of the file, whole."""

    blocks: int = 0
    keys: int = 0
    restored: int = 0
    expired: int = 0
    skipped: int = 0
    if_there: IfThere = IfThere.REFUSE

    def add(self, other: _Done) -> None:
        self.blocks += other.blocks
        self.keys += other.keys
        self.restored += other.restored
        self.expired += other.expired
        self.skipped += other.skipped


class Journal:
    """Kept in the store itself: what it has forgotten in a crash, it has forgotten of this, too.

    It is written after what it tells of, so it never tells too much.
    """

    def __init__(self, store: Store, digest: str) -> None:
        self._store = store
        self._key = f"{_JOURNAL}{digest[:32]}"

    async def read(self) -> _Done | None:
        [text] = await self._store.run([("GET", self._key)])
        if text is None:
            return None
        try:
            said = json.loads(text)
            return _Done(**{**said, "if_there": IfThere(said["if_there"])})
        except (ValueError, TypeError, KeyError):
            return None  # not one of ours: as if nothing had been begun

    async def write(self, done: _Done) -> None:
        await self._store.run([("SET", self._key, json.dumps(asdict(done)), "PX", _KEPT_MS)])

    async def end(self) -> None:
        await self._store.run([("DEL", self._key)])


# --- writing -----------------------------------------------------------------------------------------------


class _Restore:
    def __init__(self, store: Store, mode: IfThere, *, resumed: bool) -> None:
        self._store = store
        self._mode = mode
        self._resumed = resumed
        self._reading = Reading(store)

    async def run(
        self,
        file: BackupFile,
        done: _Done,
        journal: Journal,
        total: int,
        on_progress: Callable[[RestoreProgress], None] | None,
    ) -> None:
        """Deal with the blocks that are not done, some batches at once; `done` grows with each block, in order."""
        under_way: deque[tuple[asyncio.Task[_Done], bool]] = deque()
        block = _Done()

        async def oldest() -> None:
            """Wait for the batch that was begun first; after the last of a block, note that the block is done."""
            nonlocal block
            task, ends_block = under_way[0]
            block.add(await task)
            under_way.popleft()
            if ends_block:
                block.blocks = 1
                done.add(block)
                block = _Done()
                await journal.write(done)
                if on_progress is not None:
                    on_progress(RestoreProgress("restoring", done.keys, total))

        try:
            for records in islice(file.blocks(), done.blocks, None):
                batches = list(_batches(records)) or [[]]
                for number, batch in enumerate(batches, 1):
                    under_way.append((asyncio.create_task(self._write(batch)), number == len(batches)))
                    while len(under_way) >= _BATCHES:
                        await oldest()
            while under_way:
                await oldest()
        finally:
            for task, _ in under_way:
                task.cancel()
            await asyncio.gather(*(task for task, _ in under_way), return_exceptions=True)

    async def _write(self, records: list[Record]) -> _Done:
        now_ms = await clock_ms(self._store)
        live = [record for record in records if not is_over(record, now_ms)]
        strings = [record for record in live if record.kind == "string"]
        others = [record for record in live if record.kind != "string"]
        met = await asyncio.gather(self._write_strings(strings), self._write_others(others))
        skipped = await self._met([*met[0], *met[1]])
        return _Done(keys=len(records), expired=len(records) - len(live), restored=len(live) - skipped, skipped=skipped)

    async def _write_strings(self, records: list[Record]) -> list[Record]:
        """Each in one command, which is a step of its own. Returns those whose keys are there and were left so."""
        if not records:
            return []
        only_new = () if self._mode is IfThere.REPLACE else ("NX",)
        commands: list[Command] = [
            ("SET", record.key, record.parts[0], *deadline_of(record), *only_new) for record in records
        ]
        replies = await self._store.run(commands)
        return [record for record, reply in zip(records, replies, strict=True) if reply is None]

    async def _write_others(self, records: list[Record]) -> list[Record]:
        outcomes = await asyncio.gather(*(self._store.atomically(self._steps(record)) for record in records))
        return [record for record, outcome in zip(records, outcomes, strict=True) if not outcome]

    def _steps(self, record: Record) -> Sequence[Step]:
        first: Step = ("DEL", record.key) if self._mode is IfThere.REPLACE else absent(record.key)
        return [first, *commands_of(record)]

    async def _met(self, records: list[Record]) -> int:
        """How many of these, whose keys are there, are not our own work. Raises KeysThere where that is refused.

        After an interruption the last batches may have been written: what is as in the backup is taken to be that.
        """
        if records and self._resumed:
            held = {one.key: one for one in await self._reading.records([record.key for record in records])}
            records = [record for record in records if not _same(record, held.get(record.key))]
        if records and self._mode is IfThere.REFUSE:
            raise KeysThere(
                f"{shown(records[0].key)} came into the store since the backup was checked, and was left as it is; "
                "go on with --resume and --if-there skip or replace",
                len(records),
            )
        return len(records)


def _same(record: Record, held: Record | None) -> bool:
    return (
        held is not None
        and (held.kind, held.expires_at_ms) == (record.kind, record.expires_at_ms)
        and held.content == record.content
    )


def _batches(records: list[Record]) -> Iterator[list[Record]]:
    """So many that each is written soon, and holds little memory."""
    batch: list[Record] = []
    size = 0
    for record in records:
        batch.append(record)
        size += sum(map(len, record.parts))
        if len(batch) >= _AT_ONCE or size >= _BYTES_AT_ONCE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
