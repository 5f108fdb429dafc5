"""The parent process of `keystead serve`: it replaces workers that die, and stops or renews them on a signal.

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
RENEWED: Final = "Keystead has new workers."
_FAILED: Final = "keystead: the workers keep exiting; see the log above."
_NOT_RENEWED: Final = "keystead: a new worker could not start; see the log above. The present workers continue."
_CRASH_LOOP_S: Final = 5.5  # a replacement that dies within this time after its start is not replaced again
_STOP_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
HAND_OVER: Final = signal.SIGUSR1  # to a worker: its replacement listens
_RENEW: Final = signal.SIGUSR2
SIGNALS: Final = (
    *_STOP_SIGNALS,
    _RENEW,
    signal.SIGCHLD,
)  # blocked from before the first fork until the handlers are set


class Supervisor:
    """Runs until SIGINT, SIGTERM or SIGHUP, or until a replacement dies, too.

    On SIGUSR2 it renews the workers one by one: a worker is told to hand over when its replacement listens. So there is
    one more process at a time. If a replacement cannot start, the workers that are left stay.

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
        self._outdated: list[int] = []  # to be renewed, by process id
        self._successor: int | None = None  # of the first of them, until it listens
        self._leaving: int | None = None  # a worker that was told to hand over
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
            received = _read(self._woken)
            # First: a signal to the whole process group has ended the workers, too, and they are not to be replaced.
            if any(one in _STOP_SIGNALS for one in received):
                self._stop()
            self._replace_dead()
            if _RENEW in received:
                known = {*self._outdated, self._leaving}
                self._outdated += [pid for pid in self._numbers if pid not in known]
            self._renew_next()
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

    def _reap(self) -> list[tuple[int, int]]:
        """The workers that have died since the last call: process ids and numbers."""
        died = []
        with suppress(ChildProcessError):
            while (pid := os.waitpid(-1, os.WNOHANG)[0]) != 0:
                if pid in self._numbers:  # as process 1 of a container, it also inherits others
                    died.append((pid, self._numbers.pop(pid)))
        return died

    def _replace_dead(self) -> None:
        for pid, number in self._reap():
            if self._stop_at is not None or self._has_successor(pid):
                continue
            if pid in self._outdated:
                self._outdated.remove(pid)
            if self._is_crash_loop(number):
                self._crashed = True
                self._stop()
            else:
                self._replaced.add(number)
                self._start(number)

    def _has_successor(self, pid: int) -> bool:
        """Whether the place of this worker, which has died, is taken."""
        if pid == self._leaving:
            self._leaving = None
            if not self._outdated:
                _print(1, RENEWED)
            return True
        if self._successor is None:
            return False
        if pid != self._successor:
            return pid == self._outdated[0]
        is_taken = self._outdated[0] in self._numbers
        self._successor = None
        self._outdated.clear()
        _print(2, _NOT_RENEWED)
        return is_taken

    def _renew_next(self) -> None:
        if self._outdated and self._successor is None and self._leaving is None and self._stop_at is None:
            self._successor = self._start(self._numbers[self._outdated[0]])

    def _hand_over(self, number: int) -> None:
        """Tell a worker to leave, if this is the number of its successor, which now listens."""
        if self._successor is None or self._numbers.get(self._successor) != number:
            return
        old = self._outdated.pop(0)
        self._successor = None
        if old in self._numbers:
            self._leaving = old
            os.kill(old, HAND_OVER)

    def _is_crash_loop(self, number: int) -> bool:
        since = self._listening_since.pop(number, None)
        return number in self._replaced and (since is None or time.monotonic() - since <= _CRASH_LOOP_S)

    def _start(self, number: int) -> int:
        # Blocked, so that Ctrl-C does not interrupt its imports; a worker ignores them, and then unblocks them.
        masked = (signal.SIGINT, signal.SIGHUP, _RENEW)
        command = [*self._plan["command"], str(number)]
        pid = os.posix_spawn(command[0], command, os.environ, setsigmask=masked, setsigdef=SIGNALS)
        self._numbers[pid] = number
        return pid

    def _note_listening(self) -> None:
        for number in _read(self._plan["ready"]):
            self._listening_since[number] = time.monotonic()
            self._hand_over(number)
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
