"""The parent process of `keystead serve`: it starts the workers, and replaces those that die."""

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
from keystead.server.server_worker import METRICS_FOLDER, exclude_from_garbage_collection, load_worker
from keystead.server.settings import Settings

START_TIMEOUT_S: Final = 30.0
_MOST_CONNECTIONS: Final = 4096
_OTHER_FILES: Final = 256  # open files of a worker besides connections: stores, providers, metrics


class WorkersEnded(Exception):
    """Workers keep crashing."""


def free_address(settings: Settings) -> str:
    """The IP address of the host, if the port is free. Raises OSError.

    Granian binds with SO_REUSEPORT, so a second Keystead on the same port would not fail.
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
    """Run until SIGINT or SIGTERM. Running requests may finish; the workers have exited when this returns.

    Raises `WorkersEnded` if the workers keep crashing.
    """
    with _metrics_folder():
        server = _Server(
            "keystead",
            address=address,
            port=settings.port,
            interface=Interfaces.ASGI,
            workers=settings.workers,
            # HTTP/1 only: detecting HTTP/2 would wait for the first bytes without a time limit.
            http=HTTPModes.http1,
            http1_settings=HTTP1Settings(header_read_timeout=settings.header_timeout),
            backpressure=_connection_limit(),
            websockets=False,
            log_level=LogLevels.critical,  # workers have their own log
            respawn_failed_workers=True,
            workers_kill_timeout=max(1, -(-settings.stop_timeout // 1000)),
        )
        server.when_listening = when_listening
        ended = 0
        exclude_from_garbage_collection()
        try:
            server.serve(target_loader=partial(load_worker, settings), wrap_loader=False)
        except SystemExit as error:
            ended = 1 if error.code else 0
        if ended and not server.asked_to_stop:
            raise WorkersEnded


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


class _Server(Granian):  # type: ignore[misc, valid-type]
    """Granian's main process. It also reports when the first worker listens, and whether it was asked to stop."""

    when_listening: Callable[[], None]
    asked_to_stop = False

    def startup(self, spawn_target: Any, target_loader: Any) -> None:
        super().startup(spawn_target, target_loader)
        for signum in (signal.SIGINT, signal.SIGTERM):
            signal.signal(signum, self._stop)
        # After the fork of the workers: a thread could hold a lock while forking.
        threading.Thread(target=self._report_listening, daemon=True).start()

    def _stop(self, signum: int, frame: FrameType | None) -> None:
        self.asked_to_stop = True
        self.signal_handler_interrupt(signum, frame)

    def _report_listening(self) -> None:
        """Try to connect until it works: Granian does not report when it accepts connections."""
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
    """A temporary folder for the metrics of the workers."""
    folder = tempfile.mkdtemp(prefix="keystead-metrics-")
    os.environ[METRICS_FOLDER] = folder
    try:
        yield
    finally:
        os.environ.pop(METRICS_FOLDER, None)
        shutil.rmtree(folder, ignore_errors=True)
