"""`keystead jobs`, end to end: real processes, a kit with jobs, a real store."""

import asyncio
import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from keystead import connect
from tests import forking
from tests.cli.program import assert_one_sentence
from tests.serving import environment, keystead_command, wait_until

ROOT = Path(__file__).parents[2]
KITS = ("--kits", "tests.server.chores:KIT")


class House:
    """A folder with a store, and the kit of chores."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.url = f"sqlite:///{folder}/house.db"
        asyncio.run(self._touch())

    async def _touch(self) -> None:
        async with connect(self.url) as store:
            await store.run([("DBSIZE",)])

    def write(self, *commands: tuple[str, ...]) -> None:
        async def work() -> None:
            async with connect(self.url) as store:
                await store.run(commands)

        asyncio.run(work())

    @property
    def environment(self) -> dict[str, str]:
        return environment({"KEYSTEAD_STORE": self.url, "PYTHONPATH": str(ROOT), "COLUMNS": "200"})

    def jobs(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return forking.run(("jobs", arguments[0], *KITS, *arguments[1:]), self.folder, self.environment)

    def json_output(self, *arguments: str) -> Any:
        """What a command says to programs."""
        return json.loads(self.jobs(*arguments, "--json").stdout)

    @contextmanager
    def brooding(self) -> Iterator[subprocess.Popen[str]]:
        """A process that runs the job that goes on for ever."""
        diary = self.folder / "diary.txt"
        process = subprocess.Popen(
            keystead_command("jobs", "run", *KITS, "chores.brood"),
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            wait_until(lambda: diary.exists() and "brood" in diary.read_text(), "the job was begun")
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.communicate()


@pytest.fixture
def house(tmp_path: Path) -> House:
    return House(tmp_path)


def test_a_list_shows_the_schedule_of_each_job_in_words_and_in_its_zone(house: House) -> None:
    result = house.jobs("list")
    assert (result.returncode, result.stderr) == (0, "")
    for part in ("chores.sweep", "Sweeps the kitchen.", "At 02:30 every day", "30 2 * * *  Europe/Berlin", "none yet"):
        assert part in result.stdout
    assert re.search(r"\d{4}-\d\d-\d\d 02:30 CES?T", result.stdout)
    assert re.search(r"in \d+ (hour|minute|second)s?", result.stdout)


def test_a_run_happens_here_and_its_result_is_in_the_history(house: House) -> None:
    result = house.jobs("run", "chores.sweep")
    assert (result.returncode, result.stderr) == (0, "")
    assert re.fullmatch(r"chores\.sweep: done after \d+\.\d s: swept 1,234, room kitchen\n", result.stdout)
    assert (house.folder / "diary.txt").read_text().startswith("sweep 1 ")
    shown = house.jobs("history").stdout
    for part in ("chores.sweep", "done by hand", "swept 1,234, room kitchen"):
        assert part in shown
    assert "done" in house.jobs("list").stdout


def test_json_output_is_complete(house: House) -> None:
    ran = house.json_output("run", "chores.sweep")
    assert (ran["job"], ran["outcome"], ran["number"], ran["by_hand"]) == ("chores.sweep", "done", 1, True)
    assert ran["result"] == {"swept": 1234, "room": "kitchen"}
    assert house.json_output("history", "chores.sweep") == [ran]
    house.json_output("run", "chores.sweep")
    assert [one["number"] for one in house.json_output("history", "--limit", "1")] == [2]
    sweep, drop, brood = house.json_output("list")
    assert (sweep["cron"], sweep["zone"], sweep["missed"], sweep["lease"]) == (
        "30 2 * * *",
        "Europe/Berlin",
        "once",
        "1m",
    )
    assert sweep["last"]["number"] == 2
    assert sweep["last"].keys() == ran.keys() - {"job"}
    assert (drop["last"], drop["running"], brood["name"]) == (None, None, "chores.brood")
    assert re.fullmatch(r"\d{4}-01-01T00:00:00.000Z", drop["next"])


def test_a_run_that_fails_is_exit_code_1_and_only_the_log_has_its_text(house: House) -> None:
    result = house.jobs("run", "chores.drop")
    assert result.returncode == 1
    assert re.fullmatch(r"chores\.drop: failed after \d+\.\d s: RuntimeError\n", result.stdout)
    assert "RuntimeError: secret-of-a-message" in result.stderr  # the log
    assert "secret-of-a-message" not in house.jobs("history").stdout
    assert "secret-of-a-message" not in json.dumps(house.json_output("history"))


@pytest.mark.matrix
def test_a_running_job_is_reported_and_not_started_again(house: House) -> None:
    with house.brooding() as process:
        assert_one_sentence(
            house.jobs("run", "chores.brood"), 1, "chores.brood is already running, since", str(process.pid)
        )
        told = house.jobs("run", "chores.brood", "--json")
        assert told.returncode == 1
        assert f"/{process.pid}/" in json.loads(told.stdout)["running"]["by"]
        assert "running" in house.jobs("list").stdout
        assert house.json_output("list")[2]["running"]["since"].endswith("Z")
    assert (house.folder / "diary.txt").read_text().count("brood") == 1


@pytest.mark.everyday("15")
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_is_cancelled_and_recorded(house: House, signum: signal.Signals) -> None:
    with house.brooding() as process:
        process.send_signal(signum)
        out, err = process.communicate(timeout=300)
        assert (process.returncode, out, err) == (128 + signum, "", "keystead: stopped; chores.brood was cancelled\n")
    assert "interrupted" in (house.folder / "diary.txt").read_text()
    assert [one["outcome"] for one in house.json_output("history", "chores.brood")] == ["stopped"]


@pytest.mark.parametrize("command", ["run", "history"])
def test_an_unknown_job_is_a_one_line_error(house: House, command: str) -> None:
    result = house.jobs(command, "chores.cook")
    assert_one_sentence(result, 2, "no job 'chores.cook'", "chores.sweep, chores.drop, chores.brood")


def test_a_missing_database_is_a_one_line_error_and_not_created(house: House) -> None:
    for arguments in (("list",), ("history",), ("run", "chores.sweep")):
        result = house.jobs(*arguments, "--store", "sqlite:///typo.db")
        assert_one_sentence(result, 2, "there is no database typo.db")
    assert not (house.folder / "typo.db").exists()


def test_kits_without_jobs_are_reported(house: House) -> None:
    result = house.jobs("list", "--kits", "login")
    assert (result.returncode, result.stdout) == (0, "these kits have no scheduled jobs\n")


def test_the_doctor_knows_the_keys_of_the_schedule_and_of_the_demo_provider(house: House) -> None:
    house.json_output("run", "chores.sweep")

    async def sign_in() -> None:
        from keystead.demo.demo_keys import DemoCode, DemoKeys

        async with connect(house.url) as store:
            await DemoKeys(store).code("c" * 43).set(DemoCode(redirect_uri="http://127.0.0.1/", challenge="x"))

    asyncio.run(sign_in())
    result = forking.run(("doctor", "--json"), house.folder, environment({"KEYSTEAD_STORE": house.url}))
    found = json.loads(result.stdout)
    assert (result.returncode, found["findings"], found["examined"]) == (0, 0, 3)


def test_terminal_control_characters_in_the_history_are_escaped(house: House) -> None:
    house.json_output("run", "chores.sweep")
    entry = {"number": 2, "due_ms": 1, "began_ms": 1, "ended_ms": 2, "outcome": "done", "by": "\x1b[2J"}
    house.write(
        ("XADD", "schedule:history:chores.sweep", "*", "data", json.dumps(entry | {"result": {"last": "\x9b31m"}}))
    )
    for arguments in (("history",), ("list",), ("history", "--json")):
        result = house.jobs(*arguments)
        assert (result.returncode, result.stderr) == (0, "")
        assert result.stdout.replace("\n", "").isprintable()
    assert house.json_output("history")[1]["result"] == {"last": "\x9b31m"}


def test_an_unreadable_job_is_listed_with_its_problem_and_hides_no_other(house: House) -> None:
    house.json_output("run", "chores.sweep")
    house.write(("SET", "schedule:job:chores.drop", "not JSON"))
    result = house.jobs("list")
    assert (result.returncode, result.stderr) == (0, "")
    for part in ("chores.sweep", "chores.drop", "not known", "run keystead doctor", "none yet"):
        assert part in result.stdout
    sweep, drop, brood = house.json_output("list")
    assert (sweep["trouble"], drop["next"], brood["trouble"]) == (None, None, None)
    assert "schedule:job:chores.drop" in drop["trouble"]
