"""A worker as a process: Granian, which serves the application, and what the supervisor needs to know of it."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NoReturn

from granian import Granian
from granian._granian import SocketHolder
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.log import LogLevels

from keystead.server.server_worker import load_worker
from keystead.server.settings import Settings
from keystead.server.supervisor import SIGNALS

LISTEN_QUEUE: Final = 1024
_MOST_CONNECTIONS: Final = 4096
_OTHER_FILES: Final = 256  # open files of a worker besides connections: stores, providers, metrics


@dataclass(frozen=True)
class WorkerPlan:
    """What the first workers and their replacements have in common."""

    address: str
    parent: int = 0  # the process id of the supervisor
    ready: int = -1  # a pipe for the number of each worker that listens
    listener: int = -1  # the shared socket, if there is one
    reloads: bool = False  # the first worker watches the sources
    sources: str = "[]"  # the settings, as read at the start: files may have changed since


def run_and_exit(settings: Settings, plan: WorkerPlan, number: int) -> NoReturn:
    """Be a worker until SIGTERM, then exit without the clean-up of the interpreter, as after any fork."""
    code: Any = 0
    try:
        for ignored in (signal.SIGINT, signal.SIGHUP, signal.SIGUSR2):  # the supervisor handles them
            signal.signal(ignored, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
        run_worker(settings, plan, number, lambda: os.write(plan.ready, bytes([number])))
    except SystemExit as error:
        code = error.code
    except BaseException:
        traceback.print_exc()
        code = 1
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError):
            stream.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def run_replacement() -> NoReturn:
    """Be a worker in a new process, which the supervisor started for one that died."""
    descriptor, number = map(int, sys.argv[-2:])
    # Other replacements read the same file: it is read from its start, and stays open in the supervisor.
    plan = WorkerPlan(**json.loads(os.pread(descriptor, os.fstat(descriptor).st_size, 0)))
    os.close(descriptor)
    run_and_exit(Settings.from_json(plan.sources), plan, number)


def run_worker(settings: Settings, plan: WorkerPlan, number: int, when_listening: Callable[[], object]) -> None:
    """Serve in this process until SIGTERM. Running requests may finish."""
    server = _InThisProcess(
        "keystead",
        address=plan.address,
        port=settings.port,
        interface=Interfaces.ASGI,
        # HTTP/1 only: detecting HTTP/2 would wait for the first bytes without a time limit.
        http=HTTPModes.http1,
        http1_settings=HTTP1Settings(header_read_timeout=settings.header_timeout),
        backlog=LISTEN_QUEUE,
        backpressure=_connection_limit(),
        websockets=False,
        log_level=LogLevels.critical,  # workers have their own log
    )
    server.number = number
    server.listener = plan.listener
    loader = partial(load_worker, settings, plan.parent, when_listening, plan.reloads and number == 0)
    server.serve(target_loader=loader, wrap_loader=False)


class _InThisProcess(Granian):  # type: ignore[misc, valid-type]
    """Granian without its main process, which would hold all imports a second time. Ours is the supervisor."""

    number: int
    listener: int

    def _serve(self, spawn_target: Any, target_loader: Any) -> None:
        if self.listener < 0:
            self._init_shared_socket()
        else:
            self._sso = socket.socket(fileno=self.listener)
            self._shd = SocketHolder(self.listener, False, LISTEN_QUEUE)  # type: ignore[call-arg]
        self._spawn_worker(self.number, spawn_target, target_loader).inner.run()


def _connection_limit() -> int:
    """The maximum number of connections per worker; further ones wait until one is closed.

    It is high, because silent clients count until `header_timeout`, but below the limit of open files, whose soft limit
    is raised as far as allowed.
    """
    try:
        import resource
    except ImportError:  # on Windows
        return _MOST_CONNECTIONS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_CONNECTIONS + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return _MOST_CONNECTIONS
    soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(soft - _OTHER_FILES, soft // 2)
