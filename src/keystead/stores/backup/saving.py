"""From a store into a file."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

from keystead.errors import shown
from keystead.stores.backup.errors import BackupError, KeyTooLarge
from keystead.stores.backup.file import Header, PartFile, part_of, refuse_existing
from keystead.stores.backup.reading import PAGE, Reading, refuse_unlisted
from keystead.stores.backup.records import LeftOut, Record, unwritable
from keystead.stores.backup.seen import Seen
from keystead.stores.store_contract import Store


class SaveProgress(NamedTuple):
    saved: int
    total: int | None  # what the store says it holds; None: only some keys are asked for


@dataclass(frozen=True, slots=True)
class Saved:
    """A finished backup. `kept` keys of it were saved by earlier runs that were interrupted.

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
    on_progress: Callable[[SaveProgress], None] | None = None,
) -> Saved:
    """Save every key that matches, of every kind, with its value and its deadline, into one file.

    A value and its deadline are read in one atomic step. The whole is not one moment: keys are read one after the
    other while others write, so each is as it was at some moment between the beginning and the end. A key that is
    there all along is in the backup, and no key is in it twice. What no restore could bring back is left out and
    counted: a kind that has no commands here, a deadline after the year 9999, an entry of a stream with too many
    fields, a key that needs more than 1 GiB of memory.

    It is written as `FILE.part`, and gets its name when all of it is on disk. Where this ends early, by an error or
    by being cancelled, `resume` goes on: keys that were saved are not read again, so what changed since does not
    show. Raises BackupInTheWay where there is such a file, unless `overwrite` says that it may go, and DoesNotFit where
    the store cannot list its keys.
    """
    refuse_existing(path, overwrite=overwrite)
    refuse_unlisted(store)
    reading = Reading(store)
    with Seen() as seen:
        part, header = _resumed(store, path, match, seen) if resume else _begun(store, path, match, overwrite)
        kept = part.counts.keys
        try:
            total = (await store.run([("DBSIZE",)]))[0] if match == "*" else None
            await _save(store, reading, part, match, seen, lambda: _tell(part, total, on_progress))
            size_bytes = await asyncio.to_thread(part.finish, overwrite=overwrite)
        finally:
            part.close()
    return Saved(path, size_bytes, header, part.counts.keys, part.counts.kinds, kept, reading.left_out)


def _begun(store: Store, path: Path, match: str, overwrite: bool) -> tuple[PartFile, Header]:
    now = datetime.now(UTC).isoformat(timespec="seconds")
    header = Header(made_at=now, keystead=version("keystead"), store=store.url, match=match)
    return PartFile.new(path, header, overwrite=overwrite), header


def _resumed(store: Store, path: Path, match: str, seen: Seen) -> tuple[PartFile, Header]:
    part, header, kept = PartFile.again(path)
    try:
        if (header.store, header.match) != (store.url, match):
            raise BackupError(
                f"{part_of(path)} was begun from {header.store} with --match {header.match!r}, not from {store.url} "
                f"with {match!r}; add --overwrite instead of --resume to start anew"
            )
        for records in kept:
            seen.new(record.key for record in records)
    except BaseException:
        part.close()
        raise
    return part, header


def _tell(part: PartFile, total: int | None, on_progress: Callable[[SaveProgress], None] | None) -> None:
    if on_progress is not None:
        on_progress(SaveProgress(part.counts.keys, total))


async def _save(
    store: Store, reading: Reading, part: PartFile, match: str, seen: Seen, tell: Callable[[], None]
) -> None:
    flushing: asyncio.Future[None] | None = None
    loop = asyncio.get_running_loop()
    try:
        async for records in reading.ahead(_new_keys(store, match, seen)):
            for record in records:
                if _added(record, part, reading.left_out):
                    if flushing is not None:
                        await asyncio.shield(flushing)
                    # In a thread: to compress takes time, and the next pages can be read meanwhile.
                    flushing = loop.run_in_executor(None, part.flush, part.taken())
            tell()
        if flushing is not None:
            await asyncio.shield(flushing)
    finally:
        # Whatever ended it, what was read is kept. Where the disk is what ended it, that was said already.
        if flushing is not None and not flushing.done():
            await asyncio.wait({flushing})
        with suppress(BackupError):
            part.flush(part.taken())


def _added(record: Record, part: PartFile, left_out: LeftOut) -> bool:
    """Add what can be restored, and name what cannot; True: it is time to flush."""
    why = unwritable(record)
    if why:
        left_out.add(f"{shown(record.key)} {why}")
        return False
    try:
        return part.add(record)
    except KeyTooLarge as error:
        left_out.add(str(error))
        return False


async def _new_keys(store: Store, match: str, seen: Seen) -> AsyncIterator[list[bytes]]:
    async for page in store.scan(match, page=PAGE):
        yield seen.new(page)
