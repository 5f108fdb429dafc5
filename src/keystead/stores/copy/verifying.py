"""Whether the target holds what the source does, after a copy."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, Final

from keystead.stores.backup.comparing import Compared
from keystead.stores.backup.reading import PAGE, Reading, overlapped
from keystead.stores.backup.records import Record
from keystead.stores.backup.writing import BATCHES, all_of, clock_ms
from keystead.stores.copy.copying import CopyProgress
from keystead.stores.copy.fingerprints import fingerprint
from keystead.stores.copy.notes import Note, Notes, State
from keystead.stores.store_contract import Store

_LOOKS: Final = 3  # at a key that differs, before it is said to


@dataclass(slots=True)
class Verified:
    """All keys that were copied, or found to be the same, beside each other.

    `changed_since` ones changed at the source after they were copied, so the copy is of before. `deleted_since` ones
    were deleted there after that, and are still at the target: the next run deletes them. `changed_there` ones were
    changed at the target, in a move: its application has the last word.
    """

    compared: Compared = field(default_factory=Compared)
    changed_since: int = 0
    deleted_since: int = 0
    changed_there: int = 0

    @property
    def looked_at(self) -> int:
        return self.compared.keys + self.changed_since + self.deleted_since

    def forgive(self) -> None:
        """In a move, what is another one at the target was changed there by the application that has moved."""
        compared = self.compared
        self.changed_there = compared.differences
        self.compared = Compared(
            keys=compared.keys - compared.differences, equal=compared.equal, expired=compared.expired
        )

    def as_json(self) -> dict[str, Any]:
        return {
            **self.compared.as_json(),
            "changed_since": self.changed_since,
            "deleted_since": self.deleted_since,
            "changed_there": self.changed_there,
        }


async def verify(
    source: Store, target: Store, notes: Notes, *, on_progress: Callable[[CopyProgress], None] | None = None
) -> Verified:
    """Read every key that was copied from both stores, and compare kind, value and deadline. Writes nothing.

    A key that differs is read again before it is judged: both stores are in use. Where the source is still as it was
    copied and the target is not, it is a difference.
    """
    verified = Verified()
    at_source, at_target = Reading(source), Reading(target)
    counts = notes.counts()
    total = counts[State.OURS] + counts[State.EQUAL]

    async def looks() -> AsyncIterator[Coroutine[Any, Any, None]]:
        for page in notes.pages(PAGE):
            some = [note for note in page if note.state in (State.OURS, State.EQUAL)]
            while some:
                size = min(at_source.page, at_target.page)
                yield _compare(at_source, at_target, target, some[:size], verified)
                some = some[size:]

    async with aclosing(overlapped(looks(), BATCHES)) as done:
        async for _ in done:
            if on_progress is not None:
                on_progress(CopyProgress(verified.looked_at, total, 0))
    return verified


async def _compare(
    at_source: Reading, at_target: Reading, target: Store, notes: list[Note], verified: Verified
) -> None:
    for look in range(_LOOKS):
        keys = [note.key for note in notes]
        here, there = ({record.key: record for record in some} for some in await _both(at_source, at_target, keys))
        now_ms = await clock_ms(target)  # after the look, so that what has expired by then counts as that
        again: list[Note] = []
        for note in notes:
            record, held = here.get(note.key), there.get(note.key)
            if _same(record, held):
                verified.compared.keys += 1
                verified.compared.equal += 1
            elif record is None and note.state is State.OURS:
                verified.deleted_since += 1
            elif record is None or fingerprint(record) != note.written:
                verified.changed_since += 1
            elif look + 1 < _LOOKS:
                again.append(note)
            else:
                verified.compared.add(record, held, now_ms)
        notes = again
        if not notes:
            return


async def _both(at_source: Reading, at_target: Reading, keys: list[bytes]) -> list[list[Record]]:
    return await all_of((at_source.records(keys), at_target.records(keys)))


def _same(record: Record | None, held: Record | None) -> bool:
    if record is None or held is None:
        return record is held
    # Most are told in the same order by both stores, and then need no digest.
    return record == held or fingerprint(record) == fingerprint(held)
