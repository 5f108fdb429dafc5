"""The key document of the schedule."""

from __future__ import annotations

from typing import Literal, TypeAlias

from pydantic import BaseModel, ConfigDict

from keystead.parts.schedule.job import LONGEST_LEASE
from keystead.schema import Keyspace, Log, Steps, Value, procedure, sliding, until
from keystead.schema.kinds.value import Seen

Outcome: TypeAlias = Literal["done", "failed", "stopped", "lost"]

_USED_BY = ("keystead serve", "keystead jobs")
_KEPT = sliding("400d", touch_every="1d")
KEPT_ENTRIES = 100


class StartedRun(BaseModel):
    """A run in progress. Without a lease, its process is gone."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    number: int
    due_ms: int
    began_ms: int
    by: str
    """the process that runs it"""
    by_hand: bool = False
    """it was started by a person, not by the cron expression"""


class Again(BaseModel):
    """One more run, outside the cron expression."""

    at_ms: int
    due_ms: int


class JobState(BaseModel):
    """The state of a job."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    cron: str
    """the cron expression that `next_ms` comes from"""
    zone: str
    next_ms: int
    """the first scheduled time for which no run has started"""
    again: Again | None = None
    """an additional run: a retry after a failure, or one that the job asked for"""
    failures: int = 0
    """how many runs in a row have failed or were lost"""
    number: int = 0
    """the number of the last run"""
    fence: int = 0
    """the fencing token of the last run; at least the time in ms"""
    last_due_ms: int = 0
    """the latest scheduled time for which a run has started"""
    planned_anew_ms: int = 0
    """when it was last replanned because its next run was too far ahead"""
    begun: StartedRun | None = None


class Lease(BaseModel):
    """The lease of a run in progress."""

    model_config = ConfigDict(use_attribute_docstrings=True)

    by: str
    """the process"""
    number: int
    """of the run"""


class RunEntry(BaseModel):
    """A finished run. `lost`: its process died or could not renew its lease, at an unknown time."""

    model_config = ConfigDict(use_attribute_docstrings=True, frozen=True)

    number: int
    due_ms: int
    began_ms: int
    ended_ms: int
    outcome: Outcome
    result: dict[str, int | str] = {}
    """what the job returned"""
    error: str | None = None
    """why it failed: the message of a Keystead error, otherwise the name of the exception class"""
    by: str
    """the process that ran it"""
    by_hand: bool = False


class ScheduleKeys(Keyspace):
    """The schedule: the next run of each job, the process that runs it now, and its history."""

    source = "Keystead's schedule"
    naming = "domain:entity:scope"

    job = Value(
        "schedule:job:{name}",
        JobState,
        lifetime=_KEPT,
        role="durable",
        owns=("lease", "history"),
        tag="name",
        doc="The state of a job: its next scheduled time and the number of its last run, which only grows.",
        used_by=_USED_BY,
    )
    lease = Value(
        "schedule:lease:{name}",
        Lease,
        lifetime=until("lease_ends", at_most=LONGEST_LEASE),
        role="durable",
        tag="name",
        doc="The lease of the process that runs a job. It expires after the job's `lease`, by the store's clock, and "
        "is renewed while the job runs. Only its holder can record the outcome of the run.",
        used_by=_USED_BY,
    )
    history = Log(
        "schedule:history:{name}",
        RunEntry,
        keep=KEPT_ENTRIES,
        lifetime=_KEPT,
        role="durable",
        tag="name",
        doc="The last runs of a job and their outcomes.",
        used_by=_USED_BY,
    )

    @procedure
    def claim(
        self, name: str, seen: Seen[JobState] | None, state: JobState, lease: Lease, lease_ms: int
    ) -> Steps[None]:
        """Start a run: of all processes that read the same state, one succeeds."""
        return Steps(
            self.job(name).holds(seen).otherwise("the state changed"),
            self.lease(name).lasting(lease_ms).add(lease).otherwise("another process has the lease"),
            self.job(name).set(state),
        )

    @procedure
    def renew(self, name: str, lease: Lease, lease_ms: int) -> Steps[None]:
        """Renew the lease of a run in progress. Its value names the owner, so no process can renew another's lease."""
        return Steps(
            self.lease(name).holds(lease).otherwise("the lease is lost"),
            self.lease(name).lasting(lease_ms).touch(),
        )

    @procedure
    def give_back(self, name: str, lease: Lease) -> Steps[None]:
        """Release the lease of a run that does not start."""
        return Steps(self.lease(name).holds(lease).otherwise("the lease is lost"), self.lease(name).delete())

    @procedure
    def end(self, name: str, lease: Lease, state: JobState, entry: RunEntry | None) -> Steps[None]:
        """End a run, with its history entry and the next scheduled time. Only the holder of the lease can."""
        return Steps(
            self.lease(name).holds(lease).otherwise("the lease is lost"),
            self.job(name).set(state),
            self.lease(name).delete(),
            *([] if entry is None else [self.history(name).append(entry)]),
        )

    @procedure
    def rewrite(self, name: str, seen: Seen[JobState] | None, state: JobState, entry: RunEntry | None) -> Steps[None]:
        """Write the state of a job that is not running, unless it has changed since it was read."""
        return Steps(
            self.job(name).holds(seen).otherwise("the state changed"),
            self.lease(name).absent().otherwise("it is running"),
            self.job(name).set(state),
            *([] if entry is None else [self.history(name).append(entry)]),
        )
