"""Jobs: invalid arguments are reported when the job is created."""

from typing import Any

import pytest

from keystead import Store
from keystead.errors import BadDeclaration, BadValue, DoesNotFit
from keystead.parts.schedule import Job, Run, Schedule, ScheduleKeys
from keystead.schema.procedure_tracing import traced
from tests.parts.schedule.conftest import Time, Work, here, ms, schedule_of


@pytest.mark.parametrize("name", ["sharing.clean-up", "a", "mail.digest.weekly-2", "x" * 100])
def test_a_job_is_called_by_words_in_lower_case(name: str) -> None:
    assert Job(name, "0 15 * * *", Work()).name == name


@pytest.mark.parametrize(
    "name", ["", "Clean", "clean up", "clean:up", "clean_up", ".a", "a.", "a..b", "9", "é", "a\n", "x" * 101, None]
)
def test_another_name_is_refused(name: Any) -> None:
    with pytest.raises(BadDeclaration, match="lower-case words"):
        Job(name, "0 15 * * *", Work())


@pytest.mark.parametrize(
    ("cron", "sentence"),
    [
        ("", "five fields .* has 0"),
        ("0 15 * *", "five fields .* has 4"),
        ("0 0 15 * * *", "five fields .* has 6"),
        ("@daily", "five fields .* has 1"),
        ("60 * * * *", "a.job: the cron expression '60 .* has an invalid minute"),
        ("0 24 * * *", "invalid hour"),
        ("0 0 0 * *", "invalid day-of-month"),
        ("0 0 31 2 *", "invalid day-of-month"),
        ("0 0 * 13 *", "invalid month"),
        ("0 0 * * FUNDAY", "invalid day-of-week"),
        ("* * * * MON#1/2", "invalid day-of-week"),
        ("*/0 * * * *", "invalid minute"),
        (None, "five fields"),
    ],
)
def test_an_invalid_cron_expression_is_refused_with_the_reason(cron: Any, sentence: str) -> None:
    with pytest.raises(BadDeclaration, match=sentence):
        Job("a.job", cron, Work())


@pytest.mark.parametrize("zone", ["", "Mars/Olympus", "../etc/passwd", "europe", "/etc/localtime", "Europe", None, 2])
def test_a_time_zone_that_does_not_exist_is_refused(zone: Any) -> None:
    with pytest.raises(BadDeclaration, match=r"a\.job: there is no time zone"):
        Job("a.job", "0 15 * * *", Work(), zone=zone)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"missed": "all"}, "missed must be once, each or skip"),
        ({"lease": "60"}, "a number with a unit"),
        ({"lease": "999ms"}, "must be 1 second to 1 day"),
        ({"lease": "25h"}, "must be 1 second to 1 day"),
        ({"run": None}, "an async function"),
    ],
)
def test_declaration_errors_name_the_job(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadDeclaration, match=rf"a\.job: .*{sentence}"):
        Job(**{"name": "a.job", "cron": "0 15 * * *", "run": Work(), **wrong})


def test_a_run_can_be_made_for_a_test_of_a_job() -> None:
    run = Run("a.job", 5, 7, now_ms=lambda: 1_000)
    assert (run.name, run.due_ms, run.number, run.again_ms) == ("a.job", 5, 7, None)
    run.again_after("2m")
    assert run.again_ms == 121_000
    with pytest.raises(BadDeclaration, match="number with a unit"):
        run.again_after("2")


@here
async def test_two_jobs_of_one_name_are_refused(store: Store, time: Time) -> None:
    with pytest.raises(BadDeclaration, match="two jobs have the name a"):
        schedule_of(store, time, Job("a", "0 15 * * *", Work()), Job("a", "0 16 * * *", Work()))


@here
async def test_an_unknown_job_is_reported_with_the_known_ones(store: Store, time: Time) -> None:
    schedule = schedule_of(store, time, Job("a", "0 15 * * *", Work()), Job("b", "0 16 * * *", Work()))
    with pytest.raises(BadValue, match="no job 'c'; the jobs are: a, b"):
        await schedule.run_now("c")
    with pytest.raises(BadValue, match="no job 'c'"):
        await schedule.history("c")


def test_all_procedures_are_traceable_and_atomic_on_every_store() -> None:
    found = [traced(ScheduleKeys, one) for one in ScheduleKeys.procedures.values()]
    assert [(one.problem, one.groups) for one in found] == [("", 1)] * 5


@here
async def test_a_store_without_atomic_steps_on_several_keys_is_refused(store: Store, time: Time) -> None:
    from dataclasses import replace

    from tests.parts.sessions.relays import Relay

    single = Relay(store)
    single.guarantees = replace(store.guarantees, atomic="one key")
    with pytest.raises(DoesNotFit, match="one atomic step on several keys"):
        Schedule(ScheduleKeys(single), [])


@here
async def test_a_list_shows_jobs_that_were_never_seen_and_writes_nothing(store: Store, time: Time) -> None:
    schedule = schedule_of(store, time, Job("a", "0 15 * * *", Work()))
    [found] = await schedule.list()
    assert (found.next_ms, found.running, found.last, found.failures) == (ms("2026-01-01T15:00Z"), None, None, 0)
    assert await store.run([("DBSIZE",)]) == [0]
