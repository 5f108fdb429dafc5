"""A copy from its beginning to its end: one pass, or passes for as long as it is followed; then a comparison."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from keystead.errors import StoreUnavailable
from keystead.stores.backup.records import LeftOut
from keystead.stores.copy.copying import Copying, CopyProgress, Passed, refuse_pair
from keystead.stores.copy.notes import Notes, State, progress_path
from keystead.stores.copy.verifying import Verified, verify
from keystead.stores.store_contract import Store

_PAUSE_S: Final = (0.5, 10.0)  # between two passes: as long as the last one took, within these

OnProgress = Callable[[CopyProgress], None]
OnPass = Callable[[Passed, float], None]


@dataclass(slots=True)
class Copied:
    """What a copy did, and what is at the target in the end. `written` and `deleted` are steps of this run.

    `keys` are at the target as they were at the source: copied by this or an earlier run (`ours`), or there before, the
    same (`equal`). Left alone there: `in_the_way`, which were there before and differ; `changed_there` and
    `deleted_there`, which a copy wrote and somebody changed or deleted since. `left_out` does not fit the target.
    `resumed`: an earlier run, interrupted or not, has copied keys.
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
    copy_s: float = 0.0  # how long all passes took
    verify_s: float = 0.0

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

    def add(self, passed: Passed, took_s: float) -> None:
        self.passes += 1
        self.copy_s += took_s
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
    start_over: bool = False,
    allow_empty: bool = False,
    verified: bool = True,
    on_progress: OnProgress | None = None,
    on_verify: OnProgress | None = None,
) -> Copied:
    """Copy every key that matches, of every kind, with its value and its absolute deadline, into another store.

    A key is read and written in one atomic step each. The whole is not one moment. What was copied is noted in the file
    `progress` (by default `progress_path` of both stores), which stays. The same call goes on with it, whether the
    copy was finished or ended early, by an error, by being cancelled or by a kill: what is as it was copied is not
    written again, what changed at the source since is, and what an earlier run copied and is gone there is deleted at
    the target. Without the file that is not known, so it raises NoProgress, unless `start_over`: then keys that are
    gone at the source stay at the target.

    Never harms the target: a key that is there and that no copy wrote is left alone and counted, unless `overwrite`;
    it is never deleted. A key that a copy wrote and that was changed there since stays as it is there, unless
    `overwrite`; one that was deleted there stays deleted. Where more than a tenth of the keys that were copied, and 100
    or more, are gone at the source at once, nothing is deleted at the target, and it raises SourceEmptied, unless
    `allow_empty`; where so many are missing at the target, it raises CopyLost, unless `allow_empty`.

    Raises DoesNotFit where the source cannot list its keys, SameStore, NoProgress, CopyLost, and what the stores raise.
    """
    async with _Run(source, target, progress, match, overwrite, start_over, allow_empty) as run:
        began = time.monotonic()
        run.copied.add(await run.copying.run(on_progress), time.monotonic() - began)
        return await run.ended(verified, on_verify, changes_count=True)


async def follow(
    source: Store,
    target: Store,
    stop: asyncio.Event,
    *,
    progress: Path | None = None,
    match: str = "*",
    overwrite: bool = False,
    start_over: bool = False,
    allow_empty: bool = False,
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
    async with _Run(source, target, progress, match, overwrite, start_over, allow_empty) as run:
        while True:
            is_last = stop.is_set()
            began = time.monotonic()
            try:
                passed = await run.copying.run(on_progress if not run.copied.passes else None)
            except StoreUnavailable as error:
                if is_last or not run.copied.passes:
                    raise
                if on_trouble is not None:
                    on_trouble(error)
            else:
                run.copied.add(passed, time.monotonic() - began)
                if on_pass is not None:
                    on_pass(passed, time.monotonic() - began)
                if is_last:
                    return await run.ended(verified, on_verify, changes_count=False)
            took_s = time.monotonic() - began
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), min(max(took_s, _PAUSE_S[0]), _PAUSE_S[1]))


class _Run:
    """The notes and the marker of one copy, from the first step to the last."""

    def __init__(
        self,
        source: Store,
        target: Store,
        progress: Path | None,
        match: str,
        overwrite: bool,
        start_over: bool,
        allow_empty: bool,
    ) -> None:
        refuse_pair(source, target)
        self._source, self._target = source, target
        path = progress or progress_path(source.url, target.url)
        self._notes = Notes(path, source.url, target.url, match, start_over=start_over)
        self._start_over = start_over
        self.copied = Copied(resumed=not self._notes.is_empty)
        self.copying = Copying(source, target, self._notes, match=match, overwrite=overwrite, allow_empty=allow_empty)
        # A store in memory is gone with its process, and the next one has the same URL.
        self._is_lasting = progress is not None or not any(
            store.url.startswith("memory:") for store in (source, target)
        )

    async def __aenter__(self) -> _Run:
        try:
            await self.copying.begin(start_over=self._start_over)
        except BaseException:
            if self._notes.is_new:
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
            began = time.monotonic()
            found = await verify(self._source, self._target, self._notes, on_progress=on_verify)
            if not changes_count:
                found.forgive()
            copied.verified, copied.verify_s = found, time.monotonic() - began
        if self._notes.is_empty or (copied.is_whole and not self._is_lasting):
            await self.copying.end()
            self._notes.remove()
        return copied

    async def __aexit__(self, *_: object) -> None:
        self._notes.close()
