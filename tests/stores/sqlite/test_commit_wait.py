"""The loop waits for a commit only if nothing else is to be done, and never for long; no result is lost or doubled."""

import asyncio
import threading
from collections import Counter
from typing import Any

import pytest

from keystead.stores.sqlite import SqliteStore, group_commit
from keystead.stores.sqlite.group_commit import GroupCommit
from keystead.stores.worker_thread import WorkerJob, WorkerThread
from tests.stores.sqlite.processes import until

pytestmark = pytest.mark.anyio


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long the loop was willing to wait for each commit. On a slow machine, too, the loop counts as quiet."""
    asked: list[float] = []
    finish_within = WorkerJob.finish_within

    def record(job: WorkerJob, seconds: float) -> None:
        asked.append(seconds)
        finish_within(job, seconds)

    monkeypatch.setattr(WorkerJob, "finish_within", record)
    monkeypatch.setattr(group_commit, "QUIET_S", 60)
    return asked


async def test_a_quiet_loop_waits_for_a_fast_commit(path: str, waits: list[float]) -> None:
    async with SqliteStore(path) as store:
        assert isinstance(store._commits, GroupCommit)
        store._sweep_timer.cancel()  # it is other work
        for number in range(20):
            store._commits._commit_s = 0
            await store.run([("SET", "k", str(number))])
    assert waits == [group_commit.LONGEST_WAIT_S] * 20


async def test_a_loop_with_other_work_does_not_wait(path: str, waits: list[float]) -> None:
    loop, is_over = asyncio.get_running_loop(), False

    def work() -> None:
        if not is_over:
            loop.call_soon(work)

    async with SqliteStore(path) as store:
        assert isinstance(store._commits, GroupCommit)
        work()
        for number in range(20):
            store._commits._commit_s = 0
            await store.run([("SET", "k", str(number))])
        is_over = True
    assert waits == [0] * 20


async def test_slow_commits_are_not_waited_for(path: str, waits: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    slow = threading.Event()  # never set
    monkeypatch.setattr(GroupCommit, "_commit", _delayed(slow))
    async with SqliteStore(path) as store:
        for number in range(20):
            await store.run([("SET", "k", str(number))])
        assert 0 < len(waits) < 10
        assert await store.run([("GET", "k")]) == [b"19"]


def _delayed(event: threading.Event) -> Any:
    commit = GroupCommit._commit

    def slowly(commits: GroupCommit, results: list[Any]) -> list[Any]:
        event.wait(0.005)
        return commit(commits, results)

    return slowly


async def test_each_result_is_passed_on_once_however_long_the_loop_waits() -> None:
    worker = WorkerThread("keystead-test", asyncio.get_running_loop())
    seen: Counter[int] = Counter()
    jobs = 3_000
    for number in range(jobs):
        is_held = number % 3 > 0
        job = worker.submit(lambda number=number: number, lambda got, error: seen.update([got]), is_held=is_held)  # type: ignore[misc]
        if is_held:
            job.finish_within((0, 0.000_01, 0.000_05, 0.001)[number % 4])
    await until(lambda: seen.total() >= jobs, "every job has reported")
    await worker.call(lambda: None)
    assert seen == Counter(range(jobs))
    worker.stop()
