"""Restore a backup file into a store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import aclosing
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from itertools import islice
from typing import Any, Final

from keystead.errors import DoesNotFit, printable
from keystead.stores.backup.file import BackupFile, Counts
from keystead.stores.commands import Command
from keystead.stores.store_contract import Store, holds
from keystead.stores.transfer.comparison import Compared, difference
from keystead.stores.transfer.guarded_writes import run_guarded
from keystead.stores.transfer.reader import PIECE, Reader, clock_ms, run_overlapped
from keystead.stores.transfer.records import Record
from keystead.stores.transfer.transfer_errors import BackupDamaged, BackupError, KeysThere, RestoreLost
from keystead.stores.transfer.transfer_progress import OnProgress, TransferProgress, ignore
from keystead.stores.transfer.writer import AT_ONCE, BATCHES, Writer, split, why_unfit

CHECKPOINT_PREFIX: Final = "keystead:restore:"
_KEPT_MS: Final = 30 * 86_400_000


class IfThere(StrEnum):
    """What to do with keys of the backup that already exist in the store."""

    REFUSE = "refuse"  # restore nothing if there are any
    SKIP = "skip"  # keep the existing one
    REPLACE = "replace"  # overwrite it


@dataclass(frozen=True, slots=True)
class Restored:
    """The total of all runs. `expired` keys were not restored: their deadline had passed. `skipped` keys existed.

    `resumed_at` is the number of keys that an interrupted run had handled. `missing` keys should be in the store but
    were not there at the end: a program deleted them meanwhile, or the store lost them.
    """

    keys: int
    restored: int
    expired: int
    skipped: int
    resumed_at: int
    missing: int

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(slots=True)
class Checked:
    """A backup that was verified as complete, and the state of the target store."""

    counts: Counts = field(default_factory=Counts)
    digest: str = ""
    stamp: tuple[int, int] = (0, 0)
    expired: int = 0
    there: int = 0

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self.counts), "expired": self.expired, "there": self.there}


async def check(store: Store, file: BackupFile, *, on_progress: OnProgress = ignore) -> Checked:
    """Verify the whole file, and count its keys that exist in the store. Writes nothing.

    Raises BackupDamaged if the file was altered, and DoesNotFit if the store cannot hold one of its keys.
    """
    checked = Checked(stamp=file.stamp)
    now_ms = await clock_ms(store)
    try:
        for records in file.blocks():
            live: list[bytes] = []
            for record in records:
                if why := why_unfit(record, store):
                    raise DoesNotFit(f"{printable(record.key)} {why}. Nothing was written")
                checked.counts.add(record)
                if record.is_expired(now_ms):
                    checked.expired += 1
                else:
                    live.append(record.key)
            checked.there += await _count(store, live)
            on_progress(TransferProgress("checking", checked.counts.keys))
            await asyncio.sleep(0)
    except BackupDamaged as error:
        raise BackupDamaged(f"{error}. Nothing was restored") from None
    checked.digest = file.digest
    return checked


async def _count(store: Store, keys: list[bytes]) -> int:
    """The number of these keys that exist in the store."""
    there = 0
    for at in range(0, len(keys), AT_ONCE):
        [some] = await store.run([("EXISTS", *keys[at : at + AT_ONCE])])
        there += some
    return there


async def compare(store: Store, file: BackupFile, *, on_progress: OnProgress = ignore) -> Compared:
    """Compare every key of a backup with the store; other keys of the store are ignored. Writes nothing.

    Raises BackupDamaged if the file was altered.
    """
    reader = Reader(store)
    compared = Compared()
    for records in file.blocks():
        for at in range(0, len(records), AT_ONCE):
            batch = records[at : at + AT_ONCE]
            held = await reader.read_by_key([record.key for record in batch])
            now_ms = await clock_ms(store)  # after the read: keys that have expired by then count as expired
            for record in batch:
                compared.add(record, held.get(record.key), now_ms)
        on_progress(TransferProgress("comparing", compared.keys))
    return compared


async def restore(
    store: Store,
    file: BackupFile,
    *,
    if_there: IfThere | None = None,
    resume: bool = False,
    checked: Checked | None = None,
    on_progress: OnProgress = ignore,
) -> Restored:
    """Write every key of a backup whose deadline has not passed, after verifying the whole file.

    Each key is written with its deadline in one atomic step; the restore as a whole is not atomic. `if_there` defaults
    to `refuse`, or to the mode of the interrupted restore. After an interruption `resume` continues, with the same
    result as without one: the checkpoint is in the store, under `keystead:restore:`, until all blocks are done. Keys of
    finished blocks that were changed or deleted since stay so. (On a cluster, where one node may lose its data and
    another may not, deleted ones are written again.) At the end all keys are counted: see `Restored.missing`.

    Raises BackupDamaged, DoesNotFit and KeysThere before anything is written. KeysThere is also raised later, if a key
    was created after the check; keys restored until then stay, and `resume` continues. Raises RestoreLost if the store
    lost the checkpoint, and BackupDamaged if the file was replaced after the check.
    """
    checked = checked or await check(store, file, on_progress=on_progress)
    replaced = f"{file.path} was replaced after it was verified."
    if file.stamp != checked.stamp:
        raise BackupDamaged(f"{replaced} Nothing was restored")
    checkpoint = Checkpoint(store, checked)
    begun = await checkpoint.load()
    resumed = resume and begun is not None
    before = begun if resumed and begun is not None else _Done()
    before.if_there = if_there or before.if_there
    if before.if_there is IfThere.REFUSE and checked.there and not resumed:
        raise KeysThere(_advice(checked, was_begun=begun is not None), checked.there)
    await checkpoint.save(before)
    done = await _Restore(store, before, resumed=resumed).run(file, checkpoint, checked.counts.keys, on_progress)
    if file.digest != checked.digest:
        raise BackupDamaged(f"{replaced} The store has keys of both; restore the right one with --if-there replace")
    missing = await _count_missing(store, file)
    await checkpoint.remove()
    return Restored(checked.counts.keys, done.restored, done.expired, done.skipped, before.keys, missing)


async def _count_missing(store: Store, file: BackupFile) -> int:
    """The number of keys of the file that should be in the store but are not."""
    missing = 0
    for records in file.blocks():
        if await _count(store, [record.key for record in records]) < len(records):
            now_ms = await clock_ms(store)  # after the count: keys that have expired by then count as expired
            live = [record.key for record in records if not record.is_expired(now_ms)]
            missing += len(live) - await _count(store, live)
    return missing


def _advice(checked: Checked, *, was_begun: bool) -> str:
    existing = f"{checked.there:,} of the {checked.counts.keys:,} keys of the backup already exist in the store"
    if was_begun:
        return f"{existing}: a restore of this backup was interrupted. Nothing was written; add --resume to continue it"
    return (
        f"{existing}. Nothing was written; add --if-there skip to keep those, or --if-there replace to overwrite them "
        "with the keys of the backup"
    )


# --- checkpoints -------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Done:
    """The finished part: a number of complete blocks of the file."""

    blocks: int = 0
    keys: int = 0
    restored: int = 0
    expired: int = 0
    skipped: int = 0
    if_there: IfThere = IfThere.REFUSE

    def is_possible(self, counts: Counts) -> bool:
        """Whether a restore of a backup with these counts can have reached this state."""
        numbers = (self.blocks, self.keys, self.restored, self.expired, self.skipped)
        return (
            all(type(number) is int and number >= 0 for number in numbers)
            and self.blocks <= self.keys <= counts.keys
            and self.restored + self.expired + self.skipped == self.keys
        )

    def add(self, other: _Done) -> None:
        for name in ("blocks", "keys", "restored", "expired", "skipped"):
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Checkpoint:
    """Stored in the target store itself: a server that lost keys in a crash has lost the checkpoint, too.

    It is written after the keys that it counts, and only over its last version. So a store that restarted without its
    data is detected, and so is a concurrent restore of the same backup. On a cluster it covers only its own node.
    """

    def __init__(self, store: Store, checked: Checked) -> None:
        self._store = store
        self._counts = checked.counts
        self._key = f"{CHECKPOINT_PREFIX}{checked.digest[:32]}"
        self._last: bytes | None = None
        self._mode = IfThere.REFUSE

    async def load(self) -> _Done | None:
        [self._last] = await self._store.run([("GET", self._key)])
        try:
            parsed = json.loads(self._last or b"")
            done = _Done(**{**parsed, "if_there": IfThere(parsed["if_there"])})
        except (ValueError, TypeError, KeyError):
            return None  # not one of ours: start from the beginning
        return done if done.is_possible(self._counts) else None

    async def save(self, done: _Done) -> None:
        """Raises RestoreLost."""
        self._mode = done.if_there
        text = json.dumps(asdict(done)).encode()
        await self._change(("SET", self._key, text, "PX", _KEPT_MS))
        self._last = text

    async def remove(self) -> None:
        """Raises RestoreLost."""
        await self._change(("DEL", self._key))

    async def _change(self, command: Command) -> None:
        if not await run_guarded(self._store, [holds(self._key, self._last), command]):
            how = IfThere.SKIP if self._mode is IfThere.REFUSE else self._mode
            raise RestoreLost(
                f"the checkpoint {self._key} in {self._store.url} is not the last one written: the store restarted "
                "without its data, or another restore of this backup is running. Continue with one of them: "
                f"--resume --if-there {how}"
            )


# --- writing -----------------------------------------------------------------------------------------------


class _Restore:
    """Writes the blocks that are not done. `before`: the finished part of an interrupted restore.

    On a cluster all blocks are checked: finished ones may have been lost with one node. Missing keys are written
    again, and existing ones are kept, whatever the mode.
    """

    def __init__(self, store: Store, before: _Done, *, resumed: bool) -> None:
        self._store = store
        self._before = before
        self._resumed = resumed
        self._reader = Reader(store)
        self._writer = Writer(store)

    async def run(self, file: BackupFile, checkpoint: Checkpoint, total: int, on_progress: OnProgress) -> _Done:
        """Restore all blocks, several batches concurrently. `done` advances with each block, in order."""
        before, blocks = self._before, file.blocks()
        checks_again = self._store.guarantees.atomic != "any keys"
        done = _Done(if_there=before.if_there) if checks_again else _skip_done(before, blocks)

        async def steps() -> AsyncIterator[Coroutine[Any, Any, _Done]]:
            for place, records in enumerate(blocks, done.blocks):
                mode = IfThere.SKIP if place < before.blocks else before.if_there
                some = list(split(records)) or [[]]
                for left, batch in enumerate(some, 1 - len(some)):
                    yield self._restore_batch(batch, mode, ends_block=left == 0)

        block = _Done()
        async with aclosing(run_overlapped(steps(), BATCHES)) as batches:
            async for batch in batches:
                block.add(batch)
                if not batch.blocks:
                    continue
                done.add(block)
                block = _Done()
                if done.blocks > before.blocks:
                    await checkpoint.save(done)
                on_progress(TransferProgress("restoring", done.keys, total))
        return done

    async def _restore_batch(self, records: list[Record], mode: IfThere, *, ends_block: bool) -> _Done:
        now_ms = await clock_ms(self._store)
        live = [record for record in records if not record.is_expired(now_ms)]
        skipped = await self._write(live, mode)
        expired, restored = len(records) - len(live), len(live) - skipped
        return _Done(int(ends_block), len(records), restored=restored, expired=expired, skipped=skipped)

    async def _write(self, records: list[Record], mode: IfThere) -> int:
        """Returns how many were skipped because they exist. Raises KeysThere."""
        if mode is IfThere.REPLACE:
            # A step that timed out may have been executed; each resume would repeat it and time out again.
            large = [record for record in records if self._resumed and len(record.parts) > PIECE]
            written = await self._find_equal(large)
            await self._writer.put([record for record in records if record.key not in written])
            return 0
        present = await self._writer.add(records)
        if self._resumed:
            # The last batches before the interruption may have been written: keys equal to the backup are our own work.
            written = await self._find_equal(present)
            present = [record for record in present if record.key not in written]
        if present and mode is IfThere.REFUSE:
            raise KeysThere(
                f"{printable(present[0].key)} was created after the backup was verified, and was kept; continue with "
                "--resume and --if-there skip or replace",
                len(present),
            )
        return len(present)

    async def _find_equal(self, records: list[Record]) -> set[bytes]:
        """The keys whose value in the store equals that of the backup."""
        held = await self._reader.read_by_key([record.key for record in records])
        return {record.key for record in records if difference(record, held.get(record.key)) == "equal"}


def _skip_done(before: _Done, blocks: Iterator[list[Record]]) -> _Done:
    """Skip the blocks that are done."""
    keys = sum(len(records) for records in islice(blocks, before.blocks))
    if keys != before.keys:
        raise BackupError(
            f"the checkpoint of an interrupted restore does not match this backup: {before.keys:,} keys done, but the "
            f"backup has {keys:,} there. Leave --resume out, and write --if-there skip or replace"
        )
    return replace(before)
