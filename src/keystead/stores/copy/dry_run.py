"""Dry run of a copy."""

from __future__ import annotations

from contextlib import ExitStack, aclosing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from keystead.errors import printable
from keystead.stores.copy.fingerprints import fingerprint
from keystead.stores.copy.journal import Journal, State, progress_path
from keystead.stores.copy.marker import MARKER_PREFIX, Marker
from keystead.stores.copy.ownership import Ownership
from keystead.stores.copy.passes import refuse_pair
from keystead.stores.store_contract import Store
from keystead.stores.transfer.reader import PAGE, Reader, clock_ms, count_keys
from keystead.stores.transfer.records import EXAMPLES, LeftOut
from keystead.stores.transfer.seen_keys import SeenKeys
from keystead.stores.transfer.transfer_progress import OnProgress, TransferProgress, ignore
from keystead.stores.transfer.writer import why_unfit

_FIELDS = {State.IN_THE_WAY: "in_the_way", State.CHANGED: "changed_there", State.DELETED: "deleted_there"}


@dataclass(slots=True)
class Surveyed:
    """What a copy would find: keys that are new to the target, equal, in the way, or that do not fit it.

    Of keys that an earlier run copied: `changed` at the source since, and to be written again; `gone` there, and to be
    deleted at the target; `changed_there` or `deleted_there`: changed or deleted at the target, which is kept.
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

    def add(self, key: bytes, state: State | None, *, is_there: bool) -> None:
        """`state` is the owner of the key; None: it would be written."""
        self.keys += 1
        name = ("changed" if is_there else "new") if state is None else _FIELDS.get(state, "equal")
        setattr(self, name, getattr(self, name) + 1)
        if state is State.IN_THE_WAY and len(self.examples) < EXAMPLES:
            self.examples.append(printable(key))


async def survey(
    source: Store,
    target: Store,
    *,
    progress: Path | None = None,
    match: str = "*",
    on_progress: OnProgress = ignore,
) -> Surveyed:
    """Read every matching key from both stores, and report what a copy would do now. Writes nothing.

    `progress` is the file of an earlier run, if there was one. Raises NoProgress and CopyLost as the copy would.
    """
    refuse_pair(source, target)
    path = progress or progress_path(source.url, target.url)
    with ExitStack() as stack:
        journal = stack.enter_context(Journal(path, source.url, target.url, match)) if path.exists() else None
        await Marker(source, target, journal).check()
        seen = stack.enter_context(SeenKeys())
        found = Surveyed()
        earlier_id = 0 if journal is None else journal.earlier_id
        ownership = Ownership(overwrite=False, earlier_id=earlier_id, lags=target.guarantees.consistency == "eventual")
        at_source, at_target = Reader(source), Reader(target)
        at_source.left_out = found.left_out
        total = await count_keys(source, match)

        async with aclosing(at_source.read_all(match, seen, without=MARKER_PREFIX)) as pages:
            async for records in pages:
                keys = [record.key for record in records]
                there = {key: fingerprint(record) for key, record in (await at_target.read_by_key(keys)).items()}
                entries = {} if journal is None else journal.find(keys)
                now_ms = await clock_ms(target)
                for record in records:
                    if why := why_unfit(record, target):
                        found.keys += 1
                        found.left_out.add(f"{printable(record.key)} {why}")
                        continue
                    entry, written, held = entries.get(record.key), fingerprint(record), there.get(record.key)
                    state = ownership.decide(entry, written, held, now_ms)
                    if entry is not None and not ownership.must_check(entry, written):
                        state = entry.state
                    found.add(record.key, state, is_there=held is not None)
                on_progress(TransferProgress("checking", found.keys, total))

        if journal is not None:
            found.gone = await _count_gone(journal, at_source, at_target)
    return found


async def _count_gone(journal: Journal, at_source: Reader, at_target: Reader) -> int:
    """The number of keys that an earlier run copied, that are gone at the source and unchanged at the target."""
    count = 0
    for page in journal.pages(PAGE):
        ours = {entry.key: entry for entry in page if entry.state is State.OURS}
        kept = await at_source.read_by_key(list(ours))
        held_there = await at_target.read_by_key([key for key in ours if key not in kept])
        count += sum(ours[key].is_ours(fingerprint(held)) for key, held in held_there.items())
    return count
