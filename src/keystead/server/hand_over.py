"""Handing over: a worker that stops without breaking a connection, while its replacement accepts the new ones.

It leaves the shared listening socket first, so that no connection waits for it. Then each response closes its
connection. After `header_timeout`, connections without a request would be closed anyway, and the worker stops.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from contextlib import suppress
from typing import Final

_DESCRIPTORS: Final = "/dev/fd"
_MARGIN_S: Final = 0.2


def stop_accepting(port: int) -> None:
    """Accept no more connections on this port in this process. Others that share its socket still do.

    Granian cannot be told to. So each of its descriptors becomes a socket to which nothing connects.
    """
    idle = socket.create_server(("127.0.0.1", 0))
    idle.setblocking(False)
    idle_port = idle.getsockname()[1]
    for name in os.listdir(_DESCRIPTORS):
        if idle_port != port == _listens_on(int(name)):
            os.dup2(idle.fileno(), int(name), inheritable=False)
    idle.detach()


def _listens_on(descriptor: int) -> int | None:
    """The port, if this is a listening socket."""
    try:
        copy = socket.socket(fileno=os.dup(descriptor))
    except OSError:  # not a socket
        return None
    with copy:
        if copy.family not in (socket.AF_INET, socket.AF_INET6):
            return None
        if not copy.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            return None
        port: int = copy.getsockname()[1]
        return port


def stop_after(idle_s: float, stop_s: float) -> None:
    """Stop this process when idle connections have ended, or `stop_s` later if requests still run then."""

    def stop() -> None:
        time.sleep(idle_s + _MARGIN_S)
        with suppress(ProcessLookupError):
            os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(stop_s)
        os._exit(1)

    threading.Thread(target=stop, name="keystead-hand-over", daemon=True).start()
