"""Back up a store into a file."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from keystead.errors import printable
from keystead.stores.backup.file import Header, PartFile, part_of, refuse_existing
from keystead.stores.store_contract import Store
from keystead.stores.transfer.reader import Reader, count_keys, refuse_unlisted
from keystead.stores.transfer.records import LeftOut, Record, why_unwritable
from keystead.stores.transfer.seen_keys import SeenKeys
from keystead.stores.transfer.transfer_errors import BackupError, KeyTooLarge
from keystead.stores.transfer.transfer_progress import OnProgress, TransferProgress, ignore


@dataclass(frozen=True, slots=True)
class Saved:
    """A finished backup. `kept` keys were saved by earlier, interrupted runs.

    `left_out` keys are not in it, because they could never be restored.
    """

    file: Path
    size_bytes: int
    header: Header
    keys: int
    kinds: dict[str, int]
    kept: int
    left_out: LeftOut

    def as_json(self) -> dict[str, Any]:
        return {
            "file": str(self.file),
            "bytes": self.size_bytes,
            **asdict(self.header),
            "keys": self.keys,
            "kinds": self.kinds,
            "kept": self.kept,
            "left_out": self.left_out.count,
            "examples": self.left_out.examples,
        }


async def backup(
    store: Store,
    path: Path,
    *,
    match: str = "*",
    overwrite: bool = False,
    resume: bool = False,
    on_progress: OnProgress = ignore,
) -> Saved:
    """Save every key that matches, of every kind, with its value and its deadline, into one file.

    A value and its deadline are read in one atomic step. The backup as a whole is not a snapshot: keys are read one
    after the other while other programs write. A key that exists the whole time is in the backup, and no key is in it
    twice. A key that could never be restored is left out and counted: a kind without commands here, a deadline after
    the year 9999, a stream entry with too many fields, a key that needs more than 1 GiB of memory.

    The file is written as `FILE.part`, and renamed when all of it is on disk. After an interruption `resume` continues:
    saved keys are not read again. Raises BackupInTheWay if such a file exists, unless `overwrite`, and DoesNotFit if
    the store cannot list its keys.
    """
    refuse_existing(path, overwrite=overwrite)
    refuse_unlisted(store)
    reader = Reader(store)
    with SeenKeys() as seen:
        part = _resume(store, path, match, seen) if resume else _create(store, path, match, overwrite)
        kept = part.counts.keys
        try:
            total = await count_keys(store, match)
            async with aclosing(reader.read_all(match, seen)) as pages:
                async for records in pages:
                    for record in records:
                        if _add(record, part, reader.left_out):
                            await _flush(part)
                    on_progress(TransferProgress("saving", part.counts.keys, total))
            await _flush(part)
            size_bytes = await asyncio.to_thread(part.finish, overwrite=overwrite)
        except BaseException:
            with suppress(BackupError):  # keep what was read for `resume`, if the disk allows
                part.flush()
            raise
        finally:
            part.close()
    return Saved(path, size_bytes, part.header, part.counts.keys, part.counts.kinds, kept, reader.left_out)


def _create(store: Store, path: Path, match: str, overwrite: bool) -> PartFile:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    header = Header(made_at=now, keystead=version("keystead"), store=store.url, match=match)
    return PartFile.create(path, header, overwrite=overwrite)


def _resume(store: Store, path: Path, match: str, seen: SeenKeys) -> PartFile:
    part = PartFile.resume(path)
    try:
        if (part.header.store, part.header.match) != (store.url, match):
            raise BackupError(
                f"{part_of(path)} was started from {part.header.store} with --match {part.header.match!r}, not from "
                f"{store.url} with {match!r}; add --overwrite instead of --resume to start over"
            )
        for keys in part.saved_keys():
            seen.add(keys)
    except BaseException:
        part.close()
        raise
    return part


def _add(record: Record, part: PartFile, left_out: LeftOut) -> bool:
    """Add a record, or list it as left out if it could not be restored; returns whether it is time to flush."""
    if why := why_unwritable(record):
        left_out.add(f"{printable(record.key)} {why}")
        return False
    try:
        return part.add(record)
    except KeyTooLarge as error:
        left_out.add(str(error))
        return False


async def _flush(part: PartFile) -> None:
    """Flush in a thread: compression takes time, and the next pages are read meanwhile."""
    flushing = asyncio.ensure_future(asyncio.to_thread(part.flush))
    try:
        await asyncio.shield(flushing)
    finally:
        if not flushing.done():  # cancelled: only one thread may write at a time
            await asyncio.wait({flushing})
