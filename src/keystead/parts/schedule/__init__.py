"""Scheduled jobs: cron jobs that run once across all processes, and again after a crash."""

from keystead.parts.schedule.job import Job, Missed, Run
from keystead.parts.schedule.schedule import Busy, JobNow, Schedule
from keystead.parts.schedule.schedule_keys import JobState, Lease, RunEntry, ScheduleKeys

__all__ = [
    "Busy",
    "Job",
    "JobNow",
    "JobState",
    "Lease",
    "Missed",
    "Run",
    "RunEntry",
    "Schedule",
    "ScheduleKeys",
]
