"""One run of a job: do the work, renew the lease meanwhile, and record the outcome."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, NamedTuple

from keystead.errors import StoreError, WrongKind
from keystead.parts.sanitize import error_text
from keystead.parts.schedule import due_runs
from keystead.parts.schedule.job import MAX_TEXT, Job, Run, check_result
from keystead.parts.schedule.schedule_keys import JobState, Lease, Outcome, RunEntry, ScheduleKeys, StartedRun
from keystead.schema import Done

_log = logging.getLogger("keystead.schedule")

FIRST_RETRY_MS: Final = 1_000  # the first pause during a store outage; it doubles from then on
_RENEWALS_PER_LEASE: Final = 3


class Claim(NamedTuple):
    """A run that this process has claimed."""

    state: JobState
    lease: Lease
    good_until_ms: int


class _Result(NamedTuple):
    """How a run ended, for its history entry."""

    outcome: Outcome
    result: dict[str, int | str] = {}  # noqa: RUF012 - never changed
    error: str | None = None


class JobRun:
    """A claimed run. `is_stopping`: it was cancelled because the schedule is being stopped."""

    def __init__(
        self,
        keys: ScheduleKeys,
        job: Job,
        claim: Claim,
        started: StartedRun,
        wait: Callable[[float], Awaitable[Any]],
        longest_pause_ms: int,
    ) -> None:
        self._keys = keys
        self._job = job
        self._claim = claim
        self._started = started
        self._wait = wait
        self._longest_pause_ms = longest_pause_ms
        self._now_ms = keys.now_ms
        self.is_stopping = False

    async def carry_out(self) -> RunEntry:
        """Run the job to its end, or until the lease is lost or the schedule stops; then record the outcome."""
        job, started = self._job, self._started
        run = Run(job.name, started.due_ms, started.number, fence=self._claim.state.fence, now_ms=self._now_ms)
        work = asyncio.create_task(_work(job, run), name=f"keystead job {job.name}, run {run.number}")
        renewal = asyncio.create_task(self._renew_lease())
        try:
            try:
                await asyncio.wait({work, renewal}, return_when=asyncio.FIRST_COMPLETED)
            except asyncio.CancelledError:
                self.is_stopping = True
            was_cut_off = not work.done()
            if was_cut_off:
                work.cancel()
                await asyncio.wait({work})
            if not was_cut_off or self.is_stopping:
                return await self._record(run, _result_of(work, was_cut_off))
            _log.error("%s: run %d lost its lease and was cancelled", job.name, run.number)
            return due_runs.lost_entry(started, self._now_ms())
        finally:
            work.cancel()
            renewal.cancel()
            await asyncio.gather(work, renewal, return_exceptions=True)

    async def _renew_lease(self) -> None:
        """Renew the lease again and again. Returns when it is lost."""
        job, good_until_ms = self._job, self._claim.good_until_ms
        while True:
            pause_ms = min(job.lease_ms // _RENEWALS_PER_LEASE, max(0, good_until_ms - self._now_ms()))
            await self._wait(pause_ms / 1000)
            asked_ms = self._now_ms()
            try:
                if not await self._keys.renew(job.name, self._claim.lease, job.lease_ms):
                    return
                good_until_ms = asked_ms + job.lease_ms
            except StoreError as error:
                _log.warning("%s: the lease was not renewed: %s", job.name, error)
                if self._now_ms() >= good_until_ms:
                    return

    async def _record(self, run: Run, result: _Result) -> RunEntry:
        """Record the outcome and release the lease: one atomic step, which only the holder of the lease can make.

        Retried during a store outage, unless the schedule is being stopped.
        """
        name, now_ms = self._job.name, self._now_ms()
        try:
            entry, state = self._entry_and_state(result, run.again_ms)
        except Exception as error:
            # A job can do anything to its Run. A run that cannot be recorded would be repeated forever.
            _log.exception("%s: the outcome of run %d cannot be stored", name, run.number)
            entry, state = self._entry_and_state(_failure(error), None)
        end = partial(self._keys.end, name, self._claim.lease, state)
        pause_ms, was_retried = FIRST_RETRY_MS, False
        while True:
            try:
                # If a retry finds the lease gone, a reply was lost, or the lease has expired: read the stored state.
                if await write_with_history(self._keys, end, entry) or was_retried:
                    return entry
            except StoreError as away:
                _log.warning("%s: the outcome of run %d cannot be recorded: %s", name, run.number, away)
                if self.is_stopping:
                    return due_runs.lost_entry(self._started, now_ms)
                was_retried = True
                await self._wait(pause_ms / 1000)
                pause_ms = min(2 * pause_ms, self._longest_pause_ms)
                continue
            _log.error("%s: run %d ended after losing its lease; nothing was recorded", name, run.number)
            return due_runs.lost_entry(self._started, now_ms)

    def _entry_and_state(self, result: _Result, again_ms: int | None) -> tuple[RunEntry, JobState]:
        """The history entry of the run, and the state of the job after it."""
        now_ms = self._now_ms()
        entry = RunEntry(ended_ms=now_ms, **result._asdict(), **self._started.model_dump())
        return entry, due_runs.ended_state(self._job, self._claim.state, result.outcome, now_ms, again_ms)


async def write_with_history(
    keys: ScheduleKeys, change: Callable[[RunEntry | None], Awaitable[Done[None]]], entry: RunEntry | None
) -> bool:
    """Make this change with a history entry, or without it if the history key holds another kind."""
    try:
        return bool(await change(entry))
    except WrongKind as error:
        if error.key is None or keys.history.parse(error.key) is None:
            raise
        return bool(await change(None))


async def _work(job: Job, run: Run) -> _Result:
    """Run the job. Anything it raises is a failure, except a cancellation."""
    try:
        return _Result("done", check_result(job.name, await job.run(run)))
    except (asyncio.CancelledError, KeyboardInterrupt):
        raise
    except BaseException as error:  # sys.exit too: it would end this process, and then the next one
        _log.exception("%s: run %d failed", job.name, run.number)
        return _failure(error)


def _failure(error: BaseException) -> _Result:
    return _Result("failed", error=error_text(error, MAX_TEXT))  # the log has all of it


def _result_of(work: asyncio.Task[_Result], was_cut_off: bool) -> _Result:
    if was_cut_off:
        return _Result("stopped")
    # The schedule did not cancel it, so the job cancelled itself.
    return _Result("failed", error="CancelledError") if work.cancelled() else work.result()
