"""A whole copy: one pass, or repeated passes while following; then a comparison."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, TypedDict, Unpack

from keystead.errors import StoreUnavailable
from keystead.stores.copy.journal import Journal, State, progress_path
from keystead.stores.copy.passes import Copier, Passed, refuse_pair
from keystead.stores.copy.verification import Verified, verify
from keystead.stores.store_contract import Store
from keystead.stores.transfer.records import LeftOut
from keystead.stores.transfer.transfer_progress import OnProgress, ignore

_PAUSE_S: Final = (0.5, 10.0)  # pause between passes: as long as the last pass, within these bounds
_LEFT_ALONE: Final = {"in_the_way": State.IN_THE_WAY, "changed_there": State.CHANGED, "deleted_there": State.DELETED}


class CopyOptions(TypedDict, total=False):
    """Options of `copy` and `follow`; see `copy`."""

    progress: Path | None
    match: str
    overwrite: bool
    start_over: bool
    allow_empty: bool
    verified: bool
    on_progress: OnProgress


@dataclass(slots=True)
class Copied:
    """The result of a copy. `written` and `deleted` count the steps of this run.

    `keys` are at the target as they were at the source: copied by this or an earlier run (`ours`), or already there and
    equal (`equal`). Kept as they are at the target: `in_the_way`, which were there before and differ; `changed_there`
    and `deleted_there`, which were copied and then changed or deleted there. `left_out` does not fit the target.
    `resumed`: an earlier run, finished or interrupted, has copied keys.
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
    copy_s: float = 0.0  # of all passes
    verify_s: float = 0.0

    @property
    def keys(self) -> int:
        return self.ours + self.equal

    @property
    def is_whole(self) -> bool:
        """Whether every key of the source is at the target, except for later changes by an application there."""
        return not (self.in_the_way or self.left_out.count or (self.verified and self.verified.compared.differences))

    def as_json(self) -> dict[str, Any]:
        data = {"keys": self.keys, **asdict(self), "whole": self.is_whole}
        data["left_out"] = self.left_out.count
        data["examples"] = {**self.examples, **({"left_out": self.left_out.examples} if self.left_out.count else {})}
        data["verified"] = None if self.verified is None else self.verified.as_json()
        return data

    def add(self, passed: Passed, took_s: float) -> None:
        self.passes += 1
        self.copy_s += took_s
        self.written += passed.written
        self.deleted += passed.deleted
        self.expired += passed.expired
        self.left_out = passed.left_out

    def count(self, journal: Journal) -> None:
        counts = journal.counts()
        self.ours, self.equal = counts[State.OURS], counts[State.EQUAL]
        for name, state in _LEFT_ALONE.items():
            setattr(self, name, counts[state])
            if counts[state]:
                self.examples[name] = journal.examples(state)


async def copy(source: Store, target: Store, **options: Unpack[CopyOptions]) -> Copied:
    """Copy every matching key, of every kind, with its value and its absolute deadline, into another store.

    Each key is read in one atomic step and written in another. The copy as a whole is not a snapshot. Copied keys are
    recorded in the file `progress` (by default `progress_path` of both stores), which is kept. The same call resumes
    from it, whether the copy was finished, failed, cancelled or killed: unchanged keys are not written again, keys that
    changed at the source are, and copied keys that were deleted there are deleted at the target. Without the file this
    is unknown, so NoProgress is raised, unless `start_over`: then keys deleted at the source stay at the target.
    `verified`: compare all keys at the end.

    The target is protected: an existing key that no copy wrote is kept and counted, unless `overwrite`; it is never
    deleted. A copied key that was changed at the target keeps that value, unless `overwrite`; one that was deleted
    there stays deleted. If more than a tenth of the copied keys, and at least 100, disappear at the source at once,
    nothing is deleted at the target and SourceEmptied is raised, unless `allow_empty`; if as many are missing at the
    target, CopyLost is raised, unless `allow_empty`.

    Raises DoesNotFit if the source cannot list its keys, SameStore, NoProgress, CopyLost, and the errors of the stores.
    """
    async with _open_run(source, target, options) as run:
        await run.run_pass()
        return await run.end(changes_count=True)


async def follow(
    source: Store,
    target: Store,
    stop: asyncio.Event,
    *,
    on_pass: Callable[[Passed, float], None] = lambda passed, took_s: None,
    on_trouble: Callable[[StoreUnavailable], None] = lambda error: None,
    **options: Unpack[CopyOptions],
) -> Copied:
    """Copy as `copy` does, and repeat passes until `stop` is set; then run one last pass.

    `on_pass` is called with each pass and its duration in seconds. From the second pass on the target is in sync: it
    has everything that was written to the source before the pass started. The last pass starts after `stop` was set:
    it copies every write acknowledged by the source before that, unless the key was changed at the target meanwhile.
    If a store becomes unavailable after the first pass, `on_trouble` is called and the copy waits; not in the last
    pass.
    """
    async with _open_run(source, target, options) as run:
        while True:
            is_last = stop.is_set()
            began = time.monotonic()
            try:
                passed = await run.run_pass()
            except StoreUnavailable as error:
                if is_last or not run.copied.passes:
                    raise
                on_trouble(error)
            else:
                on_pass(passed, time.monotonic() - began)
                if is_last:
                    return await run.end(changes_count=False)
            took_s = time.monotonic() - began
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), min(max(took_s, _PAUSE_S[0]), _PAUSE_S[1]))


@asynccontextmanager
async def _open_run(source: Store, target: Store, options: CopyOptions) -> AsyncIterator[_Run]:
    refuse_pair(source, target)
    path = options.get("progress") or progress_path(source.url, target.url)
    start_over = options.get("start_over", False)
    journal = Journal(path, source.url, target.url, options.get("match", "*"), start_over=start_over)
    try:
        run = _Run(source, target, journal, options)
        try:
            await run.copier.begin(start_over=start_over)
        except BaseException:
            if journal.is_new:
                journal.remove()
            raise
        yield run
    finally:
        journal.close()


class _Run:
    """One run of a copy."""

    def __init__(self, source: Store, target: Store, journal: Journal, options: CopyOptions) -> None:
        self._source, self._target = source, target
        self._journal = journal
        self._options = options
        self._on_progress = options.get("on_progress", ignore)
        self.copied = Copied(resumed=not journal.is_empty)
        self.copier = Copier(
            source,
            target,
            journal,
            match=options.get("match", "*"),
            overwrite=options.get("overwrite", False),
            allow_empty=options.get("allow_empty", False),
        )

    async def run_pass(self) -> Passed:
        began = time.monotonic()
        passed = await self.copier.run_pass(ignore if self.copied.passes else self._on_progress)
        self.copied.add(passed, time.monotonic() - began)
        return passed

    async def end(self, *, changes_count: bool) -> Copied:
        """`changes_count`: keys that differ at the target count as differences; otherwise as changed there."""
        copied = self.copied
        copied.count(self._journal)
        if self._options.get("verified", True):
            began = time.monotonic()
            copied.verified = await verify(self._source, self._target, self._journal, on_progress=self._on_progress)
            copied.verify_s = time.monotonic() - began
            if not changes_count:
                copied.verified.forgive()
        # A store in memory is lost with its process, and the next one has the same URL.
        in_memory = any(store.url.startswith("memory:") for store in (self._source, self._target))
        is_lasting = self._options.get("progress") is not None or not in_memory
        if self._journal.is_empty or (copied.is_whole and not is_lasting):
            await self.copier.end()
            self._journal.remove()
        return copied
