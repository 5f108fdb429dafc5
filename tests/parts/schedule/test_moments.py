"""Scheduled times: each is run once, also around daylight saving changes; missed runs are caught up as declared."""

import pytest

from keystead import Store
from keystead.parts.schedule import Job, JobState, Missed, ScheduleKeys, due_runs
from tests.parts.schedule.conftest import (
    DAY,
    MINUTE,
    SECOND,
    Time,
    Work,
    everywhere,
    here,
    history_of,
    ms,
    schedule_of,
    seen,
    state_of,
    until,
)


@everywhere
async def test_a_job_runs_at_its_moments_and_not_when_it_is_first_seen(store: Store, time: Time) -> None:
    work = Work()
    async with schedule_of(store, time, Job("a.job", "0 15 * * *", work)):
        await time.rested(1)
        time.pass_until("2026-01-01T14:59:00Z")
        await time.rested(1)
        assert work.runs == []
        for day in (1, 2, 3):
            time.pass_until(f"2026-01-0{day}T15:00:00Z")
            await until(lambda day=day: len(work.ended) == day)  # type: ignore[misc]
            await time.rested(1)
    assert work.due == ["2026-01-01T15:00Z", "2026-01-02T15:00Z", "2026-01-03T15:00Z"]
    assert work.numbers == [1, 2, 3]
    assert [(one.number, one.outcome) for one in await history_of(store, "a.job")] == [
        (1, "done"),
        (2, "done"),
        (3, "done"),
    ]


@here
@pytest.mark.parametrize(
    ("missed", "due"),
    [
        ("once", ["2026-01-04T15:00Z"]),
        ("each", [f"2026-01-0{day}T15:00Z" for day in (1, 2, 3, 4)]),
        ("skip", []),
    ],
)
async def test_moments_missed_in_a_stop_are_caught_up_with_as_stated(
    store: Store, time: Time, missed: Missed, due: list[str]
) -> None:
    work = Work()
    job = Job("a.job", "0 15 * * *", work, missed=missed)
    await seen(store, time, job)
    time.pass_until("2026-01-05T09:00:00Z")
    async with schedule_of(store, time, job):
        await until(lambda: len(work.ended) == len(due))
        await time.rested(1)
        assert work.due == due
        time.pass_until("2026-01-05T15:00:00Z")
        await until(lambda: len(work.ended) == len(due) + 1)
        await time.rested(1)
    assert work.due == [*due, "2026-01-05T15:00Z"]


@here
@pytest.mark.parametrize(("late_ms", "count"), [(60_000, 1), (60_001, 0)])
async def test_skipped_runs_are_more_than_a_minute_late(store: Store, time: Time, late_ms: int, count: int) -> None:
    work = Work()
    job = Job("a.job", "0 15 * * *", work, missed="skip")
    await seen(store, time, job)
    time.pass_ms(ms("2026-01-01T15:00Z") + late_ms - time.now_ms)
    async with schedule_of(store, time, job):
        await until(lambda: len(work.ended) == count)
        await time.rested(1)
    assert len(work.runs) == count
    assert (await state_of(store, "a.job")).next_ms == ms("2026-01-02T15:00Z")


@here
@pytest.mark.parametrize(
    ("missed", "due"),
    [
        ("once", ["2026-01-01T00:01Z", "2026-01-01T00:05Z"]),
        ("each", [f"2026-01-01T00:0{minute}Z" for minute in (1, 2, 3, 4, 5)]),
        ("skip", ["2026-01-01T00:01Z", "2026-01-01T00:05Z"]),
    ],
)
async def test_moments_that_come_while_the_job_runs_are_missed_ones(
    store: Store, time: Time, missed: Missed, due: list[str]
) -> None:
    work = Work(waits=True)
    async with schedule_of(store, time, Job("a.job", "* * * * *", work, missed=missed, lease="1h")):
        await time.rested(1)
        time.pass_until("2026-01-01T00:01:00Z")
        await until(lambda: len(work.runs) == 1)
        time.pass_until("2026-01-01T00:05:00Z")
        work.may_end.set()
        await until(lambda: len(work.ended) == len(due))
        await time.rested(1)
    assert work.due == due


@here
async def test_the_one_run_for_a_year_of_missed_minutes_starts_immediately(store: Store, time: Time) -> None:
    work = Work()
    job = Job("a.job", "* * * * *", work)
    await seen(store, time, job)
    time.pass_ms(365 * DAY)
    async with schedule_of(store, time, job):
        await until(lambda: len(work.ended) == 1, seconds=2)
        await time.rested(1)
    assert work.due == ["2027-01-01T00:00Z"]


# --- clocks that change --------------------------------------------------------------------------------------

BERLIN_FORWARD = ["2026-03-28T01:30Z", "2026-03-29T01:00Z", "2026-03-30T00:30Z"]  # 02:30 does not exist on the 29th
BERLIN_BACK = ["2026-10-24T00:30Z", "2026-10-25T00:30Z", "2026-10-26T01:30Z"]  # 02:30 comes twice on the 25th
NEW_YORK_FORWARD = ["2026-03-07T07:30Z", "2026-03-08T07:00Z", "2026-03-09T06:30Z"]
NEW_YORK_BACK = ["2026-10-31T05:30Z", "2026-11-01T05:30Z", "2026-11-02T06:30Z"]


@pytest.mark.matrix
@here
@pytest.mark.parametrize(
    ("zone", "cron", "start", "due"),
    [
        ("Europe/Berlin", "30 2 * * *", "2026-03-28T00:00:00Z", BERLIN_FORWARD),
        ("Europe/Berlin", "30 2 * * *", "2026-10-24T00:00:00Z", BERLIN_BACK),
        ("America/New_York", "30 2 * * *", "2026-03-07T00:00:00Z", NEW_YORK_FORWARD),
        ("America/New_York", "30 1 * * *", "2026-10-31T00:00:00Z", NEW_YORK_BACK),
    ],
)
async def test_a_job_at_a_fixed_hour_runs_once_a_day_also_when_clocks_change(
    store: Store, zone: str, cron: str, start: str, due: list[str]
) -> None:
    time, work = Time(start), Work()
    async with schedule_of(store, time, Job("a.job", cron, work, zone=zone)):
        for _ in range(3 * 24 * 4):  # a quarter of an hour at a time, so that it is late for nothing
            await time.rested(1)
            count = len(work.runs)
            time.pass_ms(15 * MINUTE)
            await time.rested(1)
            assert len(work.runs) - count <= 1
    assert work.due == due


@here
@pytest.mark.parametrize("missed", ["once", "each", "skip"])
@pytest.mark.parametrize("start", ["2026-03-28T12:00:00Z", "2026-10-24T12:00:00Z"])
async def test_a_job_every_half_hour_runs_in_real_time_across_daylight_saving(
    store: Store, start: str, missed: Missed
) -> None:
    time, work = Time(start), Work()
    async with schedule_of(store, time, Job("a.job", "*/30 * * * *", work, zone="Europe/Berlin", missed=missed)):
        for _ in range(48):
            await time.rested(1)
            time.pass_ms(30 * MINUTE)
            await until(lambda: len(work.ended) == len(work.runs))
        await time.rested(1)
    assert [run.due_ms - ms(start) for run in work.runs] == [n * 30 * MINUTE for n in range(1, 49)]


@here
@pytest.mark.parametrize(("zone", "night"), [("Europe/Berlin", "2026-10-25"), ("America/New_York", "2026-11-01")])
async def test_a_schedule_that_begins_in_the_hour_that_comes_twice_runs_nothing_of_the_first(
    store: Store, zone: str, night: str
) -> None:
    cron = "30 2 * * *" if zone == "Europe/Berlin" else "30 1 * * *"
    second = f"{night}T01:10:00Z" if zone == "Europe/Berlin" else f"{night}T06:10:00Z"
    time, work = Time(second), Work()
    async with schedule_of(store, time, Job("a.job", cron, work, zone=zone)):
        await time.rested(1)
        time.pass_ms(2 * 3_600_000)
        await time.rested(1)
    assert work.runs == []


@here
async def test_days_missed_around_a_change_of_clocks_are_each_run_once(store: Store) -> None:
    time, work = Time("2026-03-28T00:00:00Z"), Work()
    job = Job("a.job", "30 2 * * *", work, zone="Europe/Berlin", missed="each")
    await seen(store, time, job)
    time.pass_until("2026-03-30T12:00:00Z")
    async with schedule_of(store, time, job):
        await until(lambda: len(work.ended) == 3)
        await time.rested(1)
    assert work.due == BERLIN_FORWARD


# --- another cron text ---------------------------------------------------------------------------------------


@everywhere
async def test_a_changed_cron_expression_takes_effect_without_an_extra_run(store: Store, time: Time) -> None:
    work = Work()
    await seen(store, time, Job("a.job", "0 15 * * *", work))
    time.pass_until("2026-01-01T14:30:00Z")
    async with schedule_of(store, time, Job("a.job", "0 14 * * *", work)):
        await time.rested(1)
        time.pass_until("2026-01-01T15:00:00Z")
        await time.rested(1)
        assert work.runs == []
        time.pass_until("2026-01-02T14:00:00Z")
        await until(lambda: len(work.ended) == 1)
        await time.rested(1)
    assert work.due == ["2026-01-02T14:00Z"]


@here
async def test_a_changed_time_zone_takes_effect_and_run_numbers_continue(store: Store, time: Time) -> None:
    work = Work()
    async with schedule_of(store, time, Job("a.job", "0 15 * * *", work)):
        await time.rested(1)
        time.pass_until("2026-01-01T15:00:00Z")
        await until(lambda: len(work.ended) == 1)
        await time.rested(1)
    async with schedule_of(store, time, Job("a.job", "0 15 * * *", work, zone="America/New_York")):
        await time.rested(1)
        time.pass_until("2026-01-01T20:00:00Z")
        await until(lambda: len(work.ended) == 2)
        await time.rested(1)
    assert (work.due, work.numbers) == (["2026-01-01T15:00Z", "2026-01-01T20:00Z"], [1, 2])


@here
async def test_while_two_versions_run_side_by_side_neither_loses_its_moment_nor_runs_it_twice(
    store: Store, time: Time
) -> None:
    old, new = Work(), Work()
    versions = [schedule_of(store, time, Job("a.job", "0 15 * * *", old)) for _ in range(2)]
    versions += [schedule_of(store, time, Job("a.job", "30 15 * * *", new)) for _ in range(2)]
    async with versions[0], versions[1], versions[2], versions[3]:
        await time.rested(4)
        time.pass_until("2026-01-01T14:50:00Z")
        while time.now_ms < ms("2026-01-01T15:45Z"):
            await time.rested(4)
            time.pass_ms(max(1, time.next_ms))
            await until(lambda: len(old.runs) == len(old.ended) and len(new.runs) == len(new.ended))
        await time.rested(4)
    assert (old.due, new.due) == (["2026-01-01T15:00Z"], ["2026-01-01T15:30Z"])


@here
async def test_a_moment_that_comes_while_the_other_version_runs_the_job_is_not_lost(store: Store, time: Time) -> None:
    work = Work()
    keys = ScheduleKeys(store)
    await seen(store, time, Job("a.job", "0 15 * * *", Work()))
    async with schedule_of(store, time, Job("a.job", "30 15 * * *", work)):
        await time.rested(1)
        await seen_by_another_version(store, time)
        await store.run([("SET", keys.lease("a.job").key, '{"by":"another","number":1}', "PX", 3_600_000)])
        time.pass_until("2026-01-01T15:30:00Z")
        await time.rested(1)
        await keys.lease("a.job").delete()
        time.pass_ms(MINUTE)
        await until(lambda: len(work.ended) == 1)
        await time.rested(1)
    assert work.due == ["2026-01-01T15:30Z"]


async def seen_by_another_version(store: Store, time: Time) -> None:
    state = await state_of(store, "a.job")
    await ScheduleKeys(store).job("a.job").set(state.model_copy(update={"cron": "0 16 * * *"}))


# --- clocks that are wrong -----------------------------------------------------------------------------------


@everywhere
async def test_a_clock_that_was_a_year_ahead_does_not_stop_the_job(
    store: Store, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    work, early = Work(), Work()
    ahead = Time()
    ahead.pass_ms(365 * DAY)
    async with schedule_of(store, time, Job("a.job", "0 15 * * *", work)):
        await time.rested(1)
        async with schedule_of(store, ahead, Job("a.job", "0 15 * * *", early)):
            await until(lambda: len(early.ended) == 1)
            await ahead.rested(1)
        for day in (1, 2, 3):
            time.pass_until(f"2026-01-0{day}T15:00:00Z")
            await time.rested(1)
    assert work.due[-2:] == ["2026-01-02T15:00Z", "2026-01-03T15:00Z"]
    assert caplog.text.count("is replanned") == 1


@here
async def test_a_machine_whose_clock_stays_ahead_does_not_run_the_job_without_a_pause(store: Store, time: Time) -> None:
    work, early = Work(), Work()
    ahead = Time()
    ahead.pass_ms(365 * DAY)
    jobs = [Job("a.job", "0 * * * *", work), Job("a.job", "0 * * * *", early)]
    async with schedule_of(store, time, jobs[0]), schedule_of(store, ahead, jobs[1]):
        await _both_go_on(time, ahead, times=5 * 12, by_ms=5 * MINUTE)
    assert 5 <= len(work.runs) + len(early.runs) <= 12


@here
@pytest.mark.parametrize("ahead_ms", [30 * SECOND, 59 * MINUTE])
async def test_a_clock_that_is_less_than_an_hour_ahead_makes_no_moment_run_twice(
    store: Store, time: Time, ahead_ms: int
) -> None:
    work, early = Work(), Work()
    time.pass_until("2026-01-01T14:00:00Z")
    ahead = Time()
    ahead.pass_ms(time.now_ms + ahead_ms - ahead.now_ms)
    jobs = [Job("a.job", "0 15 * * *", work), Job("a.job", "0 15 * * *", early)]
    async with schedule_of(store, time, jobs[0]), schedule_of(store, ahead, jobs[1]):
        await _both_go_on(time, ahead, times=90, by_ms=MINUTE)
    assert work.due + early.due == ["2026-01-01T15:00Z"]


async def _both_go_on(time: Time, ahead: Time, *, times: int, by_ms: int) -> None:
    for _ in range(times):
        for one in (time, ahead):
            await one.rested(1)
            one.pass_ms(by_ms)
    await time.rested(1)
    await ahead.rested(1)


@here
async def test_a_list_shows_the_next_run_although_a_clock_was_wrong(store: Store, time: Time) -> None:
    job = Job("a.job", "0 15 * * *", Work())
    ahead = Time()
    ahead.pass_ms(365 * DAY)
    await seen(store, ahead, job)
    [found] = await schedule_of(store, time, job).list()
    assert found.next_ms == ms("2026-01-01T15:00Z")


@here
async def test_of_moments_that_are_to_be_run_each_the_last_thousand_are(store: Store, time: Time) -> None:
    job = Job("a.job", "* * * * *", Work(), missed="each")
    await seen(store, time, job)
    time.pass_ms(365 * DAY)
    turn = due_runs.next_step(job, await state_of(store, "a.job"), time.now_ms)
    assert isinstance(turn, JobState)
    assert turn.next_ms == ms("2027-01-01T00:00Z") - 999 * MINUTE
    first = due_runs.next_step(job, turn, time.now_ms)
    assert isinstance(first, due_runs.DueRun)
    assert first.due_ms == turn.next_ms


# --- one more run --------------------------------------------------------------------------------------------


@everywhere
async def test_a_job_can_ask_for_one_more_run(store: Store, time: Time) -> None:
    numbers: list[int] = []

    async def batch(run: object) -> None:
        numbers.append(run.number)  # type: ignore[attr-defined]
        if len(numbers) < 3:
            run.again_after("5m")  # type: ignore[attr-defined]

    async with schedule_of(store, time, Job("a.job", "0 15 * * *", batch)):
        await time.rested(1)
        time.pass_until("2026-01-01T15:00:00Z")
        for count in (1, 2, 3):
            await until(lambda count=count: len(numbers) == count)  # type: ignore[misc]
            await time.rested(1)
            time.pass_ms(4 * MINUTE)
            await time.rested(1)
            assert len(numbers) == count
            time.pass_ms(1 * MINUTE + SECOND)
        await time.rested(1)
        time.pass_ms(60 * MINUTE)
        await time.rested(1)
    assert numbers == [1, 2, 3]


@here
async def test_an_earlier_scheduled_run_replaces_the_requested_one(store: Store, time: Time) -> None:
    dues: list[int] = []

    async def batch(run: object) -> None:
        dues.append(run.due_ms)  # type: ignore[attr-defined]
        if len(dues) == 1:
            run.again_after("90s")  # type: ignore[attr-defined]

    async with schedule_of(store, time, Job("a.job", "* * * * *", batch)):
        await time.rested(1)
        for minute in (1, 2, 3):
            time.pass_until(f"2026-01-01T00:0{minute}:00Z")
            await until(lambda minute=minute: len(dues) == minute)  # type: ignore[misc]
            await time.rested(1)
            time.pass_ms(45 * SECOND)
            await time.rested(1)
    assert dues == [ms(f"2026-01-01T00:0{minute}Z") for minute in (1, 2, 3)]


# --- lifetimes -----------------------------------------------------------------------------------------------


@everywhere
async def test_a_job_whose_moments_are_years_apart_is_not_forgotten_between_them(store: Store, time: Time) -> None:
    work = Work()
    keys = ScheduleKeys(store)
    async with schedule_of(store, time, Job("a.job", "0 0 29 2 *", work)):
        await time.rested(1)
        await store.run([("PEXPIRE", keys.job("a.job").key, 5 * MINUTE)])
        time.pass_ms(DAY)
        await time.rested(1)
        left = await keys.job("a.job").remaining()
    assert left is not None
    assert left.days >= 399
