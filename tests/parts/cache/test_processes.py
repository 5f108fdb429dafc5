"""Real processes: one of them loads, and another takes over if it dies."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests import forking
from tests.schema.conftest import redis_server, store_url, valkey_cluster
from tests.serving import environment, wait_until

__all__ = ["redis_server", "store_url", "valkey_cluster"]

in_processes = pytest.mark.parametrize("store_url", ["sqlite", "redis", "cluster"], indirect=True)
ROOT = Path(__file__).parents[3]


class Workers:
    """Processes on one store, and their logs."""

    def __init__(self, url: str, file: Path) -> None:
        self._url, self._file = url, file
        self.started: list[forking.Command] = []

    def start(self, requests: int, loading: str) -> forking.Command:
        with open(os.devnull, "r+") as nothing:
            streams = nothing, nothing, sys.__stderr__ or nothing
            arguments = self._url, str(self._file), str(requests), loading
            worker = forking.start_module("tests.parts.cache.worker", arguments, ROOT, environment(), *streams)
        self.started.append(worker)
        return worker

    def let_the_provider_answer(self) -> None:
        self._file.with_name(f"{self._file.name}.go").touch()

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


def said(lines: list[list[str]], word: str) -> list[list[str]]:
    return [rest for first, *rest in lines if first == word]


@in_processes
async def test_a_thousand_requests_in_two_processes_load_once(workers: Workers) -> None:
    workers.start(500, "60s")
    workers.start(500, "60s")
    workers.until(lambda lines: len(said(lines, "began")) == 2 and said(lines, "asked") != [], "both have asked")
    workers.let_the_provider_answer()
    workers.until(lambda lines: len(said(lines, "ended")) == 2, "both have their answers")
    [[asker]] = said(workers.lines, "asked")
    assert [line[:3] for line in said(workers.lines, "ended")] == [["500", "1", asker]] * 2


@pytest.mark.matrix
@in_processes
async def test_after_a_kill_another_process_loads_when_the_marker_expires(workers: Workers) -> None:
    killed = workers.start(10, "3s")
    workers.until(lambda lines: said(lines, "asked") == [[str(killed.pid)]], "the first has asked")
    killed.kill()
    killed.wait()
    workers.let_the_provider_answer()
    other = workers.start(10, "3s")
    workers.until(lambda lines: len(said(lines, "ended")) == 1, "the second has its answers")
    assert said(workers.lines, "asked") == [[str(killed.pid)], [str(other.pid)]]
    assert said(workers.lines, "ended") == [["10", "1", str(other.pid), str(other.pid)]]
