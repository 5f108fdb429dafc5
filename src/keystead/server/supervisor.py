"""The parent process of `keystead serve`: it replaces workers that die, and stops them on a signal.

It is a program of its own, run by its path, and imports nothing but the standard library. So it takes 10 MB instead of
the 110 MB of a process that has loaded all kits. `processes` checks the settings, starts the first workers, and becomes
this program by `exec`, which keeps its process id and its children.
"""

import json
import os
import select
import signal
import sys
import time
from contextlib import suppress
from typing import Any, Final

STOPPED: Final = "Keystead has stopped."
_FAILED: Final = "keystead: the workers keep exiting; see the log above."
_CRASH_LOOP_S: Final = 5.5  # a replacement that dies within this time after its start is not replaced again
_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
SIGNALS: Final = (*_STOP_SIGNALS, signal.SIGCHLD)  # blocked from before the first fork until the handlers are set


class Supervisor:
    """Runs until SIGINT, SIGTERM or SIGHUP, or until a replacement dies, too.

    `plan` has the process ids of the first workers, the numbers of those still to start, the command of a replacement,
    a pipe in which each worker writes its number when it listens, the text to print then, how long workers may take to
    stop, and a folder to remove.
    """

    def __init__(self, plan: dict[str, Any]) -> None:
        self._plan = plan
        self._numbers: dict[int, int] = {pid: number for number, pid in enumerate(plan["workers"])}
        self._replaced: set[int] = set()
        self._listening_since: dict[int, float] = {}
        self._stop_at: float | None = None
        self._is_reported = False
        self._crashed = False
        self._woken, self._wakes = os.pipe()
        for one in (self._woken, self._wakes, plan["ready"]):
            os.set_blocking(one, False)

    def run(self) -> int:
        """The exit code of `keystead serve`."""
        self._receive_signals()
        for number in self._plan["missing"]:
            self._start(number)
        poll = select.poll()
        for source in (self._woken, self._plan["ready"]):
            poll.register(source, select.POLLIN)
        while self._numbers:
            poll.poll(None if self._stop_at is None else max(0, self._stop_at - time.monotonic()) * 1000)
            self._note_listening()
            # First: a signal to the whole process group has ended the workers, too, and they are not to be replaced.
            if any(one in _STOP_SIGNALS for one in _read(self._woken)):
                self._stop()
            self._replace_dead()
            if self._stop_at is not None and time.monotonic() >= self._stop_at:
                self._send(signal.SIGKILL)
                self._stop_at = time.monotonic() + 1
        _remove(self._plan["folder"])
        _print(*((2, _FAILED) if self._crashed else (1, STOPPED)))
        return 1 if self._crashed else 0

    def _receive_signals(self) -> None:
        for signum in SIGNALS:
            # With nohup, closing the terminal stops nothing.
            if signum != signal.SIGHUP or signal.getsignal(signum) != signal.SIG_IGN:
                signal.signal(signum, lambda *_: None)
        signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        os.write(self._wakes, bytes([signal.SIGCHLD]))  # of a worker that has already died

    def _reap(self) -> list[int]:
        """The numbers of the workers that have died since the last call."""
        died = []
        with suppress(ChildProcessError):
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                if pid in self._numbers:  # as process 1 of a container, it also inherits others
                    died.append(self._numbers.pop(pid))
        return died

    def _replace_dead(self) -> None:
        for number in self._reap():
            if self._stop_at is not None:
                continue
            if self._is_crash_loop(number):
                self._crashed = True
                self._stop()
            else:
                self._replaced.add(number)
                self._start(number)

    def _is_crash_loop(self, number: int) -> bool:
        since = self._listening_since.pop(number, None)
        return number in self._replaced and (since is None or time.monotonic() - since <= _CRASH_LOOP_S)

    def _start(self, number: int) -> None:
        # Blocked, so that Ctrl-C does not interrupt its imports; a worker ignores them, and then unblocks them.
        masked = (signal.SIGINT, signal.SIGHUP)
        command = [*self._plan["command"], str(number)]
        pid = os.posix_spawn(command[0], command, os.environ, setsigmask=masked, setsigdef=SIGNALS)
        self._numbers[pid] = number

    def _note_listening(self) -> None:
        for number in _read(self._plan["ready"]):
            self._listening_since[number] = time.monotonic()
            if not self._is_reported:
                self._is_reported = True
                _print(1, self._plan["listening"])

    def _stop(self) -> None:
        if self._stop_at is None:
            self._stop_at = time.monotonic() + self._plan["stop_s"]
            self._send(signal.SIGTERM)

    def _send(self, signum: int) -> None:
        for pid in self._numbers:
            with suppress(ProcessLookupError):
                os.kill(pid, signum)


def _read(pipe: int) -> bytes:
    try:
        return os.read(pipe, 4096)
    except BlockingIOError:
        return b""


def _print(stream: int, text: str) -> None:
    with suppress(OSError):  # a terminal that was closed, or a pipe that nobody reads
        os.write(stream, f"{text}\n".encode())


def _remove(folder: str) -> None:
    with suppress(OSError):
        for file in os.scandir(folder):
            os.unlink(file.path)
        os.rmdir(folder)


if __name__ == "__main__":
    with open(int(sys.argv[1]), encoding="utf-8") as given:
        given.seek(0)
        sys.exit(Supervisor(json.load(given)).run())
