"""Real processes: they share the runs, and one takes over from another."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from keystead import Store
from keystead.parts.schedule import JobState, RunEntry, ScheduleKeys
from tests import forking
from tests.conftest import PATIENCE_S
from tests.parts.schedule.conftest import MINUTE, history_of
from tests.serving import environment, wait_until

in_processes = pytest.mark.parametrize("store_url", ["sqlite", "redis", "cluster"], indirect=True)
ROOT = Path(__file__).parents[3]


class Workers:
    """Processes on one store, and their logs."""

    def __init__(self, url: str, file: Path) -> None:
        self._url, self._file = url, file
        self.started: list[forking.Command] = []

    def start(self) -> forking.Command:
        with open(os.devnull, "r+") as nothing:
            streams = nothing, nothing, sys.__stderr__ or nothing
            arguments = self._url, str(self._file)
            worker = forking.start_module("tests.parts.schedule.worker", arguments, ROOT, environment(), *streams)
        self.started.append(worker)
        return worker

    @property
    def lines(self) -> list[list[str]]:
        return [line.split() for line in self._file.read_text().splitlines()] if self._file.exists() else []

    def until(self, condition: Callable[[list[list[str]]], bool], what: str) -> None:
        wait_until(lambda: condition(self.lines), what)

    def end(self) -> None:
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()


@pytest.fixture
async def workers(store_url: str, tmp_path: Path) -> AsyncIterator[Workers]:
    several = Workers(store_url, tmp_path / "lines.txt")
    try:
        yield several
    finally:
        several.end()


async def make_due(store: Store, name: str, cron: str, by_ms: int) -> None:
    """The job was last seen so long ago."""
    keys = ScheduleKeys(store)
    next_ms = (time.time_ns() // 1_000_000 - by_ms) // MINUTE * MINUTE
    await keys.job(name).set(JobState(cron=cron, zone="UTC", next_ms=next_ms))


@in_processes
async def test_two_processes_run_each_of_300_missed_moments_once(store: Store, workers: Workers) -> None:
    await make_due(store, "counted", "* * * * *", 300 * MINUTE)
    workers.start()
    workers.start()
    workers.until(lambda lines: len(lines) >= 300, "300 moments were run")
    counted = [(int(number), int(due_ms)) for word, number, due_ms, _ in workers.lines if word == "counted"]
    assert [number for number, _ in counted] == [*range(1, len(counted) + 1)]
    dues = [due_ms for _, due_ms in counted]
    assert dues == [dues[0] + n * MINUTE for n in range(len(dues))]


@in_processes
async def test_a_run_whose_process_was_killed_is_made_again_by_another_after_its_lease(
    store: Store, workers: Workers
) -> None:
    await make_due(store, "stuck", "0 0 1 1 *", MINUTE)
    killed = workers.start()
    workers.until(lambda lines: ["began", "1", str(killed.pid)] in lines, "the first run began")
    killed.kill()
    killed.wait()
    other = workers.start()
    workers.until(lambda lines: ["ended", "2", str(other.pid)] in lines, "another process made the run")
    found = [(one.number, one.outcome) for one in await _history(store, 2)]
    assert found == [(1, "lost"), (2, "done")]


@in_processes
async def test_a_process_that_was_stopped_for_longer_than_its_lease_is_cancelled_and_writes_nothing(
    store: Store, workers: Workers
) -> None:
    await make_due(store, "stuck", "0 0 1 1 *", MINUTE)
    stopped = workers.start()
    workers.until(lambda lines: ["began", "1", str(stopped.pid)] in lines, "the first run began")
    stopped.send_signal(signal.SIGSTOP)
    other = workers.start()
    workers.until(lambda lines: ["ended", "2", str(other.pid)] in lines, "another process made the run")
    stopped.send_signal(signal.SIGCONT)
    workers.until(lambda lines: ["cancelled", "1", str(stopped.pid)] in lines, "the first run was cancelled")
    found = [(one.number, one.outcome) for one in await _history(store, 2)]
    assert found == [(1, "lost"), (2, "done")]


@in_processes
async def test_a_stopping_process_releases_its_run_immediately(store: Store, workers: Workers) -> None:
    await make_due(store, "stuck", "0 0 1 1 *", MINUTE)
    asked = workers.start()
    workers.until(lambda lines: ["began", "1", str(asked.pid)] in lines, "the first run began")
    other = workers.start()
    asked.send_signal(signal.SIGTERM)
    assert asked.wait(300) == 0
    workers.until(lambda lines: ["ended", "2", str(other.pid)] in lines, "another process made the run")
    assert ["cancelled", "1", str(asked.pid)] in workers.lines
    found = [(one.number, one.outcome) for one in await _history(store, 2)]
    assert found == [(1, "stopped"), (2, "done")]


async def _history(store: Store, count: int) -> list[RunEntry]:
    """The history of the job, once it has so many entries."""
    deadline = time.monotonic() + PATIENCE_S
    while len(found := await history_of(store, "stuck")) < count:
        assert time.monotonic() < deadline
    return found
