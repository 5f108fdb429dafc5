"""The scheduler: every process polls, and one of them runs each job that is due."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final, Literal, NamedTuple

from keystead.errors import (
    BadDeclaration,
    BadValue,
    KeysteadError,
    StoreError,
    StoreUnavailable,
    Unreadable,
)
from keystead.parts.background_loop import BackgroundLoop, process_name
from keystead.parts.schedule import due_runs
from keystead.parts.schedule.job import Job
from keystead.parts.schedule.job_run import FIRST_RETRY_MS, Claim, JobRun, write_with_history
from keystead.parts.schedule.schedule_keys import JobState, Lease, Outcome, RunEntry, ScheduleKeys
from keystead.schema import Operation, attempts
from keystead.schema.kinds.value import Seen
from keystead.schema.lifetime import duration_ms
from keystead.schema.store_fit import require_atomic_steps
from keystead.schema.unreadable import log_unreadable

_log = logging.getLogger("keystead.schedule")

_DAY_MS: Final = 86_400_000
_JITTER_MS: Final = 100  # jitter, so that processes do not poll at the same moment


@dataclass(frozen=True)
class Busy:
    """The job is already running. It is falsy; a RunEntry is truthy.

    by         the process that runs it
    since_ms   since when, if known
    """

    by: str
    since_ms: int | None

    def __bool__(self) -> Literal[False]:
        return False


@dataclass(frozen=True)
class JobNow:
    """The current state of a job.

    next_ms    when it runs next; a time in the past means at the next poll; None: see `trouble`
    running    the process that runs it, and since when
    last       the last run
    failures   how many runs in a row failed or were lost
    trouble    why its stored state cannot be read
    """

    job: Job
    next_ms: int | None
    running: Busy | None
    last: RunEntry | None
    failures: int
    trouble: str | None = None


class _JobRead(NamedTuple):
    """The stored state and lease of a job."""

    seen: Seen[JobState] | None
    lease: Lease | None
    lease_left: timedelta | None

    @property
    def state(self) -> JobState | None:
        return None if self.seen is None else self.seen.value

    @property
    def lease_left_ms(self) -> int:
        return 0 if self.lease_left is None else self.lease_left // timedelta(milliseconds=1)


class Schedule(BackgroundLoop[RunEntry | None]):
    """Runs cron jobs. Every process has a Schedule with the same jobs; each scheduled time is run by one of them.

        async with Schedule(ScheduleKeys(store), jobs):
            ...

    **A run starts with one atomic step**: if the state of the job is unchanged since it was read and its lease is free,
    the lease is taken and the run number grows. The lease is renewed while the job runs. **A run ends with one
    atomic step**, which only the holder of that lease can make: it writes the next scheduled time and the history
    entry, and releases the lease. A run that loses its lease is cancelled and writes nothing.

    A store outage pauses the schedule; it never ends on its own. When stopped, it waits `stop_within` for running
    jobs, then cancels them, which may take half as long, and releases their leases, so that another process runs them
    at its next poll. Time is `keys.now_ms`; `wait` is for tests. `on_run` is called with the name and outcome of each
    run that ends here. Raises BadDeclaration for two jobs of one name, and DoesNotFit for a store without atomic
    steps.
    """

    def __init__(
        self,
        keys: ScheduleKeys,
        jobs: Iterable[Job],
        *,
        look_every: str | timedelta = "30s",
        stop_within: str | timedelta = "10s",
        wait: Callable[[float], Awaitable[Any]] = asyncio.sleep,
        on_run: Callable[[str, Outcome], None] = lambda name, outcome: None,
    ) -> None:
        left_running = "another process runs it when its lease expires"
        super().__init__("schedule", left_running, _log, duration_ms(stop_within, "stop_within"), wait)
        self._keys = keys
        self._jobs = _by_name(jobs)
        self._store = keys.job.store
        require_atomic_steps(self._store, "the schedule", "a run starts and ends with one atomic step on several keys")
        self.by: Final = process_name()
        self._look_every_ms = duration_ms(look_every, "look_every")
        self._on_run = on_run
        self._unconfirmed: dict[str, int] = {}  # by job: the fencing token of a claim that may have taken effect
        self._looked_ms: dict[str, int] = {}
        self._touched_ms: dict[str, int] = {}
        self._reported: set[str] = set()

    async def run_now(self, name: str) -> RunEntry | Busy:
        """Run a job here and now under its lease, whatever its cron expression says. Returns its entry, or Busy.

        The run is in the history; the schedule does not change. A manual run that fails is not retried. Cancelling
        this call cancels the run. Raises BadValue if there is no such job.
        """
        job = self._job(name)
        async for _ in attempts(f"the job {name}"):
            [stored] = await self._read([job])
            if isinstance(stored, Exception):
                if isinstance(stored, Unreadable):
                    log_unreadable(self._store, stored)
                raise stored
            if stored.lease is not None:
                return Busy(stored.lease.by, _since_ms(stored))
            now_ms = self._now_ms()
            if not due_runs.is_current(stored.state, job, now_ms):
                await self._repair_state(job, stored, now_ms)
                continue
            entry = await self._start(
                job, self._claim_and_run(job, stored, due_runs.DueRun(now_ms, stored.state, by_hand=True))
            )
            if entry is not None:
                return entry
        raise AssertionError  # pragma: no cover - the last attempt raises Contended

    async def history(self, name: str, limit: int = 20) -> Sequence[RunEntry]:
        """The last runs of a job, newest first. Raises BadValue if there is no such job."""
        return await self._keys.history(self._job(name).name).newest(limit)

    async def list(self) -> Sequence[JobNow]:
        """The current state of each job; an unreadable one does not hide the others. Two concurrent round trips."""
        jobs = [*self._jobs.values()]
        last_runs = self._keys.run_each(*(self._keys.history(job.name).newest(1) for job in jobs))
        reads, lasts = await asyncio.gather(self._read(jobs), last_runs)
        return [self._describe(*one) for one in zip(jobs, reads, lasts, strict=True)]

    def _describe(self, job: Job, stored: _JobRead | Exception, last: Sequence[RunEntry] | Exception) -> JobNow:
        trouble = next((str(one) for one in (stored, last) if isinstance(one, Exception)), None)
        last_run = last[0] if not isinstance(last, Exception) and last else None
        if isinstance(stored, Exception):
            return JobNow(job, None, None, last_run, 0, trouble)
        state, now_ms = stored.state, self._now_ms()
        if state is None or not due_runs.has_same_cron(job, state):
            state = due_runs.first_state(job, now_ms)
        elif due_runs.needs_replanning(job, state, now_ms):
            state = due_runs.replan(job, state, now_ms)
        running = None if stored.lease is None else Busy(stored.lease.by, _since_ms(stored))
        return JobNow(job, due_runs.wakes_at_ms(state), running, last_run, state.failures, trouble)

    # --- polling -------------------------------------------------------------------------------------------

    async def _round(self) -> float:
        """Start every job that is due. Returns the seconds until the next poll. One read."""
        longest_ms = self._look_every_ms
        try:
            jobs = [*self._jobs.values()]
            reads = await self._read(jobs, touch=True)
            wakes_ms = [await self._attend(*one) for one in zip(jobs, reads, strict=True)]
        except Exception as error:
            self._record_outage(error)
            pause_ms = min(FIRST_RETRY_MS << min(self._outages - 1, 10), longest_ms)
        else:
            self._record_recovery()
            pause_ms = max(0, min([longest_ms, *(wake_ms - self._now_ms() for wake_ms in wakes_ms)]))
        jitter = random.random()  # noqa: S311 - jitter
        if pause_ms == longest_ms:
            return pause_ms * (1 - jitter / 4) / 1000
        return (pause_ms + jitter * _JITTER_MS) / 1000 if pause_ms else 0

    async def _read(self, jobs: Sequence[Job], *, touch: bool = False) -> Sequence[_JobRead | Exception]:
        """Read the state and lease of each job; an error in place of an unreadable one. One round trip."""
        operations: list[Operation[Any]] = []
        for job in jobs:
            lease = self._keys.lease(job.name)
            operations += [self._keys.job(job.name).see(), lease.get(), lease.remaining()]
        # The state of a job that runs every few years must not expire between runs.
        touches = [*self._touch_operations(jobs)] if touch else []
        found = await self._keys.run_each(*operations, *touches)
        return [_job_read(found[3 * place : 3 * place + 3]) for place in range(len(jobs))]

    def _touch_operations(self, jobs: Sequence[Job]) -> Iterable[Operation[bool]]:
        now_ms = self._now_ms()
        for job in jobs:
            if now_ms - self._touched_ms.get(job.name, -_DAY_MS) >= _DAY_MS:
                self._touched_ms[job.name] = now_ms
                yield self._keys.job(job.name).touch()
                yield self._keys.history(job.name).touch()

    async def _attend(self, job: Job, stored: _JobRead | Exception) -> int:
        """Start the job if it is due. Returns when to look again. A broken job does not stop the others."""
        try:
            if isinstance(stored, Exception):
                raise stored
            wakes_ms = await self._start_if_due(job, stored)
        except StoreUnavailable:
            raise
        except Exception as error:
            if job.name not in self._reported:
                self._reported.add(job.name)
                if isinstance(error, Unreadable):
                    log_unreadable(self._store, error)
                known = isinstance(error, KeysteadError)
                reason = error if known else type(error).__name__
                _log.error("%s cannot run: %s", job.name, reason, exc_info=None if known else error)
            return self._now_ms() + self._look_every_ms
        self._reported.discard(job.name)
        return wakes_ms

    async def _start_if_due(self, job: Job, stored: _JobRead) -> int:
        now_ms = self._now_ms()
        later_ms = now_ms + self._look_every_ms
        since_ms = self._looked_ms.setdefault(job.name, now_ms)
        if job.name in self._tasks.values():
            return later_ms
        state = stored.state
        if stored.lease is not None:
            # The read may be older than what has happened here since: resume only a claim whose reply was lost.
            if state is None or stored.lease.by != self.by or self._unconfirmed.get(job.name) != state.fence:
                has_no_ttl = stored.lease_left == timedelta.max
                return later_ms if has_no_ttl else now_ms + stored.lease_left_ms
            del self._unconfirmed[job.name]
            self._start(job, self._carry_out(job, self._claim(state, now_ms + stored.lease_left_ms)))
            return later_ms
        if not due_runs.is_current(state, job, now_ms):
            if await self._repair_state(job, stored, since_ms):
                self._looked_ms[job.name] = now_ms
            return now_ms
        self._looked_ms[job.name] = now_ms
        due = due_runs.next_step(job, state, now_ms)
        if isinstance(due, JobState):
            if job.missed == "each":
                _log.warning("%s: only the last %d missed runs are caught up on", job.name, due_runs.MAX_CAUGHT_UP)
            await self._rewrite(job, stored, due)
            return now_ms
        if due is None:
            return due_runs.wakes_at_ms(state)
        self._start(job, self._claim_and_run(job, stored, due))
        return later_ms

    async def _repair_state(self, job: Job, stored: _JobRead, since_ms: int) -> bool:
        """Repair the state of a job: create it, end a lost run, adopt a new cron expression, or replan.

        False: another process was faster. `since_ms` is when this schedule last planned the job. While two programs
        with different cron expressions run side by side, each keeps adopting its own expression, and must not lose
        a scheduled time in between.
        """
        state, now_ms = stored.state, self._now_ms()
        if state is None:
            return await self._rewrite(job, stored, due_runs.first_state(job, now_ms))
        if state.begun is not None:
            entry = due_runs.lost_entry(state.begun, now_ms)
            _log.warning("%s: run %d was lost because its process ended: %s", job.name, entry.number, entry.by)
            ended = due_runs.ended_state(job, state, "lost", now_ms)
            return await self._rewrite(job, stored, ended, entry)
        if not due_runs.has_same_cron(job, state):
            return await self._rewrite(job, stored, due_runs.state_for_new_cron(job, state, since_ms))
        _log.warning("%s is replanned: it waits longer than its cron expression allows; is a clock wrong?", job.name)
        return await self._rewrite(job, stored, due_runs.replan(job, state, now_ms))

    async def _rewrite(self, job: Job, stored: _JobRead, state: JobState, entry: RunEntry | None = None) -> bool:
        """Write the state of a job that is not running, unless another process was faster."""
        return await write_with_history(self._keys, partial(self._keys.rewrite, job.name, stored.seen, state), entry)

    # --- a run ---------------------------------------------------------------------------------------------

    def _start(self, job: Job, run: Coroutine[Any, Any, RunEntry | None]) -> asyncio.Task[RunEntry | None]:
        task: asyncio.Task[RunEntry | None] = asyncio.create_task(run, name=f"keystead job {job.name}")
        self._tasks[task] = job.name
        task.add_done_callback(self._tasks.pop)
        return task

    async def _claim_and_run(self, job: Job, stored: _JobRead, due: due_runs.DueRun) -> RunEntry | None:
        """Claim a run and carry it out. None: another process was faster, or the store does not answer."""
        now_ms = self._now_ms()
        claim = self._claim(due_runs.started_state(due, self.by, now_ms), now_ms + job.lease_ms)
        try:
            claimed = await self._keys.claim(job.name, stored.seen, claim.state, claim.lease, job.lease_ms)
        except StoreError as error:
            if due.by_hand:
                raise
            # The next poll shows whether it took effect.
            self._unconfirmed[job.name] = claim.state.fence
            _log.warning("%s cannot start: %s", job.name, error)
            return None
        except asyncio.CancelledError:
            with suppress(StoreError):
                await self._keys.give_back(job.name, claim.lease)
            raise
        if not claimed:
            self._wake.set()
            return None
        return await self._carry_out(job, claim)

    def _claim(self, state: JobState, good_until_ms: int) -> Claim:
        return Claim(state, Lease(by=self.by, number=state.number), good_until_ms)

    async def _carry_out(self, job: Job, claim: Claim) -> RunEntry | None:
        if claim.state.begun is None:  # pragma: no cover - taking the lease and starting the run are one step
            return None
        run = JobRun(self._keys, job, claim, claim.state.begun, self._wait, self._look_every_ms)
        entry = await run.carry_out()
        self._on_run(job.name, entry.outcome)
        self._wake.set()
        if run.is_stopping:
            raise asyncio.CancelledError
        return entry

    def _job(self, name: str) -> Job:
        if name not in self._jobs:
            raise BadValue(f"there is no job {name!r}; the jobs are: {', '.join(self._jobs) or 'none'}")
        return self._jobs[name]

    def _now_ms(self) -> int:
        return self._keys.now_ms()


def _job_read(found: Sequence[Any]) -> _JobRead | Exception:
    """The stored state of a job, or the error if it is unreadable."""
    return next((one for one in found if isinstance(one, Exception)), None) or _JobRead(*found)


def _since_ms(stored: _JobRead) -> int | None:
    return stored.state.begun.began_ms if stored.state is not None and stored.state.begun is not None else None


def _by_name(jobs: Iterable[Job]) -> dict[str, Job]:
    found: dict[str, Job] = {}
    for job in jobs:
        if job.name in found:
            raise BadDeclaration(f"two jobs have the name {job.name}; rename one of them")
        found[job.name] = job
    return found
