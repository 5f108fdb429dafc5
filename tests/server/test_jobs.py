"""Jobs of kits: one of the workers runs each job, and shutdown stops them."""

import asyncio
import re
import signal
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2

from keystead import Store, connect
from keystead.parts.schedule import JobState, RunEntry, ScheduleKeys
from keystead.server.scheduled_jobs import kits_with_jobs
from tests.server import chores, notes
from tests.server.conftest import ROOT, notes_serving
from tests.serving import keystead_serving, wait_until

CHORES = ("--kits", "tests.server.chores:KIT")
CRON = {"chores.sweep": ("30 2 * * *", "Europe/Berlin"), "chores.brood": ("0 0 1 1 *", "UTC")}


def in_store(url: str, work: Callable[[Store], Awaitable[Any]]) -> Any:
    async def open_and_work() -> Any:
        async with connect(url) as store:
            return await work(store)

    return asyncio.run(open_and_work())


def make_due(url: str, *names: str) -> None:
    """Make these jobs due while no server runs."""

    async def write(store: Store) -> None:
        for name in names:
            cron, zone = CRON[name]
            next_ms = time.time_ns() // 1_000_000 - 5_000
            await ScheduleKeys(store).job(name).set(JobState(cron=cron, zone=zone, next_ms=next_ms))

    in_store(url, write)


def history(url: str, name: str) -> list[RunEntry]:
    async def read(store: Store) -> list[RunEntry]:
        return [one.item for one in await ScheduleKeys(store).history(name).entries()]

    found: list[RunEntry] = in_store(url, read)
    return found


def test_of_several_workers_one_runs_a_due_job_and_the_metrics_count_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/app.db"
    make_due(url, "chores.sweep")
    diary = tmp_path / "diary.txt"
    with keystead_serving(tmp_path, url, *CHORES, "--workers", "3", PYTHONPATH=str(ROOT)) as server:
        wait_until(lambda: bool(history(url, "chores.sweep")), "the job was run")

        def metrics_page() -> str:
            return httpx2.get(f"{server.url}/metrics", timeout=300).text

        line = re.compile(r'^keystead_job_runs_total\{job="chores.sweep",outcome="done"\} 1\.0$', re.MULTILINE)
        wait_until(lambda: line.search(metrics_page()) is not None, "it was counted")
        assert server.stop() == 0
    assert [line.split()[:2] for line in diary.read_text().splitlines()] == [["sweep", "1"]]
    [entry] = history(url, "chores.sweep")
    assert (entry.outcome, entry.result) == ("done", {"swept": 1234, "room": "kitchen"})


def test_shutdown_stops_jobs_before_kits_and_another_server_takes_over(
    tmp_path: Path,
) -> None:
    url = f"sqlite:///{tmp_path}/app.db"
    make_due(url, "chores.brood")
    diary = tmp_path / "diary.txt"
    settings = {"PYTHONPATH": str(ROOT), "KEYSTEAD_STOP_TIMEOUT": "8s"}  # a quarter of it to be recorded
    with keystead_serving(tmp_path, url, *CHORES, **settings) as server:
        wait_until(lambda: diary.exists() and "brood 1" in diary.read_text(), "the job was begun")
        assert server.stop(signal.SIGTERM) == 0
    assert "interrupted 1" in diary.read_text()
    assert [one.outcome for one in history(url, "chores.brood")] == ["stopped"]
    with keystead_serving(tmp_path, url, *CHORES, **settings):
        wait_until(lambda: "brood 2" in diary.read_text(), "the other server went on with it")


def test_a_server_without_jobs_writes_no_schedule_keys(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/app.db"
    with notes_serving(tmp_path, url) as server:
        assert httpx2.get(f"{server.url}/readyz", timeout=300).status_code == 200
        assert server.stop() == 0

    async def held(store: Store) -> list[bytes]:
        return [key async for page in store.scan("schedule:*") for key in page]

    assert in_store(url, held) == []


def test_kits_with_jobs_are_known_before_they_are_opened() -> None:
    assert kits_with_jobs([notes.KIT, chores.KIT]) == [chores.KIT]
