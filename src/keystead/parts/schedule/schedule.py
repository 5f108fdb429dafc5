"""The schedule: every process looks, one of them runs."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import secrets
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
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
from keystead.parts.background_loop import Rounds
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
_SPREAD_MS: Final = 100  # so that not all processes ask at the very same moment


@dataclass(frozen=True)
class Busy:
    """The job is running already. It is false where the entry of a run is true.

    by         the process that runs it
    since_ms   since when, where that is known
    """

    by: str
    since_ms: int | None

    def __bool__(self) -> Literal[False]:
        return False


@dataclass(frozen=True)
class JobNow:
    """A job as it stands.

    next_ms    when it will run, if nothing comes between; past: as soon as a process looks; None: see `trouble`
    running    since when it is running, and where
    last       how the last run went
    failures   how many runs in a row have failed or were lost
    trouble    why what is stored of it cannot be read, in a sentence
    """

    job: Job
    next_ms: int | None
    running: Busy | None
    last: RunEntry | None
    failures: int
    trouble: str | None = None


class _Looked(NamedTuple):
    """What the store says of a job."""

    seen: Seen[JobState] | None
    lease: Lease | None
    lease_left: timedelta | None

    @property
    def state(self) -> JobState | None:
        return None if self.seen is None else self.seen.value

    @property
    def lease_left_ms(self) -> int:
        return 0 if self.lease_left is None else self.lease_left // timedelta(milliseconds=1)


class Schedule(Rounds[RunEntry | None]):
    """Runs jobs at their moments. Every process has one with the same jobs, and each moment is run by one of them.

        async with Schedule(ScheduleKeys(store), jobs):
            ...

    **A run begins with one atomic step**: where the state of the job is what was read and nobody holds its lease, the
    lease is taken and the number of the run grows. The lease is renewed while the job runs. **It ends with one
    atomic step**, which only the holder of that very lease can make: the next moment, the entry in the history, the
    end of the lease. A holder that lost it has its run cancelled, and writes nothing.

    A store that is away is waited for; the schedule never ends by itself. When it is stopped it waits `stop_within`
    for the jobs that run, then cancels them, which may take half as long, and gives their leases back, so that another
    process runs them at its next look. Time is `keys.now_ms`; `wait` is for tests. `on_run` is told the name of each
    job whose run ended here, and how. Raises BadDeclaration for two jobs of one name, and DoesNotFit for a store
    without atomic steps.
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
        so_far = "another process runs it when its lease is over"
        super().__init__("schedule", so_far, _log, duration_ms(stop_within, "stop_within"), wait)
        self._keys = keys
        self._jobs = _by_name(jobs)
        self._store = keys.job.store
        require_atomic_steps(self._store, "the schedule", "a run begins and ends with one atomic step on several keys")
        self.by: Final = f"{socket.gethostname()}/{os.getpid()}/{secrets.token_hex(4)}"
        self._look_every_ms = duration_ms(look_every, "look_every")
        self._on_run = on_run
        self._unanswered: dict[str, int] = {}  # the fence of a claim that may have taken effect, by the name of its job
        self._looked_ms: dict[str, int] = {}
        self._touched_ms: dict[str, int] = {}
        self._complained: set[str] = set()

    async def run_now(self, name: str) -> RunEntry | Busy:
        """Run a job here and now, under its lease, whatever its cron text says; how it went, or that it runs already.

        The entry is in the history, and the next moments stay as they are. A run by hand that fails is not tried again.
        When this is cancelled, the run is, too. Raises BadValue where there is no such job.
        """
        job = self._job(name)
        async for _ in attempts(f"the job {name}"):
            [looked] = await self._read([job])
            if isinstance(looked, Exception):
                if isinstance(looked, Unreadable):
                    log_unreadable(self._store, looked)
                raise looked
            if looked.lease is not None:
                return Busy(looked.lease.by, _since_ms(looked))
            now_ms = self._now_ms()
            if not due_runs.is_sound(looked.state, job, now_ms):
                await self._mended(job, looked, now_ms)
                continue
            entry = await self._start(job, self._turn(job, looked, due_runs.DueRun(now_ms, looked.state, by_hand=True)))
            if entry is not None:
                return entry
        raise AssertionError  # pragma: no cover - the last attempt raises Contended

    async def history(self, name: str, limit: int = 20) -> Sequence[RunEntry]:
        """The last runs of a job, the newest first. Raises BadValue where there is no such job."""
        return await self._keys.history(self._job(name).name).newest(limit)

    async def list(self) -> Sequence[JobNow]:
        """Each job as it stands; one that cannot be read hides no other. Two round trips, made at once."""
        jobs = [*self._jobs.values()]
        last_runs = self._keys.run_each(*(self._keys.history(job.name).newest(1) for job in jobs))
        looks, lasts = await asyncio.gather(self._read(jobs), last_runs)
        return [self._as_it_stands(*one) for one in zip(jobs, looks, lasts, strict=True)]

    def _as_it_stands(self, job: Job, looked: _Looked | Exception, last: Sequence[RunEntry] | Exception) -> JobNow:
        trouble = next((str(one) for one in (looked, last) if isinstance(one, Exception)), None)
        last_run = last[0] if not isinstance(last, Exception) and last else None
        if isinstance(looked, Exception):
            return JobNow(job, None, None, last_run, 0, trouble)
        state, now_ms = looked.state, self._now_ms()
        if state is None or not due_runs.is_of(job, state):
            state = due_runs.first_state(job, now_ms)
        elif due_runs.is_to_be_planned_anew(job, state, now_ms):
            state = due_runs.planned_anew(job, state, now_ms)
        running = None if looked.lease is None else Busy(looked.lease.by, _since_ms(looked))
        return JobNow(job, due_runs.wakes_at_ms(state), running, last_run, state.failures, trouble)

    # --- looking -------------------------------------------------------------------------------------------

    async def _round(self) -> float:
        """See what is due, and begin it; how many seconds there is nothing more to do. One read."""
        longest_ms = self._look_every_ms
        try:
            jobs = [*self._jobs.values()]
            looks = await self._read(jobs, touch=True)
            wakes_ms = [await self._attended(*one) for one in zip(jobs, looks, strict=True)]
        except Exception as error:
            self._is_away(error)
            pause_ms = min(FIRST_RETRY_MS << min(self._away - 1, 10), longest_ms)
        else:
            self._is_back()
            pause_ms = max(0, min([longest_ms, *(wake_ms - self._now_ms() for wake_ms in wakes_ms)]))
        spread = random.random()  # noqa: S311 - spreads processes apart
        if pause_ms == longest_ms:
            return pause_ms * (1 - spread / 4) / 1000
        return (pause_ms + spread * _SPREAD_MS) / 1000 if pause_ms else 0

    async def _read(self, jobs: Sequence[Job], *, touch: bool = False) -> Sequence[_Looked | Exception]:
        """What the store says of each job; an error in the place of one that is unreadable. One round trip."""
        asked: list[Operation[Any]] = []
        for job in jobs:
            lease = self._keys.lease(job.name)
            asked += [self._keys.job(job.name).see(), lease.get(), lease.remaining()]
        # A job whose moments are years apart must not be forgotten between them.
        touched = [*self._touches(jobs)] if touch else []
        found = await self._keys.run_each(*asked, *touched)
        return [_looked(found[3 * place : 3 * place + 3]) for place in range(len(jobs))]

    def _touches(self, jobs: Sequence[Job]) -> Iterable[Operation[bool]]:
        now_ms = self._now_ms()
        for job in jobs:
            if now_ms - self._touched_ms.get(job.name, -_DAY_MS) >= _DAY_MS:
                self._touched_ms[job.name] = now_ms
                yield self._keys.job(job.name).touch()
                yield self._keys.history(job.name).touch()

    async def _attended(self, job: Job, looked: _Looked | Exception) -> int:
        """Begin the job if it is due; when there may be something to do next. What is wrong with it harms no other."""
        try:
            if isinstance(looked, Exception):
                raise looked
            wakes_ms = await self._seen_to(job, looked)
        except StoreUnavailable:
            raise
        except Exception as error:
            if job.name not in self._complained:
                self._complained.add(job.name)
                if isinstance(error, Unreadable):
                    log_unreadable(self._store, error)
                known = isinstance(error, KeysteadError)
                said = error if known else type(error).__name__
                _log.error("%s is not run: %s", job.name, said, exc_info=None if known else error)
            return self._now_ms() + self._look_every_ms
        self._complained.discard(job.name)
        return wakes_ms

    async def _seen_to(self, job: Job, looked: _Looked) -> int:
        now_ms = self._now_ms()
        later_ms = now_ms + self._look_every_ms
        since_ms = self._looked_ms.setdefault(job.name, now_ms)
        if job.name in self._turns.values():
            return later_ms
        state = looked.state
        if looked.lease is not None:
            # What was read may be older than what happened here since: only a claim whose answer was lost is taken up.
            if state is None or looked.lease.by != self.by or self._unanswered.get(job.name) != state.fence:
                forgotten = looked.lease_left == timedelta.max
                return later_ms if forgotten else now_ms + looked.lease_left_ms
            del self._unanswered[job.name]
            self._start(job, self._carry_out(job, self._claim(state, now_ms + looked.lease_left_ms)))
            return later_ms
        if not due_runs.is_sound(state, job, now_ms):
            if await self._mended(job, looked, since_ms):
                self._looked_ms[job.name] = now_ms
            return now_ms
        self._looked_ms[job.name] = now_ms
        due = due_runs.turn(job, state, now_ms)
        if isinstance(due, JobState):
            if job.missed == "each":
                _log.warning("%s: only the last %d missed moments are run", job.name, due_runs.MOST_CAUGHT_UP_WITH)
            await self._rewritten(job, looked, due)
            return now_ms
        if due is None:
            return due_runs.wakes_at_ms(state)
        self._start(job, self._turn(job, looked, due))
        return later_ms

    async def _mended(self, job: Job, looked: _Looked, since_ms: int) -> bool:
        """Give a job a sound state: a first one, one without a run that was lost, one of its new cron text, a new plan.

        False: somebody else was faster. `since_ms` is when this schedule last planned with it. While two programs with
        different texts run side by side, each finds the text of the other there, and must not lose a moment of its own
        that came in between.
        """
        state, now_ms = looked.state, self._now_ms()
        if state is None:
            return await self._rewritten(job, looked, due_runs.first_state(job, now_ms))
        if state.begun is not None:
            entry = due_runs.lost_entry(state.begun, now_ms)
            _log.warning("%s: run %d was lost with its process, %s", job.name, entry.number, entry.by)
            ended = due_runs.ended_state(job, state, "lost", now_ms)
            return await self._rewritten(job, looked, ended, entry)
        if not due_runs.is_of(job, state):
            return await self._rewritten(job, looked, due_runs.changed_state(job, state, since_ms))
        _log.warning("%s is planned anew: it waits longer than its cron text says; is a clock wrong?", job.name)
        return await self._rewritten(job, looked, due_runs.planned_anew(job, state, now_ms))

    async def _rewritten(self, job: Job, looked: _Looked, state: JobState, entry: RunEntry | None = None) -> bool:
        """Write the state of a job that nobody runs, unless somebody else was faster."""
        return await write_with_history(self._keys, partial(self._keys.rewrite, job.name, looked.seen, state), entry)

    # --- a run ---------------------------------------------------------------------------------------------

    def _start(self, job: Job, turn: Any) -> asyncio.Task[RunEntry | None]:
        task: asyncio.Task[RunEntry | None] = asyncio.create_task(turn, name=f"keystead job {job.name}")
        self._turns[task] = job.name
        task.add_done_callback(self._turns.pop)
        return task

    async def _turn(self, job: Job, looked: _Looked, turn: due_runs.DueRun) -> RunEntry | None:
        """Claim a run and make it. None: another process was faster, or the store does not answer."""
        now_ms = self._now_ms()
        claim = self._claim(due_runs.begun_state(turn, self.by, now_ms), now_ms + job.lease_ms)
        try:
            claimed = await self._keys.claim(job.name, looked.seen, claim.state, claim.lease, job.lease_ms)
        except StoreError as error:
            if turn.by_hand:
                raise
            # The next look says whether it took effect after all.
            self._unanswered[job.name] = claim.state.fence
            _log.warning("%s cannot begin: %s", job.name, error)
            return None
        except asyncio.CancelledError:
            with suppress(StoreError):
                await self._keys.give_back(job.name, claim.lease)
            raise
        if not claimed:
            self._woken.set()
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
        self._woken.set()
        if run.is_stopping:
            raise asyncio.CancelledError
        return entry

    def _job(self, name: str) -> Job:
        if name not in self._jobs:
            raise BadValue(f"there is no job {name!r}; there are: {', '.join(self._jobs) or 'none'}")
        return self._jobs[name]

    def _now_ms(self) -> int:
        return self._keys.now_ms()


def _looked(found: Sequence[Any]) -> _Looked | Exception:
    """What the store says of a job; an error in the place of one that is unreadable."""
    return next((one for one in found if isinstance(one, Exception)), None) or _Looked(*found)


def _since_ms(looked: _Looked) -> int | None:
    return looked.state.begun.began_ms if looked.state is not None and looked.state.begun is not None else None


def _by_name(jobs: Iterable[Job]) -> dict[str, Job]:
    found: dict[str, Job] = {}
    for job in jobs:
        if job.name in found:
            raise BadDeclaration(f"two jobs are called {job.name}; give one of them another name")
        found[job.name] = job
    return found
