"""One pass of a copy: new and changed keys are written to the target, and deletions propagate.

Who may interleave: the application that still writes to the source, and, in a migration, the same application that
already writes to the target. The next pass picks up the former. The latter wins: each write and each delete at the
target is one atomic step with a guard that the key is absent, or unchanged since it was read and found to be written by
this copy.
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Awaitable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

from keystead.errors import Contended, WrongKind, printable
from keystead.stores.copy.fingerprints import fingerprint, unchanged_guards
from keystead.stores.copy.journal import Entry, Journal, SeenIds, State
from keystead.stores.copy.marker import MARKER_PREFIX, Marker
from keystead.stores.copy.ownership import Ownership, may_be_missing
from keystead.stores.store_contract import Step, Store, absent
from keystead.stores.transfer.guarded_writes import run_guarded
from keystead.stores.transfer.reader import PAGE, Reader, clock_ms, count_keys, refuse_unlisted, run_overlapped
from keystead.stores.transfer.records import LeftOut, Record
from keystead.stores.transfer.transfer_errors import CopyLost, SameStore, SourceEmptied
from keystead.stores.transfer.transfer_progress import OnProgress, TransferProgress, ignore
from keystead.stores.transfer.writer import BATCHES, Writer, gather_all, split, why_unfit

_TRIES: Final = 10
LOST_KEYS: Final = 100  # this many keys at once,
LOST_SHARE: Final = 10  # and more than this fraction: more likely lost with a store than deleted one by one


@dataclass(slots=True)
class Passed:
    """The result of one pass. `keys` were found at the source; of these, `written` were written to the target.

    `deleted` keys were gone at the source, and were deleted at the target. `expired` keys had reached their deadline by
    the clock of the target.
    """

    keys: int = 0
    written: int = 0
    deleted: int = 0
    expired: int = 0
    left_out: LeftOut = field(default_factory=LeftOut)

    @property
    def changes(self) -> int:
        return self.written + self.deleted


@dataclass(slots=True)
class _Item:
    """A key to be written. `entry` is its journal entry when it was read, which changes once the write has `begun`.
    `id` is the id of the entry, once there is one.
    """

    record: Record
    written: bytes
    entry: Entry | None = None
    id: int = 0
    begun: bool = False

    def is_recorded(self, state: State) -> bool:
        """Whether the journal already records the current value and this owner."""
        if self.entry is None or self.begun or self.entry.uncertain:
            return False
        return self.entry.state is state and self.entry.written == self.written

    def to_entry(self, state: State = State.OURS, held: Record | None = None) -> Entry:
        """The entry to record; `held` is the value to be replaced."""
        entry = Entry(self.id, self.record.key, state, self.written, self.record.expires_at_ms)
        if held is None:
            return entry
        before = fingerprint(held)
        is_ours = self.entry is not None and self.entry.is_ours(before)
        return entry._replace(before=before, before_ends_at_ms=held.expires_at_ms, before_is_ours=is_ours)


class Copier:
    """Runs passes from one store into another, with one journal."""

    def __init__(
        self,
        source: Store,
        target: Store,
        journal: Journal,
        *,
        match: str = "*",
        overwrite: bool = False,
        allow_empty: bool = False,
    ) -> None:
        """Raises DoesNotFit if either store has no atomic steps."""
        self._source = source
        self._target = target
        self._journal = journal
        self._match = match
        self._allow_empty = allow_empty
        self._lags = target.guarantees.consistency == "eventual"
        self._ownership = Ownership(overwrite, journal.earlier_id, self._lags)
        self._at_source = Reader(source)
        self._at_target = Reader(target)
        self._writer = Writer(target)
        self._marker = Marker(source, target, journal)
        self._start_pass()

    def _start_pass(self) -> None:
        self._passed = Passed()
        self._at_source.left_out = self._passed.left_out
        self._seen = SeenIds()
        self._new: set[bytes] = set()  # keys being written that are not in the journal yet
        self._missing = array("q")  # entries of keys that were deleted at the target
        self._earlier_id = self._journal.last_id  # the last entry of all passes before this one
        self._copied: int | None = None  # the number of keys of earlier passes, once counted

    async def begin(self, *, start_over: bool = False) -> None:
        """Call it before the first pass. Raises SameStore, CopyLost if the target lost earlier keys, and NoProgress if
        an earlier copy wrote keys that this journal does not know.
        """
        await self._marker.put(self._journal, start_over=start_over)

    async def end(self) -> None:
        """Remove the marker if nothing was copied."""
        await self._marker.remove()

    # --- a pass --------------------------------------------------------------------------------------------

    async def run_pass(self, on_progress: OnProgress = ignore) -> Passed:
        """Copy every matching key once. If it ends early, the journal has what was done."""
        await self._marker.check()
        total = await count_keys(self._source, self._match)
        self._start_pass()
        try:
            async with (
                aclosing(self._at_source.read_all(self._match, without=MARKER_PREFIX)) as pages,
                aclosing(run_overlapped(self._steps(pages), BATCHES)) as steps,
            ):
                async for _ in steps:
                    on_progress(TransferProgress("copying", self._passed.keys, total))
            await self._delete_gone()
            self._journal.mark((number, State.DELETED) for number in self._missing)
        finally:
            self._journal.flush()
        # All earlier keys were checked; from here on the target wins.
        self._ownership = Ownership(overwrite=False, earlier_id=0, lags=self._lags)
        return self._passed

    async def _steps(self, pages: AsyncIterator[list[Record]]) -> AsyncIterator[Coroutine[Any, Any, None]]:
        async for records in pages:
            for some in split(records):
                yield self._copy(some)

    async def _copy(self, records: list[Record]) -> None:
        new, known, count = self._find_due(records)
        if new or known:
            now_ms = await clock_ms(self._target)
            await self._add([item for item in new if not self._is_expired(item, now_ms)])
            await self._settle([item for item in known if not self._is_expired(item, now_ms)])
        self._passed.keys += count

    def _find_due(self, records: list[Record]) -> tuple[list[_Item], list[_Item], int]:
        """The records to be written: keys that are not in the journal, and keys that differ from it; and the number of
        keys seen for the first time.
        """
        count = 0
        entries = self._journal.find([record.key for record in records])
        new: list[_Item] = []
        known: list[_Item] = []
        unfit: list[Entry] = []
        for record in records:
            entry = entries.get(record.key)
            if (entry is not None and entry.id in self._seen) or record.key in self._new:
                continue  # a scan may return a key twice
            count += 1
            item = _Item(record, fingerprint(record), entry, entry.id if entry else 0)
            if entry is not None:
                self._seen.add(entry.id)
            if why := why_unfit(record, self._target):
                self._passed.left_out.add(f"{printable(record.key)} {why}")
                if (
                    entry is None or entry.state is not State.OURS
                ):  # otherwise its earlier version is deleted with the key
                    unfit.append(item.to_entry(State.UNFIT))
            elif entry is None:
                self._new.add(record.key)
                new.append(item)
            elif self._ownership.must_check(entry, item.written):
                known.append(item)
        if unfit:
            self._record_unfit(unfit)
        return new, known, count

    def _record_unfit(self, unfit: list[Entry]) -> None:
        batch, ids = self._journal.begin(unfit)
        self._journal.end(batch)
        for number in ids:
            self._seen.add(number)

    def _is_expired(self, item: _Item, now_ms: int) -> bool:
        """Whether it has expired by the clock of the target. Keys of the journal are checked again at the end."""
        if not item.record.is_expired(now_ms):
            return False
        self._passed.expired += 1
        self._new.discard(item.record.key)
        self._seen.discard(item.id)
        return True

    async def _add(self, items: list[_Item]) -> None:
        """Write keys that are not in the journal, if they do not exist at the target.

        Existing keys are searched for first, not only detected by the write: after a kill in between, an equal key that
        was there before could not be distinguished from one that this copy wrote.
        """
        if not items:
            return
        present = await self._find_present([item.record.key for item in items])
        batch, ids = self._journal.begin(
            item.to_entry(State.IN_THE_WAY if item.record.key in present else State.OURS) for item in items
        )
        for item, number in zip(items, ids, strict=True):
            item.id = number
            self._seen.add(number)
            self._new.discard(item.record.key)
        others = await self._writer.add([item.record for item in items if item.record.key not in present])
        present |= {record.key for record in others}
        there = [item for item in items if item.record.key in present]
        self._passed.written += len(items) - len(there)
        # Until they are checked they have no owner: after a kill now they would be checked again.
        self._journal.end(batch, [(item.id, State.IN_THE_WAY) for item in there])
        await self._settle(there)

    async def _find_present(self, keys: list[bytes]) -> set[bytes]:
        """The keys that exist at the target. Usually none does, which one command tells."""
        if await self._target.run([("EXISTS", *keys)]) == [0]:
            return set()
        found = await self._target.run([("EXISTS", key) for key in keys])
        return {key for key, is_present in zip(keys, found, strict=True) if is_present}

    # --- what is at the target -----------------------------------------------------------------------------

    async def _settle(self, items: list[_Item]) -> None:
        """Read the target, decide the owner of each key, and write where allowed; retry keys that changed since.

        Raises Contended if a key changed between read and write each time.
        """
        begun: list[int] = []
        for _ in range(_TRIES):
            if not items:
                for batch in begun:
                    self._journal.end(batch)
                return
            held = await self._at_target.read_by_key([item.record.key for item in items])
            # Only now: otherwise keys that expired since the clock was read would look deleted.
            now_ms = await clock_ms(self._target) if len(held) < len(items) else 0
            due = await self._decide(items, held, now_ms)
            if due:
                batch, _ = self._journal.begin(item.to_entry(held=held.get(item.record.key)) for item in due)
                begun.append(batch)
                for item in due:
                    item.begun = True
            done = await gather_all(self._replace(item.record, held.get(item.record.key)) for item in due)
            self._passed.written += sum(done)
            items = [item for item, written in zip(due, done, strict=True) if not written]
        raise Contended(f"{printable(items[0].record.key)} changed in each of {_TRIES} attempts to write it")

    async def _decide(self, items: list[_Item], held: dict[bytes, Record], now_ms: int) -> list[_Item]:
        """Record the owners of keys at the target; returns those that may be written if they are unchanged."""
        due: list[_Item] = []
        settled: list[Entry] = []
        others: list[tuple[int, State]] = []
        missing: list[int] = []
        for item in items:
            found = held.get(item.record.key)
            there = None if found is None else fingerprint(found)
            state = self._ownership.decide(item.entry, item.written, there, now_ms)
            if state is None:
                due.append(item)
            elif state is State.OURS or state is State.EQUAL:
                if not item.is_recorded(state):
                    settled.append(item.to_entry(state))
            elif state is State.DELETED and item.entry is not None and item.entry.state is not State.DELETED:
                missing.append(item.id)
            else:
                others.append((item.id, state))
        if missing:
            await self._marker.check()  # otherwise everything lost with it would look deleted
            self._missing.extend(missing)
            self._refuse_lost_target(now_ms)
        self._journal.settle(settled)
        self._journal.mark(others)
        return due

    def _refuse_lost_target(self, now_ms: int) -> None:
        """Raise CopyLost if many copied keys are missing at the target: it may have been reset to an older state.

        None of them is recorded as deleted before the pass ends, so that the next run finds as many.
        """
        missing = len(self._missing)
        if self._allow_empty or self._target.guarantees.evicts or missing < LOST_KEYS:
            return
        if self._copied is None:
            self._copied = self._journal.count_lasting(self._earlier_id, now_ms, State.OURS, State.EQUAL)
        if missing * LOST_SHARE > self._copied:
            raise CopyLost(
                f"more than a tenth of the {self._copied:,} keys that were copied into {self._target.url} are missing "
                "there before their deadline: it may have lost them, or was restored from an older backup. Add "
                "--start-over to copy them again, or --allow-empty if they were deleted there on purpose"
            )

    async def _replace(self, record: Record, held: Record | None) -> bool:
        """Write the record if the target is unchanged since it was read."""
        guards: list[Step] = [absent(record.key)] if held is None else [*unchanged_guards(held), ("DEL", record.key)]
        return await _succeeds(self._writer.write_after(guards, record))

    # --- what is gone at the source ------------------------------------------------------------------------

    async def _delete_gone(self) -> None:
        """Delete copied keys that are gone at the source, if they are unchanged at the target.

        Raises SourceEmptied, before anything is deleted.
        """
        if not self._allow_empty:
            await self._refuse_lost_source()
        for entries in self._journal.pages(PAGE, self._seen):
            # A scan may miss a key that was deleted and created again meanwhile.
            there = await self._at_source.read_by_key([entry.key for entry in entries])
            for some in split(list(there.values())):
                await self._copy(some)
            gone = [entry for entry in entries if entry.key not in there]
            await self._delete([entry for entry in gone if entry.state is State.OURS])
            self._journal.forget(entry.id for entry in gone)
            self._journal.flush()

    async def _refuse_lost_source(self) -> None:
        """Raise SourceEmptied if many copied keys are gone at the source: it may have lost its data, and the target
        may be the only copy.
        """
        self._journal.flush()
        now_ms, gone = await clock_ms(self._target), 0
        for entries in self._journal.pages(PAGE, self._seen):
            keys = [entry.key for entry in entries if entry.state is State.OURS and not may_be_missing(entry, now_ms)]
            if keys:
                gone += len(keys) - (await self._source.run([("EXISTS", *keys)]))[0]
        if gone < LOST_KEYS:
            return
        copied = self._journal.count_lasting(self._earlier_id, now_ms, State.OURS)
        if gone * LOST_SHARE > copied:
            raise SourceEmptied(
                f"{gone:,} of the {copied:,} keys that were copied from {self._source.url} are gone there before their "
                f"deadline: it may have lost its data. Nothing was deleted at {self._target.url}; if they were deleted "
                "on purpose, add --allow-empty"
            )

    async def _delete(self, entries: list[Entry]) -> None:
        now_ms = await clock_ms(self._target) if entries else 0
        entries = [entry for entry in entries if entry.uncertain or not may_be_missing(entry, now_ms)]
        for _ in range(_TRIES):
            if not entries:
                return
            if self._lags:
                [deleted] = await self._target.run([("DEL", *(entry.key for entry in entries))])
                self._passed.deleted += deleted
                return
            held = await self._at_target.read_by_key([entry.key for entry in entries])
            ours = [entry for entry in entries if entry.key in held and entry.is_ours(fingerprint(held[entry.key]))]
            done = await gather_all(
                _succeeds(run_guarded(self._target, [*unchanged_guards(held[entry.key]), ("DEL", entry.key)]))
                for entry in ours
            )
            self._passed.deleted += sum(done)
            entries = [entry for entry, deleted in zip(ours, done, strict=True) if not deleted]
        raise Contended(f"{printable(entries[0].key)} changed in each of {_TRIES} attempts to delete it")


def refuse_pair(source: Store, target: Store) -> None:
    """Raise DoesNotFit or SameStore for a pair that cannot be copied, before a file is created."""
    refuse_unlisted(source)
    for store in (source, target):
        Reader(store)
    if source.url == target.url and not source.url.startswith("memory:"):  # each of these is a separate store
        raise SameStore(f"{source.url} is both source and target; name another target")


async def _succeeds(step: Awaitable[object]) -> bool:
    """Whether a guarded step took effect. If the key has changed its kind, it did not."""
    try:
        return bool(await step)
    except WrongKind:
        return False
