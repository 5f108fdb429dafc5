"""One pass over a store: what is new or changed there goes into the other one, and deletions propagate.

Who may interleave: the application that still writes to the source, and, in a move, the same application that already
writes to the target. The first is met by the next pass. The second has the last word: each write and each delete at the
target is one atomic step with a guard, that the key is absent, or that it is exactly as it was read and found to be
this copy's own work.
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Awaitable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

from keystead.errors import Contended, WrongKind, shown
from keystead.stores.copy.fingerprints import fingerprint, unchanged
from keystead.stores.copy.journal import Entry, Journal, SeenIds, State
from keystead.stores.copy.marker import MARKER_PREFIX, Marker
from keystead.stores.copy.ownership import Ownership, may_be_missing
from keystead.stores.store_contract import Step, Store, absent
from keystead.stores.transfer.reader import PAGE, Reader, clock_ms, count_keys, overlapped, refuse_unlisted
from keystead.stores.transfer.records import LeftOut, Record
from keystead.stores.transfer.transfer_errors import CopyLost, SameStore, SourceEmptied
from keystead.stores.transfer.transfer_progress import OnProgress, TransferProgress, ignore
from keystead.stores.transfer.writer import BATCHES, Writer, gather_all, split, why_unfit

_TRIES: Final = 10
LOST_KEYS: Final = 100  # so many keys at once,
LOST_SHARE: Final = 10  # and more than one of so many: they were rather lost with a store than deleted one by one


@dataclass(slots=True)
class Passed:
    """What one pass did. `keys` were met at the source; of these `written` were written to the target.

    `deleted` keys were gone at the source, and were deleted at the target. `expired` ones had reached their deadline
    by the clock of the target.
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
    """A key that is to be written. `entry` is what the journal said when it was read; once the write was `begun`, the
    journal says something else. `id` is that of the entry, once there is one.
    """

    record: Record
    written: bytes
    entry: Entry | None = None
    id: int = 0
    begun: bool = False

    def is_recorded(self, state: State) -> bool:
        """Whether the journal says already that the key is as at the source, and whose it is."""
        if self.entry is None or self.begun or self.entry.uncertain:
            return False
        return self.entry.state is state and self.entry.written == self.written

    def to_entry(self, state: State = State.OURS, held: Record | None = None) -> Entry:
        """The entry to record; `held` is what is about to be replaced."""
        entry = Entry(self.id, self.record.key, state, self.written, self.record.expires_at_ms)
        if held is None:
            return entry
        before = fingerprint(held)
        is_ours = self.entry is not None and self.entry.is_ours(before)
        return entry._replace(before=before, before_ends_at_ms=held.expires_at_ms, before_is_ours=is_ours)


class Copier:
    """Passes from one store into another, with one journal."""

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
        """Raises DoesNotFit where one of the two has no atomic step."""
        self._source = source
        self._target = target
        self._journal = journal
        self._match = match
        self._allow_empty = allow_empty
        self._ownership = Ownership(overwrite, journal.earlier_id)
        self._at_source = Reader(source)
        self._at_target = Reader(target)
        self._writer = Writer(target)
        self._marker = Marker(source, target, journal)
        self._start_pass()

    def _start_pass(self) -> None:
        self._passed = Passed()
        self._at_source.left_out = self._passed.left_out
        self._seen = SeenIds()
        self._new: set[bytes] = set()  # keys that are being written, and are not in the journal yet
        self._missing = array("q")  # entries of keys that were deleted at the target
        self._earlier_id = self._journal.last_id  # the last entry of all passes before this one
        self._copied: int | None = None  # how many keys earlier passes brought, once it was counted

    async def begin(self, *, start_over: bool = False) -> None:
        """Before the first pass. Raises SameStore, CopyLost where the target lost what it was given before, and
        NoProgress where an earlier copy has brought keys that this journal does not know.
        """
        await self._marker.put(self._journal, start_over=start_over)

    async def end(self) -> None:
        """Where nothing was copied, nothing of this copy's own stays at the target."""
        await self._marker.remove()

    # --- a pass --------------------------------------------------------------------------------------------

    async def run_pass(self, on_progress: OnProgress = ignore) -> Passed:
        """Every key that matches, once. Whatever ends it early, the journal says what was done."""
        await self._marker.check()
        total = await count_keys(self._source, self._match)
        self._start_pass()
        try:
            async with (
                aclosing(self._at_source.read_all(self._match, without=MARKER_PREFIX)) as pages,
                aclosing(overlapped(self._steps(pages), BATCHES)) as steps,
            ):
                async for _ in steps:
                    on_progress(TransferProgress("copying", self._passed.keys, total))
            await self._delete_gone()
            self._journal.mark((number, State.DELETED) for number in self._missing)
        finally:
            self._journal.flush()
        # All earlier keys were checked; and from here on the target has the last word.
        self._ownership = Ownership(overwrite=False, earlier_id=0)
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
        """Those that are to be written: keys that are not in the journal, and keys that are not as recorded; and how
        many keys were seen for the first time.
        """
        count = 0
        entries = self._journal.find([record.key for record in records])
        new: list[_Item] = []
        known: list[_Item] = []
        unfit: list[Entry] = []
        for record in records:
            entry = entries.get(record.key)
            if (entry is not None and entry.id in self._seen) or record.key in self._new:
                continue  # a store may name a key twice while it is scanned
            count += 1
            item = _Item(record, fingerprint(record), entry, entry.id if entry else 0)
            if entry is not None:
                self._seen.add(entry.id)
            if why := why_unfit(record, self._target):
                self._passed.left_out.add(f"{shown(record.key)} {why}")
                if entry is None or entry.state is not State.OURS:  # else an earlier state of it goes when the key goes
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
        """By the clock of the target. A key of the journal is looked at again in the end."""
        if not item.record.is_expired(now_ms):
            return False
        self._passed.expired += 1
        self._new.discard(item.record.key)
        self._seen.discard(item.id)
        return True

    async def _add(self, items: list[_Item]) -> None:
        """Keys that are not in the journal: written where there are none of their names.

        What is there already is looked for first, and not only met while writing: after a kill in between, a key that
        was there all the time, the same, could not be told from one that this copy wrote.
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
        # While they are checked they are nobody's work: were this killed now, they would be checked again.
        self._journal.end(batch, [(item.id, State.IN_THE_WAY) for item in there])
        await self._settle(there)

    async def _find_present(self, keys: list[bytes]) -> set[bytes]:
        """Those of the keys that the target holds. Mostly it holds none of them, and one command says so."""
        if await self._target.run([("EXISTS", *keys)]) == [0]:
            return set()
        found = await self._target.run([("EXISTS", key) for key in keys])
        return {key for key, is_present in zip(keys, found, strict=True) if is_present}

    # --- what is at the target -----------------------------------------------------------------------------

    async def _settle(self, items: list[_Item]) -> None:
        """Read what is at the target, decide whose it is, and write what may be written: again, where it changed since.

        Raises Contended where a key changed each time between the read and the write.
        """
        begun: list[int] = []
        for _ in range(_TRIES):
            if not items:
                for batch in begun:
                    self._journal.end(batch)
                return
            held = await self._at_target.read_by_key([item.record.key for item in items])
            # Only now, or what expired since the clock was read would look as if it were deleted.
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
        raise Contended(f"{shown(items[0].record.key)} changed each of the {_TRIES} times that it was to be written")

    async def _decide(self, items: list[_Item], held: dict[bytes, Record], now_ms: int) -> list[_Item]:
        """Record whose the keys at the target are; returns those that may be written, if they are still as read."""
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
            await self._marker.check()  # or all that was lost with it would look as if it were deleted
            self._missing.extend(missing)
            self._refuse_lost_target(now_ms)
        self._journal.settle(settled)
        self._journal.mark(others)
        return due

    def _refuse_lost_target(self, now_ms: int) -> None:
        """A target without many of the keys that were copied may be an older state of itself. Raises CopyLost.

        None of them is recorded as deleted before the pass is over, so that the next run finds as many.
        """
        missing = len(self._missing)
        if self._allow_empty or self._target.guarantees.evicts or missing < LOST_KEYS:
            return
        if self._copied is None:
            self._copied = self._journal.count_lasting(self._earlier_id, now_ms, State.OURS, State.EQUAL)
        if missing * LOST_SHARE > self._copied:
            raise CopyLost(
                f"more than a tenth of the {self._copied:,} keys that were copied into {self._target.url} are missing "
                "there, and had not expired: it may have lost them, or be restored from an older backup. Add "
                "--start-over to copy them again, or --allow-empty if they were deleted there on purpose"
            )

    async def _replace(self, record: Record, held: Record | None) -> bool:
        """Write the record if the target is still as it was read."""
        guards: list[Step] = [absent(record.key)] if held is None else [*unchanged(held), ("DEL", record.key)]
        return await _succeeds(self._writer.write_after(guards, record))

    # --- what is gone at the source ------------------------------------------------------------------------

    async def _delete_gone(self) -> None:
        """Keys that a copy wrote and that are gone at the source: deleted at the target, if they are as written.

        Raises SourceEmptied, before anything is deleted.
        """
        if not self._allow_empty:
            await self._refuse_lost_source()
        for entries in self._journal.pages(PAGE, self._seen):
            # A scan need not name a key that was deleted and made again meanwhile.
            there = await self._at_source.read_by_key([entry.key for entry in entries])
            for some in split(list(there.values())):
                await self._copy(some)
            gone = [entry for entry in entries if entry.key not in there]
            await self._delete([entry for entry in gone if entry.state is State.OURS])
            self._journal.forget(entry.id for entry in gone)
            self._journal.flush()

    async def _refuse_lost_source(self) -> None:
        """A source without many of the keys that were copied from it may have lost its data, and what is at the target
        is all that is left. Raises SourceEmptied.
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
                f"{gone:,} of the {copied:,} keys that were copied from {self._source.url} are gone there, and had not "
                f"expired: it may have lost its data. Nothing was deleted at {self._target.url}; if they were deleted "
                "on purpose, add --allow-empty"
            )

    async def _delete(self, entries: list[Entry]) -> None:
        now_ms = await clock_ms(self._target) if entries else 0
        entries = [entry for entry in entries if entry.uncertain or not may_be_missing(entry, now_ms)]
        for _ in range(_TRIES):
            if not entries:
                return
            held = await self._at_target.read_by_key([entry.key for entry in entries])
            ours = [entry for entry in entries if entry.key in held and entry.is_ours(fingerprint(held[entry.key]))]
            done = await gather_all(
                _succeeds(self._target.atomically([*unchanged(held[entry.key]), ("DEL", entry.key)])) for entry in ours
            )
            self._passed.deleted += sum(done)
            entries = [entry for entry, deleted in zip(ours, done, strict=True) if not deleted]
        raise Contended(f"{shown(entries[0].key)} changed each of the {_TRIES} times that it was to be deleted")


def refuse_pair(source: Store, target: Store) -> None:
    """Raises DoesNotFit or SameStore where these two cannot be copied, before a file is made."""
    refuse_unlisted(source)
    for store in (source, target):
        Reader(store)
    if source.url == target.url and not source.url.startswith("memory:"):  # each of these is a store of its own
        raise SameStore(f"{source.url} is where the keys are; name another store to copy them into")


async def _succeeds(step: Awaitable[object]) -> bool:
    """Whether a guarded step took effect. Where the key has changed its kind, it did not."""
    try:
        return bool(await step)
    except WrongKind:
        return False
