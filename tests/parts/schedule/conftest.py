"""Shared by the schedule tests: an empty store of each kind, a frozen clock, jobs that record their runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from time import monotonic
from typing import Any

import pytest

from keystead import Store
from keystead.parts.schedule import Job, JobState, Run, RunEntry, Schedule, ScheduleKeys
from tests.schema.conftest import redis_server, store, store_url, valkey_cluster, valkey_server

__all__ = ["everywhere", "redis_server", "store", "store_url", "valkey_cluster", "valkey_server"]

everywhere = pytest.mark.parametrize("store_url", ["memory", "sqlite", "redis", "cluster"], indirect=True)
here = pytest.mark.parametrize("store_url", ["memory"], indirect=True)

SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000


def ms(text: str) -> int:
    """The moment of an ISO time, in milliseconds."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


class Time:
    """A frozen clock, and waits that depend on it."""

    def __init__(self, start: str = "2026-01-01T00:00:30Z") -> None:
        self.now_ms = ms(start)
        self.waits: list[tuple[int, asyncio.Future[None]]] = []

    def __call__(self) -> int:
        return self.now_ms

    async def wait(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        ended = asyncio.get_running_loop().create_future()
        entry = (self.now_ms + round(seconds * 1000), ended)
        self.waits.append(entry)
        try:
            await ended
        finally:
            self.waits.remove(entry)

    @property
    def next_ms(self) -> int:
        """How long until the next wait is over."""
        return min(at for at, _ in self.waits) - self.now_ms

    def pass_ms(self, by: int) -> None:
        self.now_ms += by
        for at, ended in self.waits:
            if at <= self.now_ms and not ended.done():
                ended.set_result(None)

    def pass_until(self, text: str) -> None:
        """Go to shortly after a moment: who waits for it wakes a little apart from the others."""
        self.pass_ms(ms(text) + SECOND - self.now_ms)

    async def rested(self, schedules: int, running: int = 0) -> None:
        """Wait until this many schedules and leases of running jobs wait for a future time."""
        calm = 0
        while calm < 3:  # a schedule that was just woken does not wait any more a moment later
            await until(lambda: self._is_calm(schedules, running))
            await asyncio.sleep(0.001)
            calm = calm + 1 if self._is_calm(schedules, running) else 0

    def _is_calm(self, schedules: int, running: int) -> bool:
        names = [task.get_name() for task in asyncio.all_tasks()]
        turns = sum(name.startswith("keystead job ") and ", run " not in name for name in names)
        waits = sum(at > self.now_ms and not ended.done() for at, ended in self.waits)
        return turns == running and waits == schedules + running

    async def asked_to_wait(self, ms: int) -> None:
        """Wait until a wait of exactly this length starts."""
        await until(lambda: any(at - self.now_ms == ms and not ended.done() for at, ended in self.waits))


async def until(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = monotonic() + seconds
    while not condition():
        if monotonic() > deadline:
            pytest.fail(f"waited {seconds:g} seconds in vain")
        await asyncio.sleep(0.001)


class Work:
    """A job that records each run, waits for `may_end` if requested, and returns or raises as configured."""

    def __init__(self, *, waits: bool = False, returns: Any = None) -> None:
        self.runs: list[Run] = []
        self.ended: list[Run] = []
        self.cancelled: list[Run] = []
        self.raises: BaseException | None = None
        self.returns = returns
        self.may_end = asyncio.Event()
        if not waits:
            self.may_end.set()

    async def __call__(self, run: Run) -> Mapping[str, int | str] | None:
        self.runs.append(run)
        try:
            await self.may_end.wait()
        except asyncio.CancelledError:
            self.cancelled.append(run)
            raise
        if self.raises is not None:
            raise self.raises
        self.ended.append(run)
        returned: Mapping[str, int | str] | None = self.returns
        return returned

    @property
    def due(self) -> list[str]:
        """The moments that it was run for, as text."""
        return [text(run.due_ms) for run in self.runs]

    @property
    def numbers(self) -> list[int]:
        return [run.number for run in self.runs]


def text(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%MZ")


def schedule_of(store: Store, time: Time, *jobs: Job, **options: Any) -> Schedule:
    """A schedule as in a separate process."""
    return Schedule(ScheduleKeys(store, now_ms=time), jobs, wait=time.wait, **options)


async def seen(store: Store, time: Time, *jobs: Job) -> None:
    """Let each job be seen for the first time."""
    async with schedule_of(store, time, *jobs):
        await time.rested(1)


async def state_of(store: Store, name: str) -> JobState:
    found = await ScheduleKeys(store).job(name).get()
    assert found is not None
    return found


async def history_of(store: Store, name: str) -> list[RunEntry]:
    """The oldest first."""
    return [one.item for one in await ScheduleKeys(store).history(name).entries()]


async def let_the_lease_run_out(store: Store, name: str) -> None:
    """Simulate the expiry of a lease."""
    assert await store.run([("DEL", ScheduleKeys(store).lease(name).key)]) == [1]


@pytest.fixture
def time() -> Time:
    return Time()
