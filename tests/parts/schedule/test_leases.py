"""Leases: renewed while a job runs; a run that loses its lease is stopped and writes nothing."""

import asyncio
import logging
from contextlib import suppress

import pytest

from keystead import Store
from keystead.parts.schedule import Busy, Job, RunEntry, ScheduleKeys
from tests.parts.schedule.conftest import (
    MINUTE,
    SECOND,
    Time,
    Work,
    everywhere,
    here,
    history_of,
    let_the_lease_run_out,
    schedule_of,
    seen,
    state_of,
    until,
)


@everywhere
async def test_the_lease_is_renewed_while_the_job_runs(store: Store, time: Time) -> None:
    work = Work(waits=True)
    job = Job("a.job", "0 15 * * *", work, lease="1m")
    keys = ScheduleKeys(store)
    async with schedule_of(store, time, job), schedule_of(store, time, job):
        await time.rested(2)
        time.pass_until("2026-01-01T15:00:00Z")
        await until(lambda: len(work.runs) == 1)
        await time.rested(2, running=1)
        for _ in range(30):
            await store.run([("PEXPIRE", keys.lease("a.job").key, 30 * SECOND)])  # as if so much time had passed
            time.pass_ms(20 * SECOND)
            await time.rested(2, running=1)
            left = await keys.lease("a.job").remaining()
            assert left is not None
            assert 50 < left.total_seconds() <= 60
        work.may_end.set()
        await until(lambda: len(work.ended) == 1)
        await time.rested(2)
    assert len(work.runs) == 1
    assert not await keys.lease("a.job").exists()


@everywhere
async def test_a_run_whose_lease_ran_out_is_cancelled_and_made_by_another_with_a_higher_number(
    store: Store, time: Time
) -> None:
    stuck, other = Work(waits=True), Work(waits=True)
    async with schedule_of(store, time, Job("a.job", "0 15 * * *", stuck)):
        await time.rested(1)
        time.pass_until("2026-01-01T15:00:00Z")
        await until(lambda: len(stuck.runs) == 1)
        await let_the_lease_run_out(store, "a.job")  # its process was stopped for longer than that
        async with schedule_of(store, time, Job("a.job", "0 15 * * *", other)):
            await until(lambda: len(other.runs) == 1)
            assert stuck.cancelled == []
            time.pass_ms(25 * SECOND)  # the first one wakes up, and finds the lease of another
            await until(lambda: len(stuck.cancelled) == 1)
            other.may_end.set()
            await until(lambda: len(other.ended) == 1)
            await time.rested(2)
    assert (stuck.numbers, other.numbers) == ([1], [2])
    assert stuck.due == other.due
    assert [(one.number, one.outcome) for one in await history_of(store, "a.job")] == [(1, "lost"), (2, "done")]


@everywhere
async def test_a_run_that_lost_its_lease_unnoticed_records_nothing(
    store: Store, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    work = Work(waits=True, returns={"deleted": 7})
    job = Job("a.job", "0 15 * * *", work)
    schedule = schedule_of(store, time, job)
    asked = asyncio.create_task(schedule.run_now("a.job"))
    await until(lambda: len(work.runs) == 1)
    before = await state_of(store, "a.job")
    await let_the_lease_run_out(store, "a.job")
    work.may_end.set()
    told = await asked
    assert isinstance(told, RunEntry)
    assert (told.outcome, told.result) == ("lost", {})
    assert await state_of(store, "a.job") == before
    assert await history_of(store, "a.job") == []
    assert "nothing was recorded" in caplog.text


@everywhere
async def test_no_process_can_renew_or_end_the_lease_of_another(store: Store, time: Time) -> None:
    stuck, other = Work(waits=True), Work(waits=True)
    first = schedule_of(store, time, Job("a.job", "0 15 * * *", stuck))
    second = schedule_of(store, time, Job("a.job", "0 15 * * *", other))
    one = asyncio.create_task(first.run_now("a.job"))
    await until(lambda: len(stuck.runs) == 1)
    await let_the_lease_run_out(store, "a.job")
    two = asyncio.create_task(second.run_now("a.job"))
    await until(lambda: len(other.runs) == 1)
    stuck.may_end.set()
    lost = await one
    assert isinstance(lost, RunEntry)
    assert lost.outcome == "lost"
    lease = await ScheduleKeys(store).lease("a.job").get()
    assert lease is not None
    assert (lease.by, lease.number) == (second.by, 2)
    other.may_end.set()
    done = await two
    assert isinstance(done, RunEntry)
    assert (done.number, done.outcome) == (2, "done")


@here
async def test_a_lost_manual_run_is_reported_and_not_retried(store: Store, time: Time) -> None:
    stuck, work = Work(waits=True), Work()
    asked = asyncio.create_task(schedule_of(store, time, Job("a.job", "0 15 * * *", stuck)).run_now("a.job"))
    await until(lambda: len(stuck.runs) == 1)
    await let_the_lease_run_out(store, "a.job")
    async with schedule_of(store, time, Job("a.job", "0 15 * * *", work)):
        await time.rested(1, running=1)
    assert work.runs == []
    assert [(one.outcome, one.by_hand) for one in await history_of(store, "a.job")] == [("lost", True)]
    stuck.may_end.set()
    await asked


# --- a stop --------------------------------------------------------------------------------------------------


@everywhere
async def test_a_stop_waits_for_the_job_that_runs(store: Store, time: Time) -> None:
    work = Work(waits=True)
    schedule = schedule_of(store, time, Job("a.job", "0 15 * * *", work))
    looping = asyncio.create_task(schedule.run())
    await time.rested(1)
    time.pass_until("2026-01-01T15:00:00Z")
    await until(lambda: len(work.runs) == 1)
    looping.cancel()
    await time.asked_to_wait(10 * SECOND)
    time.pass_ms(9 * SECOND)
    await time.rested(1, running=1)
    assert not looping.done()
    work.may_end.set()
    await asyncio.wait({looping})
    assert looping.cancelled()
    assert [one.outcome for one in await history_of(store, "a.job")] == ["done"]


@everywhere
async def test_a_stop_cancels_slow_runs_and_another_process_takes_over_at_its_next_poll(
    store: Store, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    work, other = Work(waits=True), Work()
    looping = asyncio.create_task(schedule_of(store, time, Job("a.job", "0 15 * * *", work), stop_within="10s").run())
    await time.rested(1)
    time.pass_until("2026-01-01T15:00:00Z")
    await until(lambda: len(work.runs) == 1)
    looping.cancel()
    await time.asked_to_wait(10 * SECOND)
    time.pass_ms(10 * SECOND)
    await asyncio.wait({looping})
    assert work.cancelled == work.runs
    assert not await ScheduleKeys(store).lease("a.job").exists()
    async with schedule_of(store, time, Job("a.job", "0 15 * * *", other)):
        await until(lambda: len(other.ended) == 1)
        await time.rested(1)
    assert other.due == work.due
    assert [(one.number, one.outcome) for one in await history_of(store, "a.job")] == [(1, "stopped"), (2, "done")]
    assert [one for one in caplog.records if one.levelno >= logging.ERROR] == []


@here
async def test_a_job_that_will_not_be_cancelled_keeps_its_lease_and_the_schedule_stops(
    store: Store, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    may_end = asyncio.Event()
    began = asyncio.Event()

    async def stubborn(run: object) -> None:
        began.set()
        while not may_end.is_set():
            with suppress(asyncio.CancelledError):
                await may_end.wait()

    looping = asyncio.create_task(schedule_of(store, time, Job("a.job", "0 15 * * *", stubborn, lease="7m")).run())
    await time.rested(1)
    time.pass_until("2026-01-01T15:00:00Z")
    await began.wait()
    looping.cancel()
    for given_ms in (10 * SECOND, 5 * SECOND):  # to let it end, and to cancel it
        await time.asked_to_wait(given_ms)
        time.pass_ms(given_ms)
    await asyncio.wait({looping})
    assert await ScheduleKeys(store).lease("a.job").exists()
    assert "is still running although it was cancelled" in caplog.text
    may_end.set()
    await until(lambda: not any(task.get_name().startswith("keystead") for task in asyncio.all_tasks()))


@here
async def test_a_cancelled_manual_run_is_reported_and_not_retried(store: Store, time: Time) -> None:
    work = Work(waits=True)
    job = Job("a.job", "0 15 * * *", work)
    asked = asyncio.create_task(schedule_of(store, time, job).run_now("a.job"))
    await until(lambda: len(work.runs) == 1)
    asked.cancel()
    await asyncio.wait({asked})
    assert asked.cancelled()
    assert [(one.outcome, one.by_hand) for one in await history_of(store, "a.job")] == [("stopped", True)]
    async with schedule_of(store, time, job):
        await time.rested(1)
    assert len(work.runs) == 1


@here
async def test_a_list_shows_the_running_job_and_the_last_outcome(store: Store, time: Time) -> None:
    work = Work(waits=True, returns={"deleted": 3})
    schedule = schedule_of(store, time, Job("a.job", "0 15 * * *", work), Job("b.job", "0 16 * * *", Work()))
    began_ms = time.now_ms
    asked = asyncio.create_task(schedule.run_now("a.job"))
    await until(lambda: len(work.runs) == 1)
    time.pass_ms(5 * SECOND)
    running, idle = await schedule.list()
    assert running.running == Busy(schedule.by, began_ms)
    assert (idle.running, idle.last) == (None, None)
    work.may_end.set()
    entry = await asked
    [running, _] = await schedule.list()
    assert (running.running, running.last) == (None, entry)
    assert isinstance(entry, RunEntry)
    assert (entry.result, entry.ended_ms - entry.began_ms) == ({"deleted": 3}, 5 * SECOND)
    assert await schedule.history("a.job") == [entry]


@here
async def test_the_history_keeps_the_last_hundred_runs(store: Store, time: Time) -> None:
    schedule = schedule_of(store, time, Job("a.job", "0 15 * * *", Work()))
    for _ in range(105):
        await schedule.run_now("a.job")
    found = await schedule.history("a.job", limit=1000)
    assert [one.number for one in found] == [*range(105, 5, -1)]


@everywhere
async def test_written_keys_have_the_lifetime_of_their_family(store: Store, time: Time) -> None:
    work = Work(waits=True)
    job = Job("a.job", "0 15 * * *", work, lease="5m")
    await seen(store, time, job)
    schedule = schedule_of(store, time, job)
    await _one_run(schedule, work)
    work.may_end.clear()
    asked = asyncio.create_task(schedule.run_now("a.job"))
    await until(lambda: len(work.runs) == 2)
    keys = ScheduleKeys(store)
    for key, longest_ms in ((keys.job("a.job"), 400 * 86_400_000), (keys.history("a.job"), 400 * 86_400_000)):
        left = await key.remaining()
        assert left is not None
        assert longest_ms - MINUTE < left.total_seconds() * 1000 <= longest_ms
    left = await keys.lease("a.job").remaining()
    assert left is not None
    assert 4 * MINUTE < left.total_seconds() * 1000 <= 5 * MINUTE
    work.may_end.set()
    await asked


async def _one_run(schedule: object, work: Work) -> None:
    work.may_end.set()
    await schedule.run_now("a.job")  # type: ignore[attr-defined]
