"""Starting the server: it forks the workers, and becomes the supervisor, which needs little memory."""

from __future__ import annotations

import json
import os
import platform
import shutil
import signal
import socket
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NoReturn

from keystead.server.server_worker import METRICS_FOLDER, exclude_from_garbage_collection
from keystead.server.settings import Settings
from keystead.server.supervisor import SIGNALS, STOPPED
from keystead.server.worker_process import LISTEN_QUEUE, WorkerPlan, run_and_exit, run_worker

_ON_LINUX: Final = platform.system() == "Linux"
_SUPERVISOR: Final = Path(__file__).with_name("supervisor.py")
_REPLACEMENT: Final = "from keystead.server.worker_process import run_replacement; run_replacement()"


def free_address(settings: Settings) -> str:
    """The IP address of the host, if the port is free. Raises OSError."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(address)
        probe.listen()
    return str(address[0])


def run_workers(settings: Settings, address: str, listening: str, *, reloads: bool = False) -> None:
    """Serve until SIGINT or SIGTERM, and print `listening` once the first worker listens.

    This process becomes the supervisor, so this function does not return. Running requests may finish at the end; the
    exit code is 0, or 1 if the workers keep crashing. On Windows, which has no fork, it returns: a single worker runs
    in this process.

    `reloads`: changes of the user's modules renew the workers.
    """
    folder = tempfile.mkdtemp(prefix="keystead-metrics-")
    os.environ[METRICS_FOLDER] = folder
    if not hasattr(os, "fork"):
        try:
            run_worker(settings, WorkerPlan(address), 0, lambda: print(listening, flush=True))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        print(STOPPED)
        return
    _start_and_supervise(settings, address, listening, folder, reloads)


def _start_and_supervise(settings: Settings, address: str, listening: str, folder: str, reloads: bool) -> NoReturn:
    ready, tell_ready = os.pipe()
    os.set_inheritable(ready, True)
    os.set_inheritable(tell_ready, True)
    listener = _shared_listener(settings, address)
    plan = WorkerPlan(address, os.getpid(), tell_ready, listener, reloads, settings.sources_as_json())
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    # A signal waits until the supervisor handles it.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    exclude_from_garbage_collection()
    pids = []
    # Other systems than Linux do not support a fork without exec: their first workers start as replacements do.
    for number in range(settings.workers if _ON_LINUX else 0):
        pid = os.fork()
        if pid == 0:
            os.close(ready)
            run_and_exit(settings, plan, number)
        pids.append(pid)
    # -P and the search path: imports find the same modules as in this process, whichever program it runs.
    code = f"import sys; sys.path[:] = {sys.path!r}; {_REPLACEMENT}"
    for_supervisor = {
        "workers": pids,
        "missing": list(range(len(pids), settings.workers)),
        "command": [sys.executable, "-P", "-c", code, "keystead", "serve", str(_memory_file(asdict(plan)))],
        "ready": ready,
        "stop_s": max(1, -(-settings.stop_timeout // 1000)),
        "listening": listening,
        "folder": folder,
    }
    # The last arguments are only for readers of a process list.
    arguments = ["-I", "-S", str(_SUPERVISOR), str(_memory_file(for_supervisor)), "keystead", *sys.argv[1:]]
    os.execv(sys.executable, [sys.executable, *arguments])  # noqa: S606 - no shell is wanted


def _shared_listener(settings: Settings, address: str) -> int:
    """A listening socket that all workers share: connections that wait in it survive the workers."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    both = family == socket.AF_INET6 and socket.has_dualstack_ipv6()  # `::` is all addresses of IPv4, too
    listener = socket.create_server((address, settings.port), family=family, backlog=LISTEN_QUEUE, dualstack_ipv6=both)
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # its connections inherit it
    listener.set_inheritable(True)
    return listener.detach()


def _memory_file(content: Any) -> int:
    """A file in memory, or without a name, that the programs run by this process can read. It may contain secrets."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("keystead")
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    with open(descriptor, "w", encoding="utf-8", closefd=False) as text:
        json.dump(content, text)
    os.set_inheritable(descriptor, True)
    return descriptor
