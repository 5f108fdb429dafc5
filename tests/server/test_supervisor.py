"""The parent process: small, and in charge of its workers whatever becomes of the files it was started from."""

import os
import signal
import subprocess
from pathlib import Path

import httpx2
import pytest

from tests.server.conftest import notes_serving
from tests.server.test_workers import ready, workers
from tests.serving import STOP_SECONDS, Keystead, environment, free_port, keystead_command, wait_until

MOST_MEGABYTES = 20


def test_it_holds_no_imports_of_keystead(notes: Keystead) -> None:
    status = Path(f"/proc/{notes.process.pid}/status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    assert int(resident.split()[1]) < MOST_MEGABYTES * 1024
    assert "pydantic" not in Path(f"/proc/{notes.process.pid}/maps").read_text()


def test_it_is_found_by_its_name_in_a_process_list(notes: Keystead) -> None:
    command = Path(f"/proc/{notes.process.pid}/cmdline").read_bytes().split(b"\0")
    assert b"keystead serve --port %d" % notes.port in b" ".join(command)


def test_a_replacement_has_the_settings_of_the_start(tmp_path: Path) -> None:
    config = tmp_path / "keystead.toml"
    config.write_text("[notes]\nlongest = 7\n")
    with notes_serving(tmp_path) as server:
        [victim] = workers(server)
        config.write_text("no longer TOML")
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: ready(server) == 200 and victim not in workers(server), "another one answers")
        assert httpx2.get(f"{server.url}/api/notes/site", timeout=300).json()["longest"] == 7


def test_workers_that_keep_crashing_end_the_server_with_exit_code_1(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with notes_serving(tmp_path, "sqlite:///notes.db", TMPDIR=str(temporary)) as server:
        [victim] = workers(server)
        os.kill(victim, signal.SIGSTOP)
        for file in tmp_path.glob("notes.db*"):
            file.write_text("these are notes and not a database\n" * 200)
        os.kill(victim, signal.SIGKILL)
        assert server.process.wait(300) == 1
        assert server.said.endswith("keystead: the workers keep exiting; see the log above.\n")
        assert "a worker cannot start" in server.said
        assert list(temporary.iterdir()) == []


def test_closing_the_terminal_stops_it(tmp_path: Path) -> None:
    with notes_serving(tmp_path) as server:
        for pid in workers(server):
            os.kill(pid, signal.SIGHUP)
        assert server.stop(signal.SIGHUP) == 0
        assert server.said.endswith("Keystead has stopped.\n")


@pytest.mark.matrix
def test_with_nohup_closing_the_terminal_stops_nothing(tmp_path: Path) -> None:
    port, output = free_port(), tmp_path / "output.txt"
    with output.open("w") as stream:
        process = subprocess.Popen(
            ["nohup", *keystead_command("serve", "--port", str(port), "--kits", "")],
            cwd=tmp_path,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=stream,
        )
    server = Keystead(process, port, output)
    try:
        wait_until(lambda: "Keystead is running" in server.said, "it runs")
        for pid in (process.pid, *workers(server)):
            os.kill(pid, signal.SIGHUP)
        assert ready(server) == 200
        assert server.stop() == 0
    finally:
        if process.poll() is None:
            process.kill()
        process.wait(STOP_SECONDS)
