"""`keystead serve`: the parent process, which starts the workers and replaces those that die."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import FrameType
from typing import Any, Final

from granian import Granian
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.log import LogLevels

from keystead.server.addresses import reachable
from keystead.server.server_worker import METRICS_FOLDER, load_worker
from keystead.server.settings import Settings

START_TIMEOUT_S: Final = 30.0
_MOST_CONNECTIONS: Final = 4096
_OTHER_FILES: Final = 256  # that a worker has open besides: stores, providers, metrics


class WorkersEnded(Exception):
    """Workers keep crashing."""


def free_address(settings: Settings) -> str:
    """The host as an IP address, after making sure that the port is free. Raises OSError.

    Granian shares its port with any process that is willing to share; a second Keystead must be told instead.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(
        settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        probe.listen()
    return str(address[0])


def run_workers(settings: Settings, address: str, when_listening: Callable[[], None]) -> None:
    """Run until SIGINT or SIGTERM; then requests under way may end, and the workers are gone when this returns.

    Raises `WorkersEnded` where they cannot be kept running.
    """
    with _metrics_folder():
        server = _Server(
            "keystead",
            address=address,
            port=settings.port,
            interface=Interfaces.ASGI,
            workers=settings.workers,
            # HTTP/1 alone: to tell it from HTTP/2 the first bytes would be waited for, without any limit.
            http=HTTPModes.http1,
            http1_settings=HTTP1Settings(header_read_timeout=settings.header_timeout),
            backpressure=_connection_limit(),
            websockets=False,
            log_level=LogLevels.critical,  # what workers have to say, they log themselves
            respawn_failed_workers=True,
            workers_kill_timeout=max(1, -(-settings.stop_timeout // 1000)),
        )
        server.when_listening = when_listening
        ended = 0
        try:
            server.serve(target_loader=partial(load_worker, settings), wrap_loader=False)
        except SystemExit as error:
            ended = 1 if error.code else 0
        if ended and not server.asked_to_stop:
            raise WorkersEnded


def _connection_limit() -> int:
    """How many connections each worker holds; further ones wait until one is closed.

    It is far more than clients that answer need, since silent ones count until `header_timeout` is over, and fewer than
    the files that a process may open. The soft limit of those is raised for that, as far as it may be.
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


class _Server(Granian):  # type: ignore[misc, valid-type]
    """Granian's main process, which also says when the first worker listens, and whether it was asked to stop."""

    when_listening: Callable[[], None]
    asked_to_stop = False

    def startup(self, spawn_target: Any, target_loader: Any) -> None:
        super().startup(spawn_target, target_loader)
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, self._stop)
        # After the workers were forked: a process that forks should have no thread that might hold a lock.
        threading.Thread(target=self._say_when_listening, daemon=True).start()

    def _stop(self, signum: int, frame: FrameType | None) -> None:
        self.asked_to_stop = True
        self.signal_handler_interrupt(signum, frame)

    def _say_when_listening(self) -> None:
        """Granian does not say when it accepts connections, so one is tried until it is accepted."""
        stopped = threading.Event()
        for _ in range(int(START_TIMEOUT_S / 0.01)):
            if self.asked_to_stop or self.interrupt_children:
                return
            try:
                socket.create_connection((reachable(self.bind_addr), self.bind_port), timeout=1).close()
            except OSError:
                stopped.wait(0.01)
            else:
                self.when_listening()
                return


@contextmanager
def _metrics_folder() -> Iterator[None]:
    """Where the workers put their numbers, for as long as they run."""
    folder = tempfile.mkdtemp(prefix="keystead-metrics-")
    os.environ[METRICS_FOLDER] = folder
    try:
        yield
    finally:
        os.environ.pop(METRICS_FOLDER, None)
        shutil.rmtree(folder, ignore_errors=True)
