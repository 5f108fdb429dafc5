"""Failures: recorded without secrets, and retried with back-off, never later than the next scheduled time."""

import asyncio
import json
import logging
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest

from keystead import Store
from keystead.errors import BadValue
from keystead.parts.schedule import Job, Missed, Run, due_runs
from tests.parts.schedule.conftest import (
    MINUTE,
    SECOND,
    Time,
    Work,
    everywhere,
    here,
    history_of,
    ms,
    schedule_of,
    state_of,
    until,
)


@everywhere
async def test_a_run_that_fails_is_tried_again_after_1_2_4_minutes_and_so_on_up_to_an_hour(
    store: Store, time: Time
) -> None:
    work = Work()
    work.raises = ValueError("no")
    began: list[int] = []
    async with schedule_of(store, time, Job("a.job", "0 15 * * *", work)):
        await time.rested(1)
        time.pass_until("2026-01-01T15:00:00Z")
        for count in range(1, 11):
            await until(lambda count=count: len(work.runs) == count)  # type: ignore[misc]
            began.append(time.now_ms)
            await time.rested(1)
            await _to_the_next_run(time, store)
        work.raises = None
        await until(lambda: len(work.runs) == 11)
        await time.rested(1)
    waited = [(later - earlier) // MINUTE for earlier, later in pairwise(began)]
    assert waited == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert set(work.due) == {"2026-01-01T15:00Z"}
    assert [one.outcome for one in await history_of(store, "a.job")][:10] == ["failed"] * 10


async def _to_the_next_run(time: Time, store: Store) -> None:
    again = (await state_of(store, "a.job")).again
    assert again is not None
    time.pass_ms(again.at_ms - 1 - time.now_ms)
    await time.rested(1)
    time.pass_ms(200)


@here
async def test_a_success_ends_the_back_off(store: Store, time: Time) -> None:
    work = Work()
    work.raises = ValueError("no")
    async with schedule_of(store, time, Job("a.job", "0 15 * * *", work)) as schedule:
        await time.rested(1)
        time.pass_until("2026-01-01T15:00:00Z")
        await until(lambda: len(work.runs) == 1)
        await time.rested(1)
        [found] = await schedule.list()
        assert found.next_ms is not None
        assert (found.failures, found.next_ms // SECOND) == (1, ms("2026-01-01T15:01:01Z") // SECOND)
        work.raises = None
        time.pass_ms(MINUTE + SECOND)
        await until(lambda: len(work.ended) == 1)
        await time.rested(1)
        [found] = await schedule.list()
        assert (found.failures, found.next_ms) == (0, ms("2026-01-02T15:00Z"))


@pytest.mark.matrix
@here
@pytest.mark.parametrize("missed", ["once", "each", "skip"])
async def test_it_is_never_tried_later_than_the_next_moment(store: Store, time: Time, missed: Missed) -> None:
    work = Work()
    work.raises = ValueError("no")
    async with schedule_of(store, time, Job("a.job", "*/5 * * * *", work, missed=missed)):
        await time.rested(1)
        while time.now_ms < ms("2026-01-01T01:00:00Z"):
            await time.rested(1)
            time.pass_ms(15 * SECOND)
            await time.rested(1)
        tried = {one.began_ms // (5 * MINUTE) for one in await history_of(store, "a.job")}
    assert tried == set(range(min(tried), max(tried) + 1))  # in each five minutes
    assert len(tried) >= 11


@here
async def test_moments_that_are_to_be_run_each_wait_for_the_one_that_failed(store: Store, time: Time) -> None:
    work = Work()
    work.raises = ValueError("no")
    async with schedule_of(store, time, Job("a.job", "* * * * *", work, missed="each")):
        await time.rested(1)
        for minute in range(1, 6):
            time.pass_until(f"2026-01-01T00:0{minute}:00Z")
            await until(lambda minute=minute: len(work.runs) == minute)  # type: ignore[misc]
            await time.rested(1)
        assert set(work.due) == {"2026-01-01T00:01Z"}
        work.raises = None
        time.pass_until("2026-01-01T00:06:00Z")
        await until(lambda: len(work.ended) == 6)
        await time.rested(1)
    assert work.due[5:] == [f"2026-01-01T00:0{minute}Z" for minute in range(1, 7)]


@here
async def test_missed_runs_of_a_failing_job_back_off(store: Store, time: Time) -> None:
    work = Work(waits=True)
    work.raises = ValueError("no")
    async with schedule_of(store, time, Job("a.job", "* * * * *", work, lease="1h")):
        await time.rested(1)
        time.pass_until("2026-01-01T00:01:00Z")
        await until(lambda: len(work.runs) == 1)
        time.pass_until("2026-01-01T00:10:30Z")
        work.may_end.set()
        await time.rested(1)
        assert len(work.runs) == 1
        time.pass_until("2026-01-01T00:11:00Z")
        await until(lambda: len(work.runs) == 2)
        await time.rested(1)
    assert work.due == ["2026-01-01T00:01Z", "2026-01-01T00:11Z"]


@everywhere
async def test_an_error_of_a_library_is_recorded_by_its_name_alone(
    store: Store, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    work = Work()
    work.raises = ConnectionError("https://user:hunter2@blobs.example refused")
    await schedule_of(store, time, Job("a.job", "0 15 * * *", work)).run_now("a.job")
    [entry] = await history_of(store, "a.job")
    assert (entry.outcome, entry.error) == ("failed", "ConnectionError")
    held = [await store.run([("GET", key)]) for key in ("schedule:job:a.job", "schedule:job:{a.job}")]
    assert "hunter2" not in f"{held}{entry}"
    [logged] = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert logged.exc_info is not None  # the whole of it is for the log


@here
async def test_an_error_of_keystead_is_recorded_with_its_sentence(store: Store, time: Time) -> None:
    work = Work()
    work.raises = BadValue("the folder of the blobs is not there;\nmake it")
    told = await schedule_of(store, time, Job("a.job", "0 15 * * *", work)).run_now("a.job")
    assert told
    assert told.error == "the folder of the blobs is not there; make it"


@here
@pytest.mark.parametrize("returned", [7, "text", [1], {"a": 1.5}, {"a": None}, {1: 1}, {"a": {"b": 1}}])
async def test_a_job_with_an_unstorable_result_has_failed(store: Store, time: Time, returned: Any) -> None:
    told = await schedule_of(store, time, Job("a.job", "0 15 * * *", Work(returns=returned))).run_now("a.job")
    assert told
    assert told.outcome == "failed"
    assert "did not return a mapping of names to counts or texts" in str(told.error)


@here
async def test_job_results_are_stored_and_long_texts_cut(store: Store, time: Time) -> None:
    work = Work(returns={"deleted": 12, "kept": True, "note": "n" * 5_000})
    told = await schedule_of(store, time, Job("a.job", "0 15 * * *", work)).run_now("a.job")
    assert told
    assert told.result == {"deleted": 12, "kept": 1, "note": "n" * 499 + "…"}
    assert (await history_of(store, "a.job"))[0].result == told.result
    assert json.loads(told.model_dump_json())["result"]["deleted"] == 12


@everywhere
@pytest.mark.parametrize(
    ("returned", "kept"),
    [
        ({"last": "caf\udce9.txt"}, {"last": "caf\\udce9.txt"}),
        ({"na\udce9me\x1b": 1}, {"na\\udce9me\\x1b": 1}),
        ({"title": "\x1b]0;owned\x07\x9b31m a\nb"}, {"title": "\\x1b]0;owned\\x07\\x9b31m a b"}),
        ({"n" * 5_000: 1}, {"n" * 99 + "…": 1}),
        (
            {f"k{n}": n for n in range(60)},
            {**{f"k{n}": n for n in range(50)}, "…": "10 more, not stored"},
        ),
    ],
)
async def test_whatever_text_a_job_returns_is_recorded_and_no_terminal_obeys_it(
    store: Store, time: Time, returned: dict[str, int | str], kept: dict[str, int | str]
) -> None:
    told = await schedule_of(store, time, Job("a.job", "0 15 * * *", Work(returns=returned))).run_now("a.job")
    assert told
    assert (told.outcome, told.result) == ("done", kept)
    assert await history_of(store, "a.job") == [told]


@here
@pytest.mark.parametrize("count", [pytest.param(2**63, id="65 bits"), pytest.param(10**5_000, id="5,000 digits")])
async def test_a_count_beyond_64_bits_is_recorded_as_a_failure(store: Store, time: Time, count: int) -> None:
    told = await schedule_of(store, time, Job("a.job", "0 15 * * *", Work(returns={"n": count}))).run_now("a.job")
    assert told
    assert (told.outcome, "more than 64 bits" in str(told.error)) == ("failed", True)
    assert await history_of(store, "a.job") == [told]


@here
async def test_an_error_whose_text_cannot_be_written_is_recorded(
    store: Store, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)  # what pytest keeps of a log must be UTF-8
    work = Work()
    work.raises = BadValue("there is no caf\udce9.txt\x1b[2J")
    told = await schedule_of(store, time, Job("a.job", "0 15 * * *", work)).run_now("a.job")
    assert told
    assert told.error == "there is no caf\\udce9.txt\\x1b[2J"
    assert await history_of(store, "a.job") == [told]


@here
async def test_a_run_that_cannot_be_recorded_as_it_went_is_recorded_as_failed_and_not_made_again(
    store: Store, time: Time
) -> None:
    runs: list[int] = []

    async def job(run: Run) -> None:
        runs.append(run.number)
        run.again_ms = "soon"  # type: ignore[assignment]

    async with schedule_of(store, time, Job("a.job", "0 15 * * *", job)):
        await time.rested(1)
        time.pass_until("2026-01-01T15:00:00Z")
        await time.rested(1)
        time.pass_ms(35 * SECOND)
        await time.rested(1)
    assert runs == [1]
    assert [(one.outcome, one.error) for one in await history_of(store, "a.job")] == [("failed", "TypeError")]


class _ErrorOfItsOwn(BaseException):
    pass


@here
@pytest.mark.parametrize("error", [SystemExit(3), GeneratorExit(), _ErrorOfItsOwn()])
async def test_a_job_that_calls_exit_has_failed_and_the_process_continues(
    store: Store, time: Time, error: BaseException
) -> None:
    work, other = Work(), Work()
    work.raises = error
    async with schedule_of(store, time, Job("a.job", "0 15 * * *", work), Job("b.job", "1 15 * * *", other)):
        await time.rested(1)
        time.pass_until("2026-01-01T15:00:00Z")
        await time.rested(1)
        time.pass_until("2026-01-01T15:01:00Z")
        await until(lambda: len(other.ended) == 1)
        await time.rested(1)
    entries = await history_of(store, "a.job")
    assert {(one.outcome, one.error) for one in entries} == {("failed", type(error).__name__)}


def test_a_job_that_kills_processes_backs_off(time: Time) -> None:
    job = Job("a.job", "0 15 * * *", Work())
    state = due_runs.first_state(job, time.now_ms)
    waits = []
    for _ in range(8):
        begun = due_runs.started_state(due_runs.DueRun(time.now_ms, state), "a process", time.now_ms)
        state = due_runs.ended_state(job, begun, "lost", time.now_ms)
        waits.append((due_runs.wakes_at_ms(state) - time.now_ms) // MINUTE)
    assert waits == [0, 2, 4, 8, 16, 32, 60, 60]
    begun = due_runs.started_state(due_runs.DueRun(time.now_ms, state), "a process", time.now_ms)
    assert due_runs.ended_state(job, begun, "done", time.now_ms).failures == 0


@here
async def test_a_job_that_cancels_itself_has_failed(store: Store, time: Time) -> None:
    work = Work()
    work.raises = asyncio.CancelledError()
    told = await schedule_of(store, time, Job("a.job", "0 15 * * *", work)).run_now("a.job")
    assert told
    assert (told.outcome, told.error) == ("failed", "CancelledError")


@here
async def test_a_failing_job_blocks_no_other(store: Store, time: Time) -> None:
    bad, good = Work(), Work()
    bad.raises = ValueError("no")
    ended: list[tuple[str, str]] = []
    jobs = Job("bad", "0 15 * * *", bad), Job("good", "0 15 * * *", good)
    async with schedule_of(store, time, *jobs, on_run=lambda name, outcome: ended.append((name, outcome))):
        await time.rested(1)
        time.pass_until("2026-01-01T15:00:00Z")
        await until(lambda: len(ended) == 2)
        await time.rested(1)
    assert sorted(ended) == [("bad", "failed"), ("good", "done")]


@here
async def test_a_failed_job_that_requested_an_earlier_run_gets_it(store: Store, time: Time) -> None:
    async def job(run: Run) -> Mapping[str, int | str] | None:
        run.again_after("10s")
        raise ValueError("no")

    async with schedule_of(store, time, Job("a.job", "0 15 * * *", job)):
        await time.rested(1)
        time.pass_until("2026-01-01T15:00:00Z")
        await time.rested(1)
    again = (await state_of(store, "a.job")).again
    assert again is not None
    assert again.at_ms == time.now_ms + 10 * SECOND
