"""From a file into a store."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

from keystead.errors import DoesNotFit, shown
from keystead.stores.backup.errors import BackupDamaged, BackupError, KeysThere, RestoreLost
from keystead.stores.backup.file import BackupFile, Counts
from keystead.stores.backup.reading import PIECE, Reading
from keystead.stores.backup.records import Record
from keystead.stores.backup.writing import AT_ONCE, BATCHES, Writing, batches, clock_ms, is_over, unfit
from keystead.stores.commands import Command
from keystead.stores.store_contract import Store, holds

JOURNAL_PREFIX: Final = "keystead:restore:"
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

    `skipped` ones were there already. `resumed_at` says how many keys an interrupted run had dealt with. `missing` keys
    should be in the store and were not there in the end: a program deleted them meanwhile, or the store forgot them.
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
    """A backup that was read to its end and is whole, beside the store that it is to go into."""

    counts: Counts = field(default_factory=Counts)
    digest: str = ""
    stamp: tuple[int, int] = (0, 0)
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
    checked = Checked(stamp=file.stamp)
    now_ms = await clock_ms(store)
    for records in _undamaged(file):
        live: list[bytes] = []
        for record in records:
            if why := unfit(record, store):
                raise DoesNotFit(f"{shown(record.key)} {why}. Nothing was written")
            checked.counts.add(record)
            if is_over(record, now_ms):
                checked.expired += 1
            else:
                live.append(record.key)
        checked.there += await _count(store, live)
        if on_progress is not None:
            on_progress(RestoreProgress("checking", checked.counts.keys, None))
        await asyncio.sleep(0)
    checked.digest = file.digest
    return checked


async def _count(store: Store, keys: list[bytes]) -> int:
    """How many of these are in the store."""
    there = 0
    for at in range(0, len(keys), AT_ONCE):
        [some] = await store.run([("EXISTS", *keys[at : at + AT_ONCE])])
        there += some
    return there


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
    in these since are left so. (On a cluster, where one node may forget what it was given and another one not, what is
    gone from these is written again.) In the end all keys are counted in the store: see `Restored.missing`.

    Raises BackupDamaged, DoesNotFit and KeysThere before anything is written. KeysThere is raised later, too, where a
    key came to be after the check; what was restored until then stays, and `resume` goes on. Raises RestoreLost where
    the store forgot how far this was, and BackupDamaged where the file was replaced since it was checked.
    """
    checked = checked or await check(store, file, on_progress=on_progress)
    if file.stamp != checked.stamp:
        raise _replaced(file, "Nothing was restored")
    journal = Journal(store, checked)
    begun = await journal.read()
    before = begun if resume and begun is not None else _Done()
    before.if_there = if_there or before.if_there
    goes_on = resume and begun is not None
    if before.if_there is IfThere.REFUSE and checked.there and not goes_on:
        raise KeysThere(_there(checked, begun is not None), checked.there)
    await journal.write(before)
    done = await _Restore(store, before, resumed=goes_on).run(file, journal, checked.counts.keys, on_progress)
    if file.digest != checked.digest:
        raise _replaced(file, "What was restored is a mixture; restore the right backup with --if-there replace")
    missing = await _missing(store, file)
    await journal.end()
    return Restored(checked.counts.keys, done.restored, done.expired, done.skipped, before.keys, missing)


def _replaced(file: BackupFile, then: str) -> BackupDamaged:
    return BackupDamaged(f"{file.path} was replaced since it was checked. {then}")


async def _missing(store: Store, file: BackupFile) -> int:
    """How many keys of the file should be in the store, and are not."""
    missing = 0
    for records in file.blocks():
        keys = [record.key for record in records]
        gone = len(keys) - await _count(store, keys)
        if gone:
            now_ms = await clock_ms(store)  # after the look, so that what has expired by then counts as that
            live = [record.key for record in records if not is_over(record, now_ms)]
            missing += len(live) - await _count(store, live)
    return missing


def _there(checked: Checked, begun: bool) -> str:
    said = f"{checked.there:,} of the {checked.counts.keys:,} keys of the backup are in the store already"
    if begun:
        return f"{said}: a restore of this backup was interrupted. Nothing was written; add --resume to go on with it"
    return (
        f"{said}. Nothing was written; add --if-there skip to leave those as they are, or --if-there replace to put "
        "the keys of the backup in their place"
    )


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

    def is_possible(self, counts: Counts) -> bool:
        """Whether a restore of a backup that counts so many keys can have got here."""
        numbers = (self.blocks, self.keys, self.restored, self.expired, self.skipped)
        return (
            all(type(number) is int and number >= 0 for number in numbers)
            and self.blocks <= self.keys <= counts.keys
            and self.restored + self.expired + self.skipped == self.keys
        )

    def add(self, other: _Done) -> None:
        self.blocks += other.blocks
        self.keys += other.keys
        self.restored += other.restored
        self.expired += other.expired
        self.skipped += other.skipped


class Journal:
    """Kept in the store itself: what a server has forgotten in a crash, it has forgotten of this, too.

    It is written after what it tells of, so it never tells too much; and only over what was written last, so that a
    store that was restarted without it is noticed, and a second restore of the same backup, too. On a cluster it tells
    nothing of the other nodes.
    """

    def __init__(self, store: Store, checked: Checked) -> None:
        self._store = store
        self._counts = checked.counts
        self._key = f"{JOURNAL_PREFIX}{checked.digest[:32]}"
        self._last: bytes | None = None
        self._mode = IfThere.REFUSE

    async def read(self) -> _Done | None:
        [self._last] = await self._store.run([("GET", self._key)])
        if self._last is None:
            return None
        try:
            said = json.loads(self._last)
            done = _Done(**{**said, "if_there": IfThere(said["if_there"])})
        except (ValueError, TypeError, KeyError):
            return None  # not one of ours: as if nothing had been begun
        return done if done.is_possible(self._counts) else None

    async def write(self, done: _Done) -> None:
        """Raises RestoreLost."""
        self._mode = done.if_there
        text = json.dumps(asdict(done)).encode()
        await self._change(("SET", self._key, text, "PX", _KEPT_MS))
        self._last = text

    async def end(self) -> None:
        """Raises RestoreLost."""
        await self._change(("DEL", self._key))

    async def _change(self, command: Command) -> None:
        if not await self._store.atomically([holds(self._key, self._last), command]):
            how = IfThere.SKIP if self._mode is IfThere.REFUSE else self._mode
            raise RestoreLost(
                f"{self._store.url} does not hold what was written last under {self._key}: it was restarted and forgot "
                "what was restored, or another restore of this backup runs. Go on with one of them: "
                f"--resume --if-there {how}"
            )


# --- writing -----------------------------------------------------------------------------------------------


class _Restore:
    """Writes the blocks that are not done. `before` says what an interrupted restore had done.

    On a cluster all blocks are looked at: what was there when those were done may be gone with one node. Keys that are
    gone are written again, and those that are there are left as they are, whatever the mode.
    """

    def __init__(self, store: Store, before: _Done, *, resumed: bool) -> None:
        self._store = store
        self._before = before
        self._resumed = resumed
        self._looks_again = store.guarantees.atomic != "any keys"
        self._reading = Reading(store)
        self._writing = Writing(store)

    async def run(
        self,
        file: BackupFile,
        journal: Journal,
        total: int,
        on_progress: Callable[[RestoreProgress], None] | None,
    ) -> _Done:
        """Deal with all blocks, some batches at once; what is done grows with each block, in order."""
        before, blocks = self._before, file.blocks()
        done = _Done(if_there=before.if_there) if self._looks_again else _passed_over(before, blocks)
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
                if done.blocks > before.blocks:
                    await journal.write(done)
                if on_progress is not None:
                    on_progress(RestoreProgress("restoring", done.keys, total))

        try:
            for place, records in enumerate(blocks, done.blocks):
                mode = IfThere.SKIP if place < before.blocks else before.if_there
                some = list(batches(records)) or [[]]
                for number, batch in enumerate(some, 1):
                    under_way.append((asyncio.create_task(self._write(batch, mode)), number == len(some)))
                    while len(under_way) >= BATCHES:
                        await oldest()
            while under_way:
                await oldest()
        finally:
            for task, _ in under_way:
                task.cancel()
            await asyncio.gather(*(task for task, _ in under_way), return_exceptions=True)
        return done

    async def _write(self, records: list[Record], mode: IfThere) -> _Done:
        now_ms = await clock_ms(self._store)
        live = [record for record in records if not is_over(record, now_ms)]
        due = await self._not_written(live) if self._resumed and mode is IfThere.REPLACE else live
        if mode is IfThere.REPLACE:
            await self._writing.put(due)
            skipped = 0
        else:
            skipped = await self._met(await self._writing.add(due), mode)
        return _Done(keys=len(records), expired=len(records) - len(live), restored=len(live) - skipped, skipped=skipped)

    async def _not_written(self, records: list[Record]) -> list[Record]:
        """Without the large ones that are there: a step that was not waited for long enough did its work all the same,
        and to do it again would end in the same way, at each resume.
        """
        large = [record for record in records if len(record.parts) > PIECE]
        there = set(await self._as_saved(large))
        return [record for record in records if record.key not in there]

    async def _met(self, records: list[Record], mode: IfThere) -> int:
        """How many of these, whose keys are there, are not our own work. Raises KeysThere where that is refused.

        After an interruption the last batches may have been written: what is as in the backup is taken to be that.
        """
        if records and self._resumed:
            ours = set(await self._as_saved(records))
            records = [record for record in records if record.key not in ours]
        if records and mode is IfThere.REFUSE:
            raise KeysThere(
                f"{shown(records[0].key)} came into the store since the backup was checked, and was left as it is; "
                "go on with --resume and --if-there skip or replace",
                len(records),
            )
        return len(records)

    async def _as_saved(self, records: list[Record]) -> list[bytes]:
        """The keys of those that are in the store as they are in the backup."""
        if not records:
            return []
        held = {one.key: one for one in await self._reading.records([record.key for record in records])}
        return [record.key for record in records if _same(record, held.get(record.key))]


def _passed_over(before: _Done, blocks: Iterator[list[Record]]) -> _Done:
    """Go past the blocks that are done, which are not touched again."""
    keys = sum(len(records) for records in islice(blocks, before.blocks))
    if keys != before.keys:
        raise BackupError(
            f"what the store says of an interrupted restore does not fit this backup: {before.keys:,} keys done, where "
            f"it has {keys:,}. Leave --resume out, and write --if-there skip or replace"
        )
    return replace(before)


def _same(record: Record, held: Record | None) -> bool:
    return (
        held is not None
        and (held.kind, held.expires_at_ms) == (record.kind, record.expires_at_ms)
        and held.content == record.content
    )
