"""Outages pause the schedule; an unreadable state stops one job and no other."""

import asyncio
import logging
from collections.abc import Sequence

import pytest

from keystead import Store, connect
from keystead.errors import StoreFull, StoreUnavailable
from keystead.parts.schedule import Job, ScheduleKeys
from keystead.schema.doctor import examine, repair
from keystead.stores import Command, Outcome, Reply, Step
from tests import servers
from tests.parts.schedule.conftest import (
    MINUTE,
    SECOND,
    Time,
    Work,
    everywhere,
    here,
    history_of,
    schedule_of,
    seen,
    until,
)
from tests.parts.sessions.relays import Relay


class Away(Relay):
    """A store that can be down."""

    away = False
    full = False
    tries = 0

    async def run(self, commands: Sequence[Command]) -> list[Reply]:
        self._check()
        return await super().run(commands)

    async def atomically(self, steps: Sequence[Step]) -> Outcome:
        self._check()
        if self.full:
            raise StoreFull("there is no room left")
        return await super().atomically(steps)

    def _check(self) -> None:
        self.tries += 1
        if self.away:
            raise StoreUnavailable("the store does not answer")


@here
async def test_an_outage_backs_off(store: Store, time: Time, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    away, work = Away(store), Work()
    waited = []
    async with schedule_of(away, time, Job("a.job", "0 15 * * *", work)):
        await time.rested(1)
        away.away = True
        time.pass_until("2026-01-01T15:00:00Z")
        for _ in range(8):
            await time.rested(1)
            waited.append(time.next_ms // SECOND)
            time.pass_ms(time.next_ms)
        await time.rested(1)
        away.away = False
        time.pass_ms(time.next_ms)
        await until(lambda: len(work.ended) == 1)
        await time.rested(1)
    assert waited[:5] == [1, 2, 4, 8, 16]
    assert all(22 <= seconds <= 30 for seconds in waited[5:])
    said = [one.message for one in caplog.records if one.name == "keystead.schedule"]
    assert said == [
        "the schedule is paused until its store is back: the store does not answer",
        "the schedule continues: its store is back",
    ]


async def test_a_schedule_continues_after_an_outage() -> None:
    work = Work()
    with servers.redis("--appendonly", "yes") as server:
        async with connect(f"{server.url}?timeout=500ms") as store:
            time = Time()
            async with schedule_of(store, time, Job("a.job", "0 15 * * *", work)):
                await time.rested(1)
                server.kill()
                time.pass_until("2026-01-01T15:00:00Z")
                for _ in range(3):
                    await time.rested(1)
                    time.pass_ms(time.next_ms)
                server.start()
                await time.rested(1)
                while not work.ended:
                    time.pass_ms(time.next_ms if time.waits else 0)
                    await asyncio.sleep(0.01)
                await time.rested(1)
    assert work.due == ["2026-01-01T15:00Z"]


@here
async def test_an_outcome_is_recorded_after_an_outage_if_the_lease_still_holds(store: Store, time: Time) -> None:
    away, work = Away(store), Work(waits=True, returns={"deleted": 3})
    async with schedule_of(away, time, Job("a.job", "0 15 * * *", work)):
        await time.rested(1)
        time.pass_until("2026-01-01T15:00:00Z")
        await until(lambda: len(work.runs) == 1)
        away.away = True
        work.may_end.set()
        await until(lambda: len(work.ended) == 1)
        tries = away.tries
        time.pass_ms(3 * SECOND)
        await until(lambda: away.tries > tries)
        away.away = False
        while not await history_of(store, "a.job"):
            time.pass_ms(SECOND)
            await asyncio.sleep(0.001)
        await time.rested(1)
    [entry] = await history_of(store, "a.job")
    assert (entry.outcome, entry.result) == ("done", {"deleted": 3})


@here
async def test_a_run_that_cannot_renew_its_lease_in_time_is_cancelled(store: Store, time: Time) -> None:
    away, work = Away(store), Work(waits=True)
    async with schedule_of(away, time, Job("a.job", "0 15 * * *", work, lease="1m")):
        await time.rested(1)
        time.pass_until("2026-01-01T15:00:00Z")
        await until(lambda: len(work.runs) == 1)
        away.away = True
        for _ in range(2):
            time.pass_ms(20 * SECOND)
            await time.rested(1, running=1)
        assert work.cancelled == []
        time.pass_ms(20 * SECOND)
        await until(lambda: len(work.cancelled) == 1)
        away.away = False
        await ScheduleKeys(store).lease("a.job").delete()  # its time is over in the store, too
        work.may_end.set()
        while len(work.ended) < 1:
            time.pass_ms(SECOND)
            await asyncio.sleep(0.001)
        await time.rested(1)
    assert work.numbers == [1, 2]
    assert [(one.number, one.outcome) for one in await history_of(store, "a.job")] == [(1, "lost"), (2, "done")]


@here
async def test_a_store_that_refuses_claims_is_not_polled_in_a_loop(store: Store, time: Time) -> None:
    full, work = Away(store), Work()
    async with schedule_of(full, time, Job("a.job", "0 15 * * *", work)):
        await time.rested(1)
        full.full = True
        time.pass_until("2026-01-01T15:00:00Z")
        await time.rested(1)
        tries = full.tries
        for _ in range(4):
            time.pass_ms(30 * SECOND)
            await time.rested(1)
        assert full.tries - tries <= 8
        full.full = False
        time.pass_ms(30 * SECOND)
        await until(lambda: len(work.ended) == 1)
        await time.rested(1)


@everywhere
@pytest.mark.parametrize("data", ["not JSON", "{}", '{"cron":7}'])
async def test_an_unreadable_state_stops_one_job_and_is_logged_once(
    store: Store, time: Time, caplog: pytest.LogCaptureFixture, data: str
) -> None:
    bad, good = Work(), Work()
    jobs = Job("bad", "* * * * *", bad), Job("good", "* * * * *", good)
    await seen(store, time, *jobs)
    keys = ScheduleKeys(store)
    await store.run([("SET", keys.job("bad").key, data, "KEEPTTL")])
    async with schedule_of(store, time, *jobs):
        for count in (1, 2, 3):
            await time.rested(1)
            time.pass_ms(MINUTE)
            await until(lambda count=count: len(good.ended) == count)  # type: ignore[misc]
        await time.rested(1)
        assert bad.runs == []
        assert sum("bad cannot run" in one.message for one in caplog.records) == 1
        report = await repair([keys], set_aside="all")
        assert [(one.finding.code, one.fixed) for one in report.found] == [("unreadable", True)]
        time.pass_ms(MINUTE)
        await until(lambda: len(good.ended) == 4)
        await time.rested(1)
        time.pass_ms(MINUTE)
        await until(lambda: len(bad.ended) == 1)
        await time.rested(1)


@everywhere
async def test_an_unreadable_job_hides_no_other_in_a_list(store: Store, time: Time) -> None:
    names = ("bad.state", "bad.kind", "bad.entry", "good")
    jobs = [Job(name, "0 15 * * *", Work()) for name in names]
    keys = ScheduleKeys(store)
    await seen(store, time, *jobs)
    schedule = schedule_of(store, time, *jobs)
    entry = await schedule.run_now("good")
    await store.run([("SET", keys.job("bad.state").key, "not JSON", "KEEPTTL")])
    await store.run([("SET", keys.history("bad.kind").key, "x")])
    await store.run([("XADD", keys.history("bad.entry").key, "*", "data", "{}")])
    bad_state, bad_kind, bad_entry, good = await schedule.list()
    assert (bad_state.next_ms, bad_kind.next_ms, bad_entry.next_ms) == (None, good.next_ms, good.next_ms)
    assert all(one.trouble and one.last is None for one in (bad_state, bad_kind, bad_entry))
    assert (good.trouble, good.last) == (None, entry)


@everywhere
async def test_a_key_of_another_kind_stops_one_job_and_no_other(store: Store, time: Time) -> None:
    bad, good = Work(), Work()
    jobs = Job("bad", "* * * * *", bad), Job("good", "* * * * *", good)
    await store.run([("SADD", ScheduleKeys(store).job("bad").key, "x")])
    async with schedule_of(store, time, *jobs):
        await time.rested(1)
        time.pass_ms(MINUTE)
        await until(lambda: len(good.ended) == 1)
        await time.rested(1)
    assert bad.runs == []


@everywhere
async def test_the_doctor_has_no_findings_for_the_schedule(store: Store) -> None:
    time, work = Time("2026-01-01T00:00:30Z"), Work(waits=True)
    async with schedule_of(store, time, Job("a.job", "* * * * *", work), Job("b.job", "* * * * *", Work())):
        await time.rested(1)
        time.pass_ms(MINUTE)
        await until(lambda: len(work.runs) == 1)
        await time.rested(1, running=1)
        report = await examine([ScheduleKeys(store)])
        assert (report.findings, report.examined) == (0, 4)  # two states, a lease, a history
        work.may_end.set()
        await time.rested(1)


@here
async def test_a_lease_without_a_deadline_is_not_polled_in_a_loop(store: Store, time: Time) -> None:
    job = Job("a.job", "* * * * *", Work())
    await seen(store, time, job)
    await store.run([("SET", ScheduleKeys(store).lease("a.job").key, '{"by":"somebody","number":1}')])
    relay = Relay(store)
    async with schedule_of(relay, time, job):
        await time.rested(1)
        time.pass_ms(MINUTE)
        await time.rested(1)
    assert len(relay.log) == 2


@everywhere
async def test_a_history_of_another_kind_does_not_block_runs(store: Store, time: Time) -> None:
    work, history = Work(), ScheduleKeys(store).history("a.job").key
    await store.run([("SET", history, "x")])
    entry = await schedule_of(store, time, Job("a.job", "* * * * *", work)).run_now("a.job")
    assert (entry.outcome, len(work.runs)) == ("done", 1)  # type: ignore[union-attr]
    assert await store.run([("GET", history), ("EXISTS", ScheduleKeys(store).lease("a.job").key)]) == [b"x", 0]
