"""Group commit: waiting jobs run together, and a bad job fails alone."""

import asyncio
from collections.abc import Sequence

import pytest

from keystead.errors import BadValue, StoreUnavailable
from keystead.kits.teamwork.service.batches import Batches


class Runs:
    """Runs jobs, which are numbers, and records the batches. Negative ones fail."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.is_away = False

    async def __call__(self, jobs: Sequence[int]) -> list[int]:
        self.batches.append(list(jobs))
        await self.may_go_on.wait()
        if self.is_away:
            raise StoreUnavailable("away")
        if min(jobs) < 0:
            raise BadValue(f"{min(jobs)} is wrong")
        return [10 * job for job in jobs]


async def test_a_single_job_runs_immediately_and_later_ones_run_together() -> None:
    runs = Runs()
    batches = Batches(runs, lambda job: 1, 60)
    runs.may_go_on.clear()
    first = asyncio.create_task(batches.add(1))
    await asyncio.sleep(0)
    rest = [asyncio.create_task(batches.add(job)) for job in range(2, 102)]
    await asyncio.sleep(0)
    runs.may_go_on.set()
    assert await asyncio.gather(first, *rest) == [10 * job for job in range(1, 102)]
    assert [len(batch) for batch in runs.batches] == [1, 60, 40]
    assert await batches.add(7) == 70


async def test_a_bad_job_fails_alone_after_few_runs() -> None:
    runs = Runs()
    batches = Batches(runs, lambda job: 1, 1_000)
    jobs = [*range(1, 200), -5, *range(200, 257)]
    outcomes = await asyncio.gather(*map(batches.add, jobs), return_exceptions=True)
    assert [one for one in outcomes if isinstance(one, int)] == [10 * job for job in jobs if job > 0]
    assert [type(one) for one in outcomes if not isinstance(one, int)] == [BadValue]
    assert len(runs.batches) <= 20


async def test_a_store_outage_fails_the_whole_batch_in_one_run() -> None:
    runs = Runs()
    runs.is_away = True
    batches = Batches(runs, lambda job: 1, 1_000)
    outcomes = await asyncio.gather(*map(batches.add, range(50)), return_exceptions=True)
    assert {type(one) for one in outcomes} == {StoreUnavailable}
    assert len(runs.batches) == 1
    runs.is_away = False
    assert await batches.add(1) == 10


async def test_a_cancelled_waiting_job_is_not_run_and_blocks_no_other() -> None:
    runs = Runs()
    batches = Batches(runs, lambda job: 1, 1_000)
    runs.may_go_on.clear()
    tasks = [asyncio.create_task(batches.add(job)) for job in range(1, 4)]
    await asyncio.sleep(0)
    late = asyncio.create_task(batches.add(9))
    later = asyncio.create_task(batches.add(10))
    await asyncio.sleep(0)
    tasks[0].cancel()  # already running, so it takes effect
    late.cancel()
    runs.may_go_on.set()
    assert await asyncio.gather(*tasks[1:], later) == [20, 30, 100]
    assert runs.batches == [[1, 2, 3], [10]]
    with pytest.raises(asyncio.CancelledError):
        await late


async def test_a_job_larger_than_a_batch_runs_alone() -> None:
    runs = Runs()
    batches = Batches(runs, lambda job: job, 100)
    await asyncio.gather(*map(batches.add, [40, 50, 500, 60, 30]))
    assert runs.batches == [[40, 50], [500], [60, 30]]
