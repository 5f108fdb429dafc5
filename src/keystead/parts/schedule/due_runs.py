"""Which run of a job is due: pure functions of the job's state and the time. No store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from keystead.parts.schedule.job import Job
from keystead.parts.schedule.schedule_keys import Again, JobState, Outcome, RunEntry, StartedRun

ON_TIME_MS: Final = 60_000  # a run that is later than this was missed
MAX_CAUGHT_UP: Final = 1_000  # missed runs, with missed="each"
# Clock skew that is tolerated: within it, a machine whose clock is ahead does not make others repeat a run.
_MAX_CLOCK_SKEW_MS: Final = 3_600_000
_FIRST_BACK_OFF_MS: Final = 60_000
_LONGEST_BACK_OFF_MS: Final = 3_600_000


@dataclass(frozen=True)
class DueRun:
    """A run that is due: its scheduled time, and the state of the job without it."""

    due_ms: int
    state: JobState
    by_hand: bool = False


def first_state(job: Job, now_ms: int) -> JobState:
    """The state of a new job: it runs at its next scheduled time, not immediately."""
    return JobState(cron=job.cron, zone=job.zone, next_ms=job.moments.after(now_ms))


def has_same_cron(job: Job, state: JobState) -> bool:
    """Whether the state was planned with this cron expression. If not, the expression has changed."""
    return (state.cron, state.zone) == (job.cron, job.zone)


def state_for_new_cron(job: Job, state: JobState, since_ms: int) -> JobState:
    """The state for a changed cron expression: its times count from `since_ms`, so no past time becomes due."""
    next_ms = job.moments.after(max(since_ms, state.last_due_ms))
    again = state.again and state.again.model_copy(update={"at_ms": min(state.again.at_ms, next_ms)})
    return _with(state, cron=job.cron, zone=job.zone, next_ms=next_ms, again=again)


def is_current(state: JobState | None, job: Job, now_ms: int) -> TypeGuard[JobState]:
    """Whether the due run can be derived from this state as it is."""
    return (
        state is not None
        and state.begun is None
        and has_same_cron(job, state)
        and not needs_replanning(job, state, now_ms)
    )


def needs_replanning(job: Job, state: JobState, now_ms: int) -> bool:
    """Whether the job waits longer than its cron expression explains: some clock was wrong.

    True at most once per scheduled time. A machine with a wrong clock runs whatever is planned immediately; if two
    machines kept undoing each other's plans, the job would run without a pause.
    """
    latest_ms = max(state.next_ms, 0 if state.again is None else state.again.at_ms)
    if latest_ms <= now_ms + _MAX_CLOCK_SKEW_MS or latest_ms <= job.moments.after(now_ms + _MAX_CLOCK_SKEW_MS):
        return False
    was_now = state.planned_anew_ms <= now_ms
    return not was_now or job.moments.after(state.planned_anew_ms) <= now_ms


def replan(job: Job, state: JobState, now_ms: int) -> JobState:
    """The state with nothing in it later than the next scheduled time."""
    latest_ms = job.moments.after(now_ms)
    again = state.again and state.again.model_copy(update={"at_ms": min(state.again.at_ms, latest_ms)})
    return _with(
        state,
        next_ms=min(state.next_ms, latest_ms),
        again=again,
        last_due_ms=min(state.last_due_ms, now_ms),
        planned_anew_ms=now_ms,
    )


def wakes_at_ms(state: JobState) -> int:
    """When the job next needs attention."""
    if state.again is None:
        return state.next_ms
    # After a failure, due runs wait for the back-off too. It ends at the next scheduled time at the latest.
    return state.again.at_ms if state.failures else min(state.next_ms, state.again.at_ms)


def next_step(job: Job, state: JobState, now_ms: int) -> DueRun | JobState | None:
    """The run that is due, or the state without the runs to skip, or None if nothing is due."""
    if wakes_at_ms(state) > now_ms:
        return None
    again = state.again if state.again is not None and state.again.at_ms <= now_ms else None
    if again is not None and (job.missed == "each" or state.next_ms > now_ms):
        return DueRun(again.due_ms, _with(state, again=None))
    if job.missed == "each":
        due_ms = state.next_ms
        first_ms = job.moments.earliest_of(MAX_CAUGHT_UP, now_ms, due_ms)
        if first_ms > due_ms:
            return _with(state, next_ms=first_ms)
    else:
        due_ms = job.moments.latest(now_ms, state.next_ms)
    moved = _with(state, next_ms=job.moments.after(due_ms))
    if job.missed != "skip" or now_ms - due_ms <= ON_TIME_MS:
        return DueRun(due_ms, _with(moved, again=None, last_due_ms=max(due_ms, state.last_due_ms)))
    return moved if again is None else DueRun(again.due_ms, _with(moved, again=None))


def started_state(one: DueRun, by: str, now_ms: int) -> JobState:
    """The state while the run is in progress."""
    number = one.state.number + 1
    begun = StartedRun(number=number, due_ms=one.due_ms, began_ms=now_ms, by=by, by_hand=one.by_hand)
    # After a crash or failover a store may return the same state twice. The time makes the fencing token differ.
    return _with(one.state, number=number, fence=max(one.state.fence + 1, now_ms), begun=begun)


def ended_state(job: Job, state: JobState, outcome: Outcome, now_ms: int, asked_ms: int | None = None) -> JobState:
    """The state after the run. `asked_ms`: when the job asked to run again.

    A manual run does not change the schedule.
    """
    begun = state.begun
    ended = _with(state, begun=None)
    if begun is None or begun.by_hand:
        return ended
    if outcome == "done":
        sooner = asked_ms is not None and asked_ms < state.next_ms
        return _with(ended, failures=0, again=Again(at_ms=asked_ms, due_ms=asked_ms) if sooner else None)
    if outcome == "stopped":
        return _with(ended, again=Again(at_ms=now_ms, due_ms=begun.due_ms))
    failures = state.failures + 1
    # Another process takes over immediately. But a job that kills one process after another has to wait.
    pause_ms = 0 if outcome == "lost" and failures == 1 else back_off_ms(failures)
    times = [now_ms + pause_ms, job.moments.after(now_ms), *([] if asked_ms is None else [asked_ms])]
    return _with(ended, failures=failures, again=Again(at_ms=min(times), due_ms=begun.due_ms))


def back_off_ms(failures: int) -> int:
    """Exponential back-off after this many failures in a row: 1m, 2m, 4m … 1h."""
    return min(_FIRST_BACK_OFF_MS << min(failures - 1, 10), _LONGEST_BACK_OFF_MS)


def lost_entry(begun: StartedRun, now_ms: int) -> RunEntry:
    """The history entry of a run whose process is gone."""
    return RunEntry(ended_ms=now_ms, outcome="lost", **begun.model_dump())


def _with(state: JobState, **changed: Any) -> JobState:
    return state.model_copy(update=changed)
