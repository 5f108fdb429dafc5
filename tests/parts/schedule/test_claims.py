"""Claims: a run starts in one atomic step, and of any number of processes one succeeds."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack

import pytest

from keystead import Store
from keystead.errors import StoreUnavailable
from keystead.parts.schedule import Busy, Job, JobState, RunEntry, Schedule, ScheduleKeys
from keystead.stores import Command, Outcome, Reply, Step
from tests.parts.schedule.conftest import (
    MINUTE,
    Time,
    Work,
    everywhere,
    here,
    history_of,
    let_the_lease_run_out,
    ms,
    schedule_of,
    seen,
    state_of,
    until,
)
from tests.parts.sessions.relays import Actor, Gated, Relay, every_order, in_order

CROWD = 25


@everywhere
async def test_of_many_schedules_on_one_store_one_runs_each_moment(store: Store, time: Time) -> None:
    work = Work()
    async with AsyncExitStack() as stack:
        for _ in range(CROWD):
            await stack.enter_async_context(schedule_of(store, time, Job("a.job", "* * * * *", work)))
        await time.rested(CROWD)
        for count in range(1, 11):
            time.pass_ms(MINUTE)
            await until(lambda count=count: len(work.ended) == count)  # type: ignore[misc]
            await time.rested(CROWD)
    assert work.due == [f"2026-01-01T00:{minute:02}Z" for minute in range(1, 11)]
    assert work.numbers == [*range(1, 11)]
    assert [one.number for one in await history_of(store, "a.job")] == [*range(1, 11)]


@everywhere
async def test_of_concurrent_manual_runs_one_starts_and_the_others_are_busy(store: Store, time: Time) -> None:
    work = Work(waits=True)
    crowd = [schedule_of(store, time, Job("a.job", "0 15 * * *", work)) for _ in range(CROWD)]
    asked = [asyncio.create_task(one.run_now("a.job")) for one in crowd]
    await until(lambda: sum(task.done() for task in asked) == CROWD - 1)
    work.may_end.set()
    told = await asyncio.gather(*asked)
    [made] = [one for one in told if isinstance(one, RunEntry)]
    assert (made.number, made.outcome, made.by_hand, made.due_ms) == (1, "done", True, time.now_ms)
    assert {one for one in told if isinstance(one, Busy)} == {Busy(made.by, time.now_ms)}
    assert len(work.runs) == 1
    assert await history_of(store, "a.job") == [made]


class _LookOnce:
    """A schedule that polls once, finishes its runs, and ends."""

    def __init__(self, store: Store, time: Time, job: Job) -> None:
        self._looked = asyncio.Event()
        self._schedule = Schedule(ScheduleKeys(store, now_ms=time), [job], wait=self._wait)

    async def _wait(self, seconds: float) -> None:
        self._looked.set()
        await asyncio.Event().wait()

    async def __call__(self) -> None:
        async with self._schedule:
            await self._looked.wait()


@pytest.mark.parametrize("store_url", ["memory", "redis", "cluster"], indirect=True)
async def test_in_every_order_two_schedules_run_a_due_moment_once(store: Store, time: Time) -> None:
    async def one(first: Sequence[Actor]) -> list[tuple[Actor, bool]]:
        gated, work = Gated(store), Work()
        job = Job("a.job", "0 15 * * *", work)
        keys = ScheduleKeys(store)
        await keys.job("a.job").delete()
        await keys.job("a.job").set(JobState(cron=job.cron, zone=job.zone, next_ms=time.now_ms - 1))
        order, _ = await in_order(gated, {"a": _LookOnce(gated, time, job), "b": _LookOnce(gated, time, job)}, first)
        assert len(work.runs) == 1, order
        assert [entry.outcome for entry in await history_of(store, "a.job")] == ["done"], order
        assert (await state_of(store, "a.job")).number == 1, order
        assert not await keys.lease("a.job").exists(), order
        return order

    assert await every_order(one) >= 6


@everywhere
async def test_a_run_is_claimed_and_ended_in_one_atomic_step_each(store: Store, time: Time) -> None:
    relay = Relay(store)
    await schedule_of(relay, time, Job("a.job", "0 15 * * *", Work())).run_now("a.job")
    writes = [
        [getattr(step, "command", step)[0] for step in call if not hasattr(step, "key")]
        for call in relay.log
        if any(hasattr(step, "key") for step in call)
    ]
    assert writes == [["SET"], ["SET", "SET"], ["SET", "DEL", "XADD", "PEXPIRE"]]


class _LosesAnAnswer(Relay):
    """The claim takes effect, and its reply is lost."""

    lost = 0

    async def atomically(self, steps: Sequence[Step]) -> Outcome:
        outcome = await super().atomically(steps)
        if not self.lost and any(getattr(step, "command", ("",))[-1] == "NX" for step in steps):
            self.lost += 1
            raise StoreUnavailable("the answer was lost", "unknown")
        return outcome


@everywhere
async def test_a_claim_whose_reply_was_lost_is_run_by_its_process(store: Store, time: Time) -> None:
    work = Work()
    losing = _LosesAnAnswer(store)
    async with schedule_of(losing, time, Job("a.job", "0 15 * * *", work)):
        await time.rested(1)
        time.pass_until("2026-01-01T15:00:00Z")
        await until(lambda: losing.lost == 1)
        await time.rested(1)
        time.pass_ms(MINUTE)
        await until(lambda: len(work.ended) == 1)
        await time.rested(1)
    assert work.numbers == [1]
    assert [one.outcome for one in await history_of(store, "a.job")] == ["done"]


class _HeldUp(Relay):
    """On request, delays replies to reads until they are released."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.may_go = asyncio.Event()
        self.may_go.set()
        self.held = 0

    async def run(self, commands: Sequence[Command]) -> list[Reply]:
        replies = await super().run(commands)
        if not self.may_go.is_set():
            self.held += 1
            await self.may_go.wait()
        return replies


@everywhere
async def test_a_late_read_does_not_repeat_an_ended_run(store: Store, time: Time) -> None:
    work = Work(waits=True)
    late = _HeldUp(store)
    async with schedule_of(late, time, Job("a.job", "0 15 * * *", work)):
        await time.rested(1)
        time.pass_until("2026-01-01T15:00:00Z")
        await until(lambda: len(work.runs) == 1)
        await time.rested(1, running=1)
        late.may_go.clear()
        time.pass_ms(MINUTE // 2)
        await until(lambda: late.held == 1)  # it has read that the job runs here
        work.may_end.set()
        await until(lambda: not any(task.get_name() == "keystead job a.job" for task in asyncio.all_tasks()))
        late.may_go.set()
        await time.rested(1)
    assert work.numbers == [1]
    assert [(one.number, one.outcome) for one in await history_of(store, "a.job")] == [(1, "done")]


@everywhere
async def test_the_fence_of_a_run_grows_also_where_the_store_forgot_the_last_one(store: Store, time: Time) -> None:
    first, second, third = Work(waits=True), Work(), Work()
    keys = ScheduleKeys(store)
    await seen(store, time, Job("a.job", "0 15 * * *", first))
    before = await state_of(store, "a.job")
    going_on = asyncio.create_task(schedule_of(store, time, Job("a.job", "0 15 * * *", first)).run_now("a.job"))
    await until(lambda: len(first.runs) == 1)
    await keys.job("a.job").set(before)  # the store crashed, and has what it had before that run
    await let_the_lease_run_out(store, "a.job")
    time.pass_ms(1)
    await schedule_of(store, time, Job("a.job", "0 15 * * *", second)).run_now("a.job")
    await keys.job("a.job").delete()  # it has forgotten all of it
    time.pass_ms(1)
    await schedule_of(store, time, Job("a.job", "0 15 * * *", third)).run_now("a.job")
    fences = [one.runs[0].fence for one in (first, second, third)]
    assert fences == [time.now_ms - 2, time.now_ms - 1, time.now_ms]
    first.may_end.set()
    await going_on


@here
async def test_the_fencing_token_grows_with_every_run_even_if_the_clock_goes_back(store: Store, time: Time) -> None:
    work = Work()
    schedule = schedule_of(store, time, Job("a.job", "0 15 * * *", work))
    for _ in range(5):
        await schedule.run_now("a.job")
        time.now_ms -= 1_000
    assert [run.fence - work.runs[0].fence for run in work.runs] == [0, 1, 2, 3, 4]


@here
async def test_a_run_by_hand_leaves_the_moments_as_they_are(store: Store, time: Time) -> None:
    work = Work()
    job = Job("a.job", "0 15 * * *", work)
    await seen(store, time, job)
    before = await state_of(store, "a.job")
    schedule = schedule_of(store, time, job)
    assert await schedule.run_now("a.job")
    work.raises = ValueError("no")
    failed = await schedule.run_now("a.job")
    assert isinstance(failed, RunEntry)
    assert failed.outcome == "failed"
    after = await state_of(store, "a.job")
    assert after == before.model_copy(update={"number": 2, "fence": time.now_ms + 1})
    assert after.next_ms == ms("2026-01-01T15:00Z")


@here
async def test_a_run_by_hand_beside_a_claim_of_the_same_process_is_not_a_second_run(store: Store, time: Time) -> None:
    work = Work()
    job = Job("a.job", "0 15 * * *", work)
    await seen(store, time, job)
    time.pass_until("2026-01-01T15:00:00Z")
    async with schedule_of(store, time, job) as schedule:
        asked = [asyncio.create_task(schedule.run_now("a.job")) for _ in range(5)]
        await asyncio.wait(asked)
        await until(lambda: len(work.ended) == len(work.runs))
        await time.rested(1)
    entries = await history_of(store, "a.job")
    assert [one.number for one in entries] == work.numbers == [*range(1, len(work.runs) + 1)]
    assert [one.by_hand for one in entries].count(False) == 1


@here
async def test_there_is_no_polling(store: Store, time: Time) -> None:
    """One read a wake: at the next moment, or about every 30 seconds."""
    relay = Relay(store)
    jobs = [Job(f"job.{n}", "0 15 * * *", Work()) for n in range(5)]
    async with schedule_of(relay, time, *jobs):
        await time.rested(1)
        relay.log.clear()
        for _ in range(20):
            assert 22 <= time.next_ms / 1000 <= 30
            time.pass_ms(time.next_ms)
            await time.rested(1)
        assert len(relay.log) == 20
        time.pass_ms(ms("2026-01-01T14:59:50Z") - time.now_ms)
        await time.rested(1)
        assert 10_000 <= time.next_ms <= 10_101


@here
async def test_wakes_are_spread_apart(store: Store, time: Time) -> None:
    async with AsyncExitStack() as stack:
        for _ in range(10):
            await stack.enter_async_context(schedule_of(store, time, Job("a.job", "0 15 * * *", Work())))
        await time.rested(10)
        assert len({at for at, _ in time.waits}) > 5
