"""What a copy would do, before it is begun."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from keystead.errors import shown
from keystead.stores.backup.reading import PAGE, Reading
from keystead.stores.backup.records import LeftOut, Record
from keystead.stores.backup.seen import Seen
from keystead.stores.backup.writing import clock_ms, unfit
from keystead.stores.copy.copying import CopyProgress, count_keys, pages_of, refuse_pair
from keystead.stores.copy.fingerprints import fingerprint
from keystead.stores.copy.judging import Judge
from keystead.stores.copy.marker import Marker
from keystead.stores.copy.notes import Note, Notes, State, progress_path
from keystead.stores.store_contract import Store

_EXAMPLES: Final = 10


@dataclass(slots=True)
class Surveyed:
    """What a copy would meet: keys that are new to the target, there and equal, in the way, or that do not fit it.

    Of keys that an earlier run copied: `changed` at the source since and to be written again, `gone` there and to be
    deleted at the target; and `changed_there` or `deleted_there`, at the target, where they stay so.
    """

    keys: int = 0
    new: int = 0
    equal: int = 0
    changed: int = 0
    gone: int = 0
    in_the_way: int = 0
    changed_there: int = 0
    deleted_there: int = 0
    left_out: LeftOut = field(default_factory=LeftOut)
    examples: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "left_out": self.left_out.count, "left_out_examples": self.left_out.examples}


async def survey(
    source: Store,
    target: Store,
    *,
    progress: Path | None = None,
    match: str = "*",
    on_progress: Callable[[CopyProgress], None] | None = None,
) -> Surveyed:
    """Read every key that matches from both stores, and say what a copy that begins now would do. Writes nothing.

    `progress` is the file of an earlier run, where there was one. Raises NoProgress and CopyLost as the copy would.
    """
    refuse_pair(source, target)
    path = progress or progress_path(source.url, target.url)
    with ExitStack() as stack:
        notes = stack.enter_context(Notes(path, source.url, target.url, match)) if path.exists() else None
        await Marker(source, target, notes).check()
        seen = stack.enter_context(Seen())
        surveying = _Surveying(source, target, notes)
        total = await count_keys(source, match)

        async def new_pages() -> Any:
            async for page in pages_of(source, match):
                yield seen.new(page)

        async for records in surveying.at_source.ahead(new_pages()):
            await surveying.add(records)
            if on_progress is not None:
                on_progress(CopyProgress(surveying.found.keys, total, 0))
        await surveying.add_gone()
    return surveying.found


class _Surveying:
    def __init__(self, source: Store, target: Store, notes: Notes | None) -> None:
        self._target = target
        self._notes = notes
        self._judge = Judge(overwrite=False, earlier_id=0 if notes is None else notes.earlier_id)
        self.found = Surveyed()
        self.at_source, self._at_target = Reading(source), Reading(target)
        self.at_source.left_out = self.found.left_out

    async def add(self, records: list[Record]) -> None:
        keys = [record.key for record in records]
        held = await self._held(keys)
        noted = {} if self._notes is None else self._notes.of(keys)
        now_ms = await clock_ms(self._target)
        for record in records:
            self.found.keys += 1
            if why := unfit(record, self._target):
                self.found.left_out.add(f"{shown(record.key)} {why}")
            else:
                self._add(record, noted.get(record.key), held.get(record.key), now_ms)

    def _add(self, record: Record, note: Note | None, held: bytes | None, now_ms: int) -> None:
        found, written = self.found, fingerprint(record)
        is_settled = note is not None and not self._judge.is_due(note, written)
        match note.state if note is not None and is_settled else self._judge.verdict(note, written, held, now_ms):
            case None if held is None:
                found.new += 1
            case None:
                found.changed += 1
            case State.IN_THE_WAY:
                found.in_the_way += 1
                if len(found.examples) < _EXAMPLES:
                    found.examples.append(shown(record.key))
            case State.CHANGED:
                found.changed_there += 1
            case State.DELETED:
                found.deleted_there += 1
            case _:
                found.equal += 1

    async def add_gone(self) -> None:
        """Keys that an earlier run copied, that are gone at the source, and at the target still as they were copied."""
        for notes in [] if self._notes is None else self._notes.pages(PAGE):
            ours = [note for note in notes if note.state is State.OURS]
            there = {record.key for record in await self.at_source.records([note.key for note in ours])}
            gone = [note for note in ours if note.key not in there]
            held = await self._held([note.key for note in gone])
            self.found.gone += sum(note.key in held and note.is_ours(held[note.key]) for note in gone)

    async def _held(self, keys: list[bytes]) -> dict[bytes, bytes]:
        return {record.key: fingerprint(record) for record in await self._at_target.records(keys)} if keys else {}
