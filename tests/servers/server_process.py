"""One server process: free ports, readiness, crash, restart, suspension."""

from __future__ import annotations

import atexit
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from keystead.errors import KeysteadError
from keystead.testing.resp_client import Wire, WireError

READY_S = 60.0  # a busy machine may start a dozen at once
POLL_S = 0.005
# Below the kernel's ephemeral ports, with room for a cluster's bus 10,000 above.
PORTS = range(20_000, 32_000)

_random = random.SystemRandom()
_running: set[Server] = set()
T = TypeVar("T", bound="Server")


class MissingProgram(KeysteadError):
    """A program that a test needs is not installed; the message says how to get it."""

    code = "missing-program"


class NotReady(KeysteadError):
    """A server did not come up, or did not reach the expected state, in time."""

    code = "server-not-ready"


def wait_until(condition: Callable[[], bool], what: str, seconds: float = READY_S) -> None:
    """Poll until the condition holds; NotReady on timeout."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise NotReady(f"timed out after {seconds:g} seconds waiting until {what}")
        time.sleep(POLL_S)


def suspend(pid: int) -> None:
    """Send SIGSTOP to a child process, and wait until it has stopped: the kernel stops its threads one by one."""
    os.kill(pid, signal.SIGSTOP)
    os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


class Server:
    """A server process. Its folder outlives `kill`, so that `restart` finds its files again."""

    _input: int | None = None  # its standard input: that of the tests

    def __init__(
        self,
        argv: Sequence[str],
        port: int,
        folder: Path,
        *,
        password: str | None = None,
        certificate: Path | None = None,
    ) -> None:
        self.argv = list(argv)
        self.port = port
        self.folder = folder
        self.password = password
        self.certificate = certificate  # with TLS: the certificate to trust
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        secret = "" if self.password is None else f":{self.password}@"
        return f"{'redis' if self.certificate is None else 'rediss'}://{secret}127.0.0.1:{self.port}/0"

    @property
    def socket_path(self) -> Path:
        """Its Unix socket, for a `redis+unix://` URL."""
        return self.folder / "server.sock"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise NotReady(f"the server on port {self.port} is not running")
        return self._process.pid

    @property
    def log_text(self) -> str:
        """Its log so far."""
        log = self.folder / "output.txt"
        return log.read_text("utf-8", "replace") if log.exists() else ""

    def wire(self) -> Wire:
        """A new connection that bypasses every store."""
        return Wire(self.port, password=self.password, certificate=self.certificate)

    def ask(self, *command: str | bytes | float) -> Any:
        """One command on a connection of its own."""
        with self.wire() as wire:
            return wire.call(*command)

    def start(self) -> None:
        """Start it and wait until it answers."""
        with (self.folder / "output.txt").open("ab") as output:
            self._process = subprocess.Popen(
                [*self._prefix(), *self.argv],
                cwd=self.folder,
                stdin=self._input,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        _running.add(self)
        try:
            wait_until(self._is_up_or_exited, f"the server on port {self.port} answers")
            if self._process.poll() is not None:
                raise NotReady(f"the server on port {self.port} exited at once: {self.log_text[-2000:]}")
        except BaseException:
            self.kill()
            raise

    def _prefix(self) -> list[str]:
        return die_with_parent()

    def kill(self) -> None:
        """Crash it (SIGKILL). No error if it is not running."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
        _running.discard(self)

    def stop(self) -> None:
        """Shut it down (SIGTERM), and wait for it."""
        if self._process is not None:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):  # it is killed below
                self._process.wait(READY_S)
        self.kill()

    def restart(self) -> None:
        """Crash it if it runs, and start it again on the same port and folder."""
        self.kill()
        self.start()

    def pause(self) -> None:
        """Suspend it: connections stay open, but nothing is answered."""
        if self._process is not None:
            suspend(self._process.pid)

    def resume(self) -> None:
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def _is_up_or_exited(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            return True
        try:
            return bool(self.ask("PING") == b"PONG")
        except OSError:
            return False
        except WireError as error:
            return not str(error).startswith("LOADING")


@atexit.register
def _kill_all() -> None:
    for server in list(_running):
        server.kill()


def die_with_parent(*further: str) -> list[str]:
    """A command prefix that makes the kernel kill the server when this process dies, even by SIGKILL.

    The kernel watches the thread that started the server, so only the main thread may ask for this. `further`: other
    options of `setpriv`, which must then be installed.
    """
    setpriv = shutil.which("setpriv")
    death_signal = ["--pdeathsig", "KILL"] if threading.current_thread() is threading.main_thread() else []
    if further and not setpriv:
        raise MissingProgram("setpriv is not on PATH: apt-get install util-linux")
    return [setpriv, *further, *death_signal] if setpriv and (further or death_signal) else []


def find_program(name: str, remedy: str) -> str:
    path = shutil.which(name)
    if path is None:
        raise MissingProgram(f"{name} is not on PATH: {remedy}")
    return path


def make_certificate(folder: Path) -> Path:
    """A self-signed certificate for 127.0.0.1 and localhost."""
    openssl = find_program("openssl", "apt-get install openssl")
    subprocess.run(
        [
            *(openssl, "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"),
            *("-keyout", "server.key", "-out", "server.crt", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"),
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return folder / "server.crt"


def free_port() -> int:
    """A port that is free now, as is the one 10,000 above it."""
    while True:
        port = _random.choice(PORTS)
        if _is_free(port) and _is_free(port + 10_000):
            return port


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


@contextmanager
def temporary_folder(parent: Path | None = None) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="keystead-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def serve(make: Callable[[int], T], port_taken: str = "in use") -> Iterator[T]:
    """Start the server that `make` returns for a free port, and kill it after the block.

    Another process may take the port between the look and the start: a log that matches `port_taken` means that, and
    the next port is tried.
    """
    for attempt in range(5):
        server = make(free_port())
        try:
            server.start()
            break
        except NotReady:
            if attempt == 4 or not re.search(port_taken, server.log_text):
                raise
    try:
        yield server
    finally:
        server.kill()
