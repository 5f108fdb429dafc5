"""Commands at a terminal: confirmation, Ctrl-C, narrow windows, odd keys, mistyped stores."""

import os
import pty
import select
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests import forking
from tests.cli.program import Program, output
from tests.serving import environment

KEYS = ("--keyspace", "myapp.keys")


class Terminal:
    """A command in a pseudo-terminal."""

    def __init__(self, program: Program, *arguments: str, columns: int = 80) -> None:
        self._ours, theirs = pty.openpty()
        self._process = subprocess.Popen(
            forking.command(*arguments),
            cwd=program.folder,
            env=environment({"KEYSTEAD_STORE": program.url, "COLUMNS": str(columns), "TERM": "xterm"}),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            preexec_fn=lambda: None,
        )
        os.close(theirs)
        self.said = ""

    def until(self, words: str) -> None:
        """Read until these words have been said."""
        while words not in self.said:
            self._read()

    def _read(self) -> None:
        ready, _, _ = select.select([self._ours], [], [], 30)
        assert ready, f"nothing more was said after: {self.said}"
        self.said += os.read(self._ours, 4096).decode()

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def signal(self, number: int) -> None:
        """Send a signal to a program that waits for what a person types."""
        self._until_it_waits()
        self._process.send_signal(number)

    def _until_it_waits(self) -> None:
        """Python does not see a signal that comes just before it waits for a line until something is typed, or the
        signal comes again; a person presses Ctrl-C again, a test would wait for ever.
        """
        seen, deadline = 0, time.monotonic() + 120
        while seen < 5 and time.monotonic() < deadline:
            state = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[0]
            seen = seen + 1 if state == "S" else 0
            select.select([], [], [], 0.01)
        assert seen == 5

    def wait(self) -> int:
        deadline = time.monotonic() + 30
        while self._process.poll() is None and time.monotonic() < deadline:
            if select.select([self._ours], [], [], 0.05)[0]:
                try:
                    self.said += os.read(self._ours, 4096).decode()
                except OSError:
                    break
        code = self._process.wait(timeout=300)
        os.close(self._ours)
        return code


@pytest.mark.parametrize("command", [("delete", "session", "u1a"), ("erase", "user:u1")], ids=["delete", "erase"])
def test_ctrl_c_at_the_confirmation_deletes_nothing(program: Program, command: tuple[str, ...]) -> None:
    program.fill()
    before = program.stored_keys()
    terminal = Terminal(program, *command, *KEYS)
    terminal.until("[y/N]")
    terminal.signal(signal.SIGINT)
    assert terminal.wait() == 130
    assert "nothing was deleted" in terminal.said
    assert program.stored_keys() == before


def test_yes_at_the_confirmation_deletes(program: Program) -> None:
    program.fill()
    terminal = Terminal(program, "delete", "session", "u1a", *KEYS)
    terminal.until("[y/N]")
    terminal.type("y\n")
    assert terminal.wait() == 0
    assert "sess:u1a" not in program.stored_keys()


def test_a_narrow_window_still_names_every_family(program: Program) -> None:
    program.fill()
    terminal = Terminal(program, "show", *KEYS, columns=60)
    assert terminal.wait() == 0
    for name in ("sessions", "session", "daily", "account", "sess:{sid}"):
        assert name in terminal.said


def test_keys_that_look_like_markup_are_shown_verbatim(program: Program) -> None:
    program.write(("SET", "x:[/foo]", "1"), ("SET", "sold:x:1", "1"))
    result = program.keystead("show", *KEYS)
    assert result.returncode == 0, result.stderr
    assert "x:[/foo]" in result.stdout
    assert "sold:x:1" in result.stdout


@pytest.mark.parametrize("command", [("doctor", "myapp.keys"), ("show", *KEYS), ("erase", "user:u1", *KEYS, "--yes")])
def test_a_missing_database_is_reported_and_not_created(program: Program, command: tuple[str, ...]) -> None:
    result = program.keystead(*command, "--store", f"sqlite:///{program.folder}/typo.db")
    assert (result.returncode, result.stdout) == (2, "")
    assert "there is no database" in result.stderr
    assert not (program.folder / "typo.db").exists()


def test_an_unknown_role_is_reported(program: Program) -> None:
    result = program.keystead("show", *KEYS, "--store", "durable=memory://", "--store", program.url)
    assert result.returncode == 2
    assert "no family has the role 'durable'" in result.stderr


@pytest.mark.parametrize(("answer", "left"), [("y\n", 0), ("n\n", 1)])
def test_the_doctor_asks_before_it_sets_aside_much_of_a_family(program: Program, answer: str, left: int) -> None:
    program.write(("SET", "account:u1", "junk"), ("SET", "lock:a", "x", "PX", 86_400_000))
    terminal = Terminal(program, "doctor", "myapp.keys:AppKeys", "--family", "account", "--fix")
    terminal.until("Set aside 1 of 1 key (AppKeys.account)? [y/N]:")
    assert "unreadable, 1 finding in AppKeys.account: set aside" in terminal.said
    terminal.type(answer)
    assert terminal.wait() == left
    assert ("account:u1" in program.stored_keys()) is bool(left)


def test_a_repair_must_name_its_keyspaces(program: Program) -> None:
    program.fill()
    before = program.stored_keys()
    result = program.keystead("doctor", "--fix")
    assert result.returncode == 2
    assert "name their keyspaces" in result.stderr
    assert program.stored_keys() == before


def test_kits_names_all_kits(tmp_path: Path) -> None:
    program = Program(tmp_path)
    assert output(program.keystead("doctor", "kits", "--fix", "--json"))["examined"] == 0
