"""Scheduled jobs of kits: every worker runs one schedule for all of them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from keystead.kits.kit import Kit
from keystead.parts.schedule import Job, Schedule, ScheduleKeys
from keystead.server.settings import Settings
from keystead.stores import Store

if TYPE_CHECKING:
    from keystead.server.metrics import Metrics


def kits_with_jobs(kits: Sequence[Kit]) -> list[Kit]:
    """The kits that declare jobs. The jobs themselves are known once the services are open."""
    return [kit for kit in kits if kit.jobs is not Kit.jobs]


def jobs_of(kits: Sequence[Kit], services: Mapping[str, Any]) -> list[Job]:
    """The jobs of the open services of these kits."""
    return [job for kit in kits for job in kit.jobs(services[kit.name])]


def schedule_keys(stores: Mapping[str, Store], now_ms: Callable[[], int]) -> ScheduleKeys:
    """The keys of the schedule, in the store of the role `durable`, or the default."""
    others: dict[str, Any] = {role: store for role, store in stores.items() if role != "default"}
    return ScheduleKeys(stores["default"], now_ms=now_ms, **others)


@asynccontextmanager
async def run_schedule(
    jobs: Sequence[Job],
    stores: Mapping[str, Store],
    settings: Settings,
    now_ms: Callable[[], int],
    metrics: Metrics | None = None,
) -> AsyncIterator[Schedule | None]:
    """Run these jobs on schedule within the block. Without jobs it yields None and uses no store.

    At a stop, running jobs get half of `stop_timeout` to finish, and a quarter to be cancelled and recorded. The rest
    remains for closing the kits.
    """
    if not jobs:
        yield None
        return
    stop_within = timedelta(milliseconds=max(1, settings.stop_timeout // 2))
    keys = schedule_keys(stores, now_ms)
    schedule = Schedule(keys, jobs, stop_within=stop_within, on_run=_ignore if metrics is None else metrics.count_run)
    async with schedule:
        yield schedule


def _ignore(job: str, outcome: str) -> None:
    pass
