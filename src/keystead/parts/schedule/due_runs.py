"""What follows from the state of a job and the time: pure reckoning, no store."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeGuard

from keystead.parts.schedule.job import Job
from keystead.parts.schedule.schedule_keys import Again, JobState, Outcome, RunEntry, StartedRun

ON_TIME_MS: Final = 60_000  # a moment that is longer past is missed
MOST_CAUGHT_UP_WITH: Final = 1_000  # of the moments that are to be run each
_CLOCKS_DIFFER_MS: Final = (
    3_600_000  # at most; by less, a machine that is ahead does not make others run a moment again
)
_FIRST_BACK_OFF_MS: Final = 60_000
_LONGEST_BACK_OFF_MS: Final = 3_600_000


@dataclass(frozen=True)
class DueRun:
    """A run that is due: for which moment, and the state of the job without it."""

    due_ms: int
    state: JobState
    by_hand: bool = False


def first_state(job: Job, now_ms: int) -> JobState:
    """A job that nobody has seen before runs at its next moment, not at once."""
    return JobState(cron=job.cron, zone=job.zone, next_ms=job.moments.after(now_ms))


def is_of(job: Job, state: JobState) -> bool:
    """Whether the state comes from this cron text. If not, the text was changed."""
    return (state.cron, state.zone) == (job.cron, job.zone)


def changed_state(job: Job, state: JobState, since_ms: int) -> JobState:
    """The state under another cron text: its moments count from `since_ms` on, so none of the past comes due by it."""
    next_ms = job.moments.after(max(since_ms, state.last_due_ms))
    again = state.again and state.again.model_copy(update={"at_ms": min(state.again.at_ms, next_ms)})
    return _with(state, cron=job.cron, zone=job.zone, next_ms=next_ms, again=again)


def is_sound(state: JobState | None, job: Job, now_ms: int) -> TypeGuard[JobState]:
    """Whether what is due can be reckoned from this state as it is."""
    return (
        state is not None
        and state.begun is None
        and is_of(job, state)
        and not is_to_be_planned_anew(job, state, now_ms)
    )


def is_to_be_planned_anew(job: Job, state: JobState, now_ms: int) -> bool:
    """Whether it waits for a time that no moment of the cron text from now on explains: some clock was wrong.

    That is said once a moment. As long as the machine of that clock is there, it runs at once whatever is planned,
    and two who undo each other's plans would run the job without a pause.
    """
    latest_ms = max(state.next_ms, 0 if state.again is None else state.again.at_ms)
    if latest_ms <= now_ms + _CLOCKS_DIFFER_MS or latest_ms <= job.moments.after(now_ms + _CLOCKS_DIFFER_MS):
        return False
    was_now = state.planned_anew_ms <= now_ms
    return not was_now or job.moments.after(state.planned_anew_ms) <= now_ms


def planned_anew(job: Job, state: JobState, now_ms: int) -> JobState:
    """The state with nothing in it that is later than the next moment."""
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
    """When there is something to do."""
    if state.again is None:
        return state.next_ms
    # After a failure also the moments that have come wait for the back-off, which ends with the next one at the latest.
    return state.again.at_ms if state.failures else min(state.next_ms, state.again.at_ms)


def turn(job: Job, state: JobState, now_ms: int) -> DueRun | JobState | None:
    """The run that is due; or the state without the moments that are to be skipped; or nothing is due."""
    if wakes_at_ms(state) > now_ms:
        return None
    again = state.again if state.again is not None and state.again.at_ms <= now_ms else None
    if again is not None and (job.missed == "each" or state.next_ms > now_ms):
        return DueRun(again.due_ms, _with(state, again=None))
    if job.missed == "each":
        due_ms = state.next_ms
        first_ms = job.moments.earliest_of(MOST_CAUGHT_UP_WITH, now_ms, due_ms)
        if first_ms > due_ms:
            return _with(state, next_ms=first_ms)
    else:
        due_ms = job.moments.latest(now_ms, state.next_ms)
    moved = _with(state, next_ms=job.moments.after(due_ms))
    if job.missed != "skip" or now_ms - due_ms <= ON_TIME_MS:
        return DueRun(due_ms, _with(moved, again=None, last_due_ms=max(due_ms, state.last_due_ms)))
    return moved if again is None else DueRun(again.due_ms, _with(moved, again=None))


def begun_state(one: DueRun, by: str, now_ms: int) -> JobState:
    """The state while the run is under way."""
    number = one.state.number + 1
    begun = StartedRun(number=number, due_ms=one.due_ms, began_ms=now_ms, by=by, by_hand=one.by_hand)
    # A store that forgets writes, in a crash or a failover, gives the same state twice. The time is another one then.
    return _with(one.state, number=number, fence=max(one.state.fence + 1, now_ms), begun=begun)


def ended_state(job: Job, state: JobState, outcome: Outcome, now_ms: int, asked_ms: int | None = None) -> JobState:
    """The state after the run that it names; `asked_ms` is when the job wants to run again, if it said so.

    A run by hand leaves the schedule as it was.
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
    # Another process takes over at once. But a job that takes one process after the other with it has to wait.
    pause_ms = 0 if outcome == "lost" and failures == 1 else back_off_ms(failures)
    times = [now_ms + pause_ms, job.moments.after(now_ms), *([] if asked_ms is None else [asked_ms])]
    return _with(ended, failures=failures, again=Again(at_ms=min(times), due_ms=begun.due_ms))


def back_off_ms(failures: int) -> int:
    """How long to wait after so many failures in a row: 1m, 2m, 4m … 1h."""
    return min(_FIRST_BACK_OFF_MS << min(failures - 1, 10), _LONGEST_BACK_OFF_MS)


def lost_entry(begun: StartedRun, now_ms: int) -> RunEntry:
    """What can be said of a run whose process is gone."""
    return RunEntry(ended_ms=now_ms, outcome="lost", **begun.model_dump())


def _with(state: JobState, **changed: Any) -> JobState:
    return state.model_copy(update=changed)
