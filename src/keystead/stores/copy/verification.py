"""Verify a copy: compare the target with the source."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from keystead.stores.copy.fingerprints import fingerprint
from keystead.stores.copy.journal import Entry, Journal, State
from keystead.stores.store_contract import Store
from keystead.stores.transfer.comparison import Compared, difference
from keystead.stores.transfer.reader import PAGE, Reader, clock_ms, run_overlapped
from keystead.stores.transfer.records import Record
from keystead.stores.transfer.transfer_progress import OnProgress, TransferProgress, ignore
from keystead.stores.transfer.writer import BATCHES, gather_all

_TRIES: Final = 3  # a key that differs is read again before it counts


@dataclass(slots=True)
class Verified:
    """The comparison of all keys that were copied or found equal.

    `changed_since`: changed at the source after they were copied. `deleted_since`: deleted there after that and still
    at the target; the next run deletes them. `changed_there`: changed at the target, in a migration, where the
    application's changes win.
    """

    compared: Compared = field(default_factory=Compared)
    changed_since: int = 0
    deleted_since: int = 0
    changed_there: int = 0

    def explain(self, entry: Entry, record: Record | None, held: Record | None) -> bool:
        """Count a key that is equal, or differs because the source has changed since. False: another difference."""
        if record is held is None or (record is not None and difference(record, held) == "equal"):
            self.compared.keys += 1
            self.compared.equal += 1
        elif record is None and entry.state is State.OURS:
            self.deleted_since += 1
        elif record is None or fingerprint(record) != entry.written:
            self.changed_since += 1
        else:
            return False
        return True

    def forgive(self) -> None:
        """In a migration, count differences at the target as changes by the application there."""
        compared = self.compared
        self.changed_there = compared.differences
        self.compared = Compared(
            keys=compared.keys - compared.differences, equal=compared.equal, expired=compared.expired
        )

    def as_json(self) -> dict[str, Any]:
        data = asdict(self)
        del data["compared"]
        return {**self.compared.as_json(), **data}


async def verify(source: Store, target: Store, journal: Journal, *, on_progress: OnProgress = ignore) -> Verified:
    """Read every copied key from both stores, and compare kind, value and deadline. Writes nothing.

    Both stores are in use. If the source is unchanged since the copy and the target is not, it is a difference.
    """
    verified = Verified()
    at_source, at_target = Reader(source), Reader(target)
    counts = journal.counts()
    total = counts[State.OURS] + counts[State.EQUAL]

    async def steps() -> AsyncIterator[Coroutine[Any, Any, None]]:
        for page in journal.pages(PAGE):
            some = [entry for entry in page if entry.state in (State.OURS, State.EQUAL)]
            while some:
                size = min(at_source.page, at_target.page)
                yield _compare(verified, some[:size], at_source, at_target, target)
                some = some[size:]

    async with aclosing(run_overlapped(steps(), BATCHES)) as done:
        async for _ in done:
            count = verified.compared.keys + verified.changed_since + verified.deleted_since
            on_progress(TransferProgress("comparing", count, total))
    return verified


async def _compare(
    verified: Verified, entries: list[Entry], at_source: Reader, at_target: Reader, target: Store
) -> None:
    for tries_left in reversed(range(_TRIES)):
        keys = [entry.key for entry in entries]
        here, there = await gather_all([at_source.read_by_key(keys), at_target.read_by_key(keys)])
        now_ms = await clock_ms(target)  # after the read: keys that have expired by then count as expired
        different = [one for one in entries if not verified.explain(one, here.get(one.key), there.get(one.key))]
        if not tries_left:
            for one in different:
                verified.compared.add(here[one.key], there.get(one.key), now_ms)
        entries = different
        if not entries:
            return
