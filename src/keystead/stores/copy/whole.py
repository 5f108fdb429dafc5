"""A copy from its beginning to its end: one pass, or passes for as long as it is followed; then a comparison."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from keystead.errors import StoreUnavailable, shown
from keystead.stores.backup.reading import PAGE, Reading, refuse_unlisted
from keystead.stores.backup.records import LeftOut
from keystead.stores.backup.seen import Seen
from keystead.stores.backup.writing import unfit
from keystead.stores.base import Store
from keystead.stores.copy.copying import Copying, CopyProgress, Passed
from keystead.stores.copy.errors import SameStore
from keystead.stores.copy.fingerprints import fingerprint
from keystead.stores.copy.marker import PREFIX
from keystead.stores.copy.notes import Notes, State, progress_path
from keystead.stores.copy.verifying import Verified, verify

_PAUSE_S: Final = (0.5, 10.0)  # between two passes: as long as the last one took, within these

OnProgress = Callable[[CopyProgress], None]
OnPass = Callable[[Passed, float], None]


@dataclass(slots=True)
class Copied:
    """What a copy did, and what is at the target in the end. `written` and `deleted` are steps of this run.

    `keys` are at the target as they were at the source: copied by this or an earlier run (`ours`), or there before, the
    same (`equal`). Left alone there: `in_the_way`, which were there before and differ; `changed_there` and
    `deleted_there`, which this copy wrote and somebody changed or deleted since. `left_out` does not fit the target.
    """

    resumed: bool = False
    written: int = 0
    deleted: int = 0
    expired: int = 0
    ours: int = 0
    equal: int = 0
    in_the_way: int = 0
    changed_there: int = 0
    deleted_there: int = 0
    passes: int = 0
    left_out: LeftOut = field(default_factory=LeftOut)
    examples: dict[str, list[str]] = field(default_factory=dict)
    verified: Verified | None = None

    @property
    def keys(self) -> int:
        return self.ours + self.equal

    @property
    def is_whole(self) -> bool:
        """Whether every key of the source is at the target, but for what its application did there since."""
        return not (self.in_the_way or self.left_out.count or (self.verified and self.verified.compared.differences))

    def as_json(self) -> dict[str, Any]:
        said = {"keys": self.keys, **asdict(self), "whole": self.is_whole}
        said["left_out"] = self.left_out.count
        said["examples"] = {**self.examples, **({"left_out": self.left_out.examples} if self.left_out.count else {})}
        said["verified"] = None if self.verified is None else self.verified.as_json()
        return said

    def add(self, passed: Passed) -> None:
        self.passes += 1
        self.written += passed.written
        self.deleted += passed.deleted
        self.expired += passed.expired
        self.left_out = passed.left_out

    def take(self, notes: Notes) -> None:
        counts = notes.counts()
        self.ours, self.equal = counts[State.OURS], counts[State.EQUAL]
        for name, state in (
            ("in_the_way", State.IN_THE_WAY),
            ("changed_there", State.CHANGED),
            ("deleted_there", State.DELETED),
        ):
            setattr(self, name, counts[state])
            if counts[state]:
                self.examples[name] = notes.examples(state)


async def copy(
    source: Store,
    target: Store,
    *,
    progress: Path | None = None,
    match: str = "*",
    overwrite: bool = False,
    verified: bool = True,
    on_progress: OnProgress | None = None,
    on_verify: OnProgress | None = None,
) -> Copied:
    """Copy every key that matches, of every kind, with its value and its absolute deadline, into another store.

    A key is read and written in one atomic step each. The whole is not one moment. What was copied is noted in the file
    `progress` (by default `progress_path` of both stores), which is removed when the copy is whole. Where it ends
    early, by an error, by being cancelled or by a kill, the same call goes on: what is as it was copied is not written
    again, what changed at the source since is, and what is gone there goes at the target.

    Never harms the target: a key that is there and that this copy did not write is left alone and counted, unless
    `overwrite`; and a key that this copy wrote and that was changed or deleted there since stays as it is there.

    Raises DoesNotFit where the source cannot list its keys, SameStore, NoProgress, CopyLost, and what the stores raise.
    """
    async with _Run(source, target, progress, match, overwrite) as run:
        run.copied.add(await run.copying.run(on_progress))
        return await run.ended(verified, on_verify, changes_count=True)


async def follow(
    source: Store,
    target: Store,
    stop: asyncio.Event,
    *,
    progress: Path | None = None,
    match: str = "*",
    overwrite: bool = False,
    verified: bool = True,
    on_progress: OnProgress | None = None,
    on_pass: OnPass | None = None,
    on_trouble: Callable[[StoreUnavailable], None] | None = None,
    on_verify: OnProgress | None = None,
) -> Copied:
    """Copy as `copy` does, and go on with one pass after the other until `stop` is set; then one last pass.

    `on_pass` is told of each pass and how many seconds it took. From the second one on the target is in step: it has
    all that was written to the source before the pass began. The last pass begins after `stop` was set: every write
    that the source had acknowledged by then is copied, if its key was not changed at the target meanwhile.
    A store that is unavailable after the first pass is waited for, and `on_trouble` is told; not in the last pass.
    """
    async with _Run(source, target, progress, match, overwrite) as run:
        while True:
            is_last = stop.is_set()
            began = asyncio.get_running_loop().time()
            try:
                passed = await run.copying.run(on_progress if not run.copied.passes else None)
            except StoreUnavailable as error:
                if is_last or not run.copied.passes:
                    raise
                if on_trouble is not None:
                    on_trouble(error)
            else:
                run.copied.add(passed)
                if on_pass is not None:
                    on_pass(passed, asyncio.get_running_loop().time() - began)
                if is_last:
                    return await run.ended(verified, on_verify, changes_count=False)
            took = asyncio.get_running_loop().time() - began
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), min(max(took, _PAUSE_S[0]), _PAUSE_S[1]))


def _refuse(source: Store, target: Store) -> None:
    """Raises DoesNotFit or SameStore where it is known that these two do not go together, before a file is made."""
    refuse_unlisted(source)
    for store in (source, target):
        Reading(store)
    if source.url == target.url and not source.url.startswith("memory:"):  # each of these is a store of its own
        raise SameStore(f"{source.url} is where the keys are; name another store to copy them into")


class _Run:
    """The notes and the mark of one copy, from the first step to the last."""

    def __init__(self, source: Store, target: Store, progress: Path | None, match: str, overwrite: bool) -> None:
        _refuse(source, target)
        self._source, self._target = source, target
        self._notes = Notes(progress or progress_path(source.url, target.url, match), source.url, target.url, match)
        self.copied = Copied(resumed=not self._notes.is_empty)
        self.copying = Copying(source, target, self._notes, match=match, overwrite=overwrite)

    async def __aenter__(self) -> _Run:
        try:
            await self.copying.begin()
        except BaseException:
            if self._notes.is_empty:
                self._notes.remove()
            else:
                self._notes.close()
            raise
        return self

    async def ended(self, verified: bool, on_verify: OnProgress | None, *, changes_count: bool) -> Copied:
        """`changes_count`: what is another one at the target in the end is a difference; else it was changed there."""
        copied = self.copied
        copied.take(self._notes)
        if verified:
            found = await verify(self._source, self._target, self._notes, on_progress=on_verify)
            if not changes_count:
                found.forgive()
            copied.verified = found
        if copied.is_whole:
            self._notes.remove()
            await self.copying.end()
        return copied

    async def __aexit__(self, *_: object) -> None:
        self._notes.close()


# --- before it is begun ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Surveyed:
    """What a copy would meet: keys that are new to the target, there and equal, in the way, or that do not fit it."""

    keys: int = 0
    new: int = 0
    equal: int = 0
    in_the_way: int = 0
    left_out: LeftOut = field(default_factory=LeftOut)
    examples: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "left_out": self.left_out.count, "left_out_examples": self.left_out.examples}


async def survey(source: Store, target: Store, *, match: str = "*", on_progress: OnProgress | None = None) -> Surveyed:
    """Read every key that matches from both stores, and say what a copy that begins now would do. Writes nothing."""
    _refuse(source, target)
    found = Surveyed()
    at_source, at_target = Reading(source), Reading(target)
    at_source.left_out = found.left_out
    total = (await source.run([("DBSIZE",)]))[0] if match == "*" else None
    with Seen() as seen:

        async def pages() -> Any:
            async for page in source.scan(match, page=PAGE):
                yield seen.new(key for key in page if not key.startswith(PREFIX))

        async for records in at_source.ahead(pages()):
            held = {record.key: record for record in await at_target.records([record.key for record in records])}
            for record in records:
                found.keys += 1
                other = held.get(record.key)
                if why := unfit(record, target):
                    found.left_out.add(f"{shown(record.key)} {why}")
                elif other is None:
                    found.new += 1
                elif fingerprint(other) == fingerprint(record):
                    found.equal += 1
                else:
                    found.in_the_way += 1
                    if len(found.examples) < 10:
                        found.examples.append(shown(record.key))
            if on_progress is not None:
                on_progress(CopyProgress(found.keys, total, 0))
    return found
