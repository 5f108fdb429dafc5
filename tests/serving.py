"""Starts real server processes for tests, waits until they answer, and stops them by process id."""

import os
import shutil
import signal
import socket
import subprocess
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests import forking

START_SECONDS = 300.0
STOP_SECONDS = 120.0


def program(*names: str) -> str:
    """The path of a program the tests need, the first of these that is there; a missing one fails the test and says how
    to get it.
    """
    path = next((found for name in names if (found := shutil.which(name))), None)
    if path is None:
        pytest.fail(f"{names[0]} is not on PATH; `make test` installs it, or use `apt-get install {names[0]}`.")
    return path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_until(condition: Callable[[], bool], what: str, seconds: float = START_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            pytest.fail(f"waited {seconds:g} seconds in vain until {what}")
        threading.Event().wait(0.01)


def listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


@dataclass
class Keystead:
    """A `keystead serve` process. Its output goes to a file, so that it can never block on a full pipe."""

    process: forking.Command | subprocess.Popen[bytes]
    port: int
    output: Path
    url: str = field(init=False)

    def __post_init__(self) -> None:
        self.url = f"http://127.0.0.1:{self.port}"

    @property
    def folder(self) -> Path:
        """Where it was started."""
        return self.output.parent

    @property
    def said(self) -> str:
        return self.output.read_text()

    def stop(self, signum: signal.Signals = signal.SIGTERM) -> int:
        """Ask it to stop and return its exit code; a process that does not stop fails the test."""
        self.process.send_signal(signum)
        try:
            return self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            pytest.fail(f"keystead did not stop within {STOP_SECONDS:g} seconds of {signum.name}")


def keystead_command(*arguments: str) -> list[str]:
    return [str(Path(sysconfig.get_path("scripts")) / "keystead"), *arguments]


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment without any setting of the machine that the test runs on.

    No process keeps what it compiled: of a module that a test writes twice in one second, the first would be run again.
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith("KEYSTEAD_")}
    fixed = {
        "PYTHONUNBUFFERED": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "NO_COLOR": "1",
        "COLUMNS": "120",
        "LC_ALL": "C.UTF-8",  # the command line speaks the language of the locale
    }
    return {**own, **fixed, **(extra or {})}


@contextmanager
def keystead_serving(folder: Path, store: str | None = None, *arguments: str, **settings: str) -> Iterator[Keystead]:
    """A server with these flags, and these settings in its environment."""
    extra = settings if store is None else {"KEYSTEAD_STORE": store, **settings}
    port = free_port()
    asked = ("serve", "--port", str(port), *arguments)
    output = folder / "output.txt"
    with output.open("w") as stream:
        process = forking.start(asked, folder, environment(extra), stream, stream)
    with answering(Keystead(process, port, output)) as running:
        yield running


@contextmanager
def installed_keystead_serving(
    folder: Path, *arguments: str, python: Path | None = None, **settings: str
) -> Iterator[Keystead]:
    """A server that is started as a user starts it: from the program that was installed, or as a module of a Python."""
    port = free_port()
    asked = ("serve", "--port", str(port), *arguments)
    output = folder / "output.txt"
    with output.open("w") as stream:
        process = subprocess.Popen(
            keystead_command(*asked) if python is None else [str(python), "-m", "keystead", *asked],
            cwd=folder,
            env=environment(settings),
            stdin=subprocess.DEVNULL,
            stdout=stream,
            stderr=subprocess.STDOUT,
        )
    with answering(Keystead(process, port, output)) as running:
        yield running


@contextmanager
def answering(running: Keystead) -> Iterator[Keystead]:
    """A process that was started, once it says that it runs."""
    process = running.process
    try:
        wait_until(
            lambda: "Keystead is running" in running.said or process.poll() is not None,
            "keystead says that it runs",
        )
        assert process.poll() is None, f"keystead ended at the start: {running.said}"
        yield running
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


@contextmanager
def redis_serving(folder: Path, password: str) -> Iterator[tuple[subprocess.Popen[bytes], int]]:
    port = free_port()
    process = subprocess.Popen(
        [
            *(program("redis-server"), "--port", str(port), "--bind", "127.0.0.1"),
            *("--save", "", "--dir", str(folder), "--requirepass", password),
        ],
        stdout=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: listens(port), "redis-server listens")
        yield process, port
    finally:
        process.kill()
        process.wait()
