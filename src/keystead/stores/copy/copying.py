"""One pass over a store: what is new or changed there goes into the other one, and deletions propagate.

Who may interleave: the application that still writes to the source, and, in a move, the same application that already
writes to the target. The first is met by the next pass. The second has the last word: each write and each delete at the
target is one atomic step with a guard, that the key is absent, or that it is exactly as it was when it was read and
found to be this copy's own work.
"""

from __future__ import annotations

from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from keystead.errors import Contended, StoreError, WrongKind, shown
from keystead.stores.backup.reading import PAGE, Reading, overlapped, refuse_unlisted
from keystead.stores.backup.records import LeftOut, Record
from keystead.stores.backup.writing import BATCHES, Writing, all_of, batches, clock_ms, is_over, unfit
from keystead.stores.copy.errors import CopyLost, SameStore, SourceEmptied
from keystead.stores.copy.fingerprints import as_read, fingerprint
from keystead.stores.copy.judging import Judge, may_be_missing
from keystead.stores.copy.marker import PREFIX, Marker
from keystead.stores.copy.notes import Intent, Note, Notes, SeenIds, State
from keystead.stores.store_contract import Step, Store, absent

_TRIES: Final = 10
LOST_KEYS: Final = 100  # so many keys at once,
LOST_SHARE: Final = 10  # and more than one of so many: they were rather lost with a store than deleted one by one


class CopyProgress(NamedTuple):
    """How far a pass is: `done` keys of about `total`, of which `written` were written."""

    done: int
    total: int | None
    written: int


@dataclass(slots=True)
class Passed:
    """What one pass did. `keys` were met at the source; of these `written` were written to the target.

    `deleted` keys were gone at the source, and were deleted at the target. `expired` ones had reached their deadline
    by the clock of the target. `kept` ones were gone at the source, and stay: somebody changed them at the target.
    """

    keys: int = 0
    written: int = 0
    deleted: int = 0
    expired: int = 0
    kept: int = 0
    left_out: LeftOut = field(default_factory=LeftOut)

    @property
    def changes(self) -> int:
        return self.written + self.deleted


@dataclass(slots=True)
class _Item:
    """A key that is to be written. `id` is that of its note, once it has one. `note` is what that said when it was
    read; once the write was `begun`, it says something else.
    """

    record: Record
    written: bytes
    note: Note | None = None
    id: int | None = None
    begun: bool = False

    def is_noted(self, state: State) -> bool:
        """Whether the note says already that the key is as at the source, and whose it is."""
        if self.note is None or self.begun or self.note.uncertain:
            return False
        return self.note.state is state and self.note.written == self.written

    def intent(self, held: Record | None = None, state: State = State.OURS) -> Intent:
        key, _, ends_at_ms, _ = self.record
        if held is None:
            return Intent(self.id, key, self.written, ends_at_ms, state=state)
        before = fingerprint(held)
        is_ours = self.note is not None and self.note.is_ours(before)
        return Intent(self.id, key, self.written, ends_at_ms, before, held.expires_at_ms, is_ours, state)


class Copying:
    """Passes from one store into another, with the notes of one progress file."""

    def __init__(
        self,
        source: Store,
        target: Store,
        notes: Notes,
        *,
        match: str = "*",
        overwrite: bool = False,
        allow_empty: bool = False,
    ) -> None:
        """Raises DoesNotFit where the source cannot list its keys, or where one of the two has no atomic step."""
        refuse_unlisted(source)
        self._source = source
        self._target = target
        self._notes = notes
        self._match = match
        self._allow_empty = allow_empty
        self._judge = Judge(overwrite, notes.earlier_id)
        self._at_source = Reading(source)
        self._at_target = Reading(target)
        self._writing = Writing(target)
        self._marker = Marker(source, target, notes)

    async def begin(self, *, start_over: bool = False) -> None:
        """Before the first pass. Raises SameStore, CopyLost where the target forgot what it was given before, and
        NoProgress where an earlier copy has brought keys of which these notes do not know.
        """
        await self._marker.put(start_over=start_over)
        try:
            await self._marker.refuse_same_store()
        except BaseException:
            if self._notes.is_empty:
                with suppress(StoreError):
                    await self._marker.remove()
            raise

    async def end(self) -> None:
        """Where nothing was copied, nothing of this copy's own stays at the target."""
        await self._marker.remove()

    # --- a pass --------------------------------------------------------------------------------------------

    async def run(self, on_progress: Callable[[CopyProgress], None] | None = None) -> Passed:
        """Every key that matches, once. Whatever ends it early, the notes say what was done."""
        await self._marker.check()
        total = await count_keys(self._source, self._match)
        one = _Pass(Passed(left_out=LeftOut()), SeenIds(), self._notes.last_id)
        self._at_source.left_out = one.passed.left_out
        try:
            async with (
                aclosing(self._at_source.ahead(pages_of(self._source, self._match))) as read,
                aclosing(overlapped(self._copies(read, one), BATCHES)) as copies,
            ):
                async for _ in copies:
                    if on_progress is not None:
                        on_progress(CopyProgress(one.passed.keys, total, one.passed.written))
            await self._delete_gone(one)
            self._notes.mark((number, State.DELETED) for number in one.missing)
        finally:
            self._notes.flush()
        # All earlier keys were looked at; and from here on the target has the last word.
        self._judge = Judge(overwrite=False, earlier_id=0)
        return one.passed

    async def _copies(self, read: AsyncIterator[list[Record]], one: _Pass) -> AsyncIterator[Coroutine[Any, Any, None]]:
        async for records in read:
            for some in batches(records):
                yield self._copy(some, one)

    async def _copy(self, records: list[Record], one: _Pass) -> None:
        new, known, met = self._due(records, one)
        if new or known:
            now_ms = await clock_ms(self._target)
            new = [item for item in new if not self._is_over(item, now_ms, one)]
            known = [item for item in known if not self._is_over(item, now_ms, one)]
            await self._add(new, one)
            await self._settle(known, one)
        one.passed.keys += met

    def _due(self, records: list[Record], one: _Pass) -> tuple[list[_Item], list[_Item], int]:
        """Those that are to be written: keys of which there is no note, and keys that are not as noted; and how many
        keys were met for the first time.
        """
        met = 0
        notes = self._notes.of([record.key for record in records])
        new: list[_Item] = []
        known: list[_Item] = []
        unfits: list[Intent] = []
        for record in records:
            note = notes.get(record.key)
            if (note is not None and note.id in one.seen) or record.key in one.new:
                continue  # a store may tell a key twice while it is scanned
            met += 1
            written = fingerprint(record)
            if why := unfit(record, self._target):
                one.passed.left_out.add(f"{shown(record.key)} {why}")
                if note is not None and note.state is State.OURS:
                    one.seen.add(note.id)  # an earlier state of it is there, which goes when the key goes
                    continue
                unfits.append(Intent(note and note.id, record.key, written, record.expires_at_ms, state=State.UNFIT))
            elif note is None:
                one.new.add(record.key)
                new.append(_Item(record, written))
            else:
                one.seen.add(note.id)
                if self._judge.is_due(note, written):
                    known.append(_Item(record, written, note, note.id))
        if unfits:
            batch, ids = self._notes.begin(unfits)
            self._notes.end(batch)
            for number in ids:
                one.seen.add(number)
        return new, known, met

    def _is_over(self, item: _Item, now_ms: int, one: _Pass) -> bool:
        """Whether its deadline is over by the clock of the target. What was noted is looked at again in the end."""
        over = is_over(item.record, now_ms)
        if over:
            one.passed.expired += 1
            one.new.discard(item.record.key)
            if item.id is not None:
                one.seen.discard(item.id)
        return over

    async def _add(self, items: list[_Item], one: _Pass) -> None:
        """Keys of which nothing is noted: written where there are none of their names.

        What is there already is looked for first, and not only met while writing: after a kill in between, a key that
        was there all the time, the same, could not be told from one that this copy wrote.
        """
        if not items:
            return
        met = await self._there([item.record.key for item in items])
        batch, ids = self._notes.begin(
            item.intent(state=State.IN_THE_WAY if item.record.key in met else State.OURS) for item in items
        )
        for item, number in zip(items, ids, strict=True):
            item.id = number
            one.seen.add(number)
            one.new.discard(item.record.key)
        absent_ones = [item.record for item in items if item.record.key not in met]
        met |= {record.key for record in await self._writing.add(absent_ones)}
        there = [item for item in items if item.record.key in met]
        one.passed.written += len(items) - len(there)
        # While they are looked at they are nobody's work: were this killed now, they would be looked at again.
        self._notes.end(batch, [(item.id, State.IN_THE_WAY) for item in there if item.id is not None])
        await self._settle(there, one)

    # --- what is at the target -----------------------------------------------------------------------------

    async def _there(self, keys: list[bytes]) -> set[bytes]:
        """Those of the keys that the target holds. Mostly it holds none of them, and one command says so."""
        if await self._target.run([("EXISTS", *keys)]) == [0]:
            return set()
        found = await self._target.run([("EXISTS", key) for key in keys])
        return {key for key, is_there in zip(keys, found, strict=True) if is_there}

    async def _settle(self, items: list[_Item], one: _Pass) -> None:
        """Look what is at the target, judge whose it is, and write what may be written: again, where it changed since.

        Raises Contended where a key changed each time between the look and the step.
        """
        begun: list[int] = []
        for _ in range(_TRIES):
            if not items:
                for batch in begun:
                    self._notes.end(batch)
                return
            held = {record.key: record for record in await self._at_target.records([item.record.key for item in items])}
            # Only now, or what expired since the clock was read would look as if it were deleted.
            now_ms = await clock_ms(self._target) if len(held) < len(items) else 0
            writes = await self._judged(items, held, now_ms, one)
            if writes:
                batch, _ = self._notes.begin(item.intent(held.get(item.record.key)) for item in writes)
                begun.append(batch)
                for item in writes:
                    item.begun = True
            items = await self._write(writes, held, one)
        raise Contended(f"{shown(items[0].record.key)} changed each of the {_TRIES} times that it was to be written")

    async def _judged(self, items: list[_Item], held: dict[bytes, Record], now_ms: int, one: _Pass) -> list[_Item]:
        """Note whose the keys at the target are; returns those that may be written, if they are still as was read."""
        writes: list[_Item] = []
        settled: list[Intent] = []
        others: list[tuple[int, State]] = []
        missing: list[int] = []
        for item in items:
            found = held.get(item.record.key)
            there = None if found is None else fingerprint(found)
            state = self._judge.verdict(item.note, item.written, there, now_ms)
            if state is None:
                writes.append(item)
            elif state is State.OURS or state is State.EQUAL:
                if not item.is_noted(state):
                    settled.append(item.intent(state=state))
            elif state is State.DELETED and item.note is not None and item.note.state is not State.DELETED:
                missing.append(_id(item))
            else:
                others.append((_id(item), state))
        if missing:
            await self._marker.check()  # or all that was lost with it would look as if it were deleted
            one.missing.extend(missing)
            self._refuse_loss_there(one, now_ms)
        self._notes.settle(settled)
        self._notes.mark(others)
        return writes

    def _refuse_loss_there(self, one: _Pass, now_ms: int) -> None:
        """A target without many of the keys that were copied may be an older state of itself. Raises CopyLost.

        None of them is noted as deleted before the pass is over, so that the next run finds as many.
        """
        missing = len(one.missing)
        if self._allow_empty or self._target.guarantees.evicts or missing < LOST_KEYS:
            return
        if one.copied is None:
            one.copied = self._notes.count_lasting(one.earlier_id, now_ms, State.OURS, State.EQUAL)
        if missing * LOST_SHARE > one.copied:
            raise CopyLost(
                f"more than a tenth of the {one.copied:,} keys that were copied into {self._target.url} are missing "
                "there, and had not expired: it may have lost them, or be restored from an older backup. Add "
                "--start-over to copy them again, or --allow-empty if they were deleted there on purpose"
            )

    async def _write(self, items: list[_Item], held: dict[bytes, Record], one: _Pass) -> list[_Item]:
        """Write each where the target is still as it was read; returns those where it is not."""
        done = await all_of(self._replace(item.record, held.get(item.record.key)) for item in items)
        one.passed.written += sum(done)
        return [item for item, written in zip(items, done, strict=True) if not written]

    async def _replace(self, record: Record, held: Record | None) -> bool:
        guards: list[Step] = [absent(record.key)] if held is None else [*as_read(held), ("DEL", record.key)]
        return await _holds(self._writing.step(record, guards))

    # --- what is gone at the source ------------------------------------------------------------------------

    async def _delete_gone(self, one: _Pass) -> None:
        """Keys that a copy wrote and that are gone at the source: deleted at the target, if they are as written.

        Raises SourceEmptied, before anything is deleted.
        """
        if not self._allow_empty:
            await self._refuse_loss(one)
        for notes in self._notes.unseen(one.seen, PAGE):
            unseen = {note.key: note for note in notes}
            # A scan need not tell a key that was deleted and made again meanwhile.
            there = await self._at_source.records(list(unseen))
            for some in batches(there):
                await self._copy(some, one)
            gone = [note for note in unseen.values() if note.key not in {record.key for record in there}]
            await self._delete([note for note in gone if note.state is State.OURS], one)
            self._notes.forget(note.id for note in gone)
            self._notes.flush()

    async def _refuse_loss(self, one: _Pass) -> None:
        """A source without many of the keys that were copied from it may have lost its data, or a part, and what is at
        the target is all that is left. Raises SourceEmptied.
        """
        self._notes.flush()
        now_ms, gone = await clock_ms(self._target), 0
        for notes in self._notes.unseen(one.seen, PAGE):
            keys = [note.key for note in notes if note.state is State.OURS and not may_be_missing(note, now_ms)]
            if keys:
                gone += len(keys) - (await self._source.run([("EXISTS", *keys)]))[0]
        if gone < LOST_KEYS:
            return
        copied = self._notes.count_lasting(one.earlier_id, now_ms, State.OURS)
        if gone * LOST_SHARE > copied:
            raise SourceEmptied(
                f"{gone:,} of the {copied:,} keys that were copied from {self._source.url} are gone there, and had not "
                f"expired: it may have lost its data. Nothing was deleted at {self._target.url}; if they were deleted "
                "on purpose, add --allow-empty"
            )

    async def _delete(self, notes: list[Note], one: _Pass) -> None:
        now_ms = await clock_ms(self._target) if notes else 0
        notes = [note for note in notes if note.uncertain or not may_be_missing(note, now_ms)]
        for _ in range(_TRIES):
            if not notes:
                return
            held = {record.key: record for record in await self._at_target.records([note.key for note in notes])}
            ours: list[tuple[Note, Record]] = []
            for note in notes:
                if (found := held.get(note.key)) is None:
                    continue
                if note.is_ours(fingerprint(found)):
                    ours.append((note, found))
                else:
                    one.passed.kept += 1
            done = await all_of(
                _holds(self._target.atomically([*as_read(found), ("DEL", found.key)])) for _, found in ours
            )
            one.passed.deleted += sum(done)
            notes = [note for (note, _), deleted in zip(ours, done, strict=True) if not deleted]
        raise Contended(f"{shown(notes[0].key)} changed each of the {_TRIES} times that it was to be deleted")


def refuse_pair(source: Store, target: Store) -> None:
    """Raises DoesNotFit or SameStore where it is known that these two do not go together, before a file is made."""
    refuse_unlisted(source)
    for store in (source, target):
        Reading(store)
    if source.url == target.url and not source.url.startswith("memory:"):  # each of these is a store of its own
        raise SameStore(f"{source.url} is where the keys are; name another store to copy them into")


async def pages_of(source: Store, match: str) -> AsyncIterator[list[bytes]]:
    """The keys that are to be copied: all but those of copies."""
    async for page in source.scan(match, page=PAGE):
        yield [key for key in page if not key.startswith(PREFIX)]


async def count_keys(store: Store, match: str = "*") -> int | None:
    """How many keys of a store match; None where it cannot be told beforehand: only all of them are counted, and by a
    store that can list its keys."""
    if match != "*" or not store.guarantees.scans:
        return None
    [count] = await store.run([("DBSIZE",)])
    return int(count)


@dataclass(slots=True)
class _Pass:
    passed: Passed
    seen: SeenIds
    earlier_id: int  # the last note of all passes before this one
    missing: array[int] = field(default_factory=lambda: array("q"))  # notes of keys that were deleted at the target
    copied: int | None = None  # how many keys earlier passes brought, once it was counted
    new: set[bytes] = field(default_factory=set)  # that are being written, and have no note yet


def _id(item: _Item) -> int:
    if item.id is None:
        raise AssertionError("what is looked at has a note")
    return item.id


async def _holds(step: Awaitable[object]) -> bool:
    """Whether a guarded step took effect. Where the key is of another kind by now, it did not."""
    try:
        return bool(await step)
    except WrongKind:
        return False
