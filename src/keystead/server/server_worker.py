"""A worker process: it retries while its store is down, and exits with its parent."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import Final

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from keystead.errors import KeysteadError, StoreUnavailable
from keystead.server.app import create_app
from keystead.server.hand_over import stop_accepting, stop_after
from keystead.server.logs import SERVER, set_up_logs
from keystead.server.request_layer import RequestLayer
from keystead.server.settings import Settings
from keystead.server.source_reload import reload_on_change
from keystead.server.supervisor import HAND_OVER

METRICS_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"  # the name is prometheus_client's
_RETRY_S: Final = 0.5
_CHECK_PARENT_EVERY_S: Final = 0.5


def load_worker(settings: Settings, parent: int, when_open: Callable[[], object], reloads: bool = False) -> ASGIApp:
    """Called by Granian in each worker. `parent` is the process that it ends with, if any.

    `when_open` is called when it is about to accept connections. `reloads`: it watches the sources, and tells its
    parent to renew the workers.
    """
    set_up_logs(settings.logs_as, settings.log_level, settings.development)
    if parent:
        _end_with_parent(parent, settings.stop_timeout / 1000)
    leaving = threading.Event()
    worker = ServerWorker(create_app(settings), when_open=when_open, leaving=leaving)
    if parent and reloads:
        reload_on_change(partial(os.kill, parent, signal.SIGUSR2), leaving)
    exclude_from_garbage_collection()
    return worker


def exclude_from_garbage_collection() -> None:
    """Exclude all current objects from garbage collections: modules, routes and models stay until the process ends.

    Collections of a worker then take a fraction of the time. Before a fork, it also lets both processes share more
    memory, since a collection writes to every object. There is little garbage yet, so none is collected first.
    """
    gc.freeze()


def _end_this_process() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


class ServerWorker:
    """The application in a worker process.

    `keystead serve` opens the stores once before it starts workers. So a worker that cannot reach them is a replacement
    during an outage: it retries, and responds with 503 until it succeeds. Any other error is logged, and `end` ends the
    process, so that the parent replaces it or gives up.
    """

    def __init__(
        self,
        app: FastAPI,
        end: Callable[[], None] = _end_this_process,
        when_open: Callable[[], object] = lambda: None,
        leaving: threading.Event | None = None,
    ) -> None:
        self._app = app
        self._end = end
        self._when_open = when_open
        self._leaving = leaving or threading.Event()  # set when it hands over
        self._opening: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._run_lifespan(receive, send)
        elif scope["type"] == "http":
            await self._app(scope, receive, send)

    async def _run_lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        _ignore_interrupts()
        tried = asyncio.Event()
        self._opening = asyncio.create_task(self._keep_open(tried))
        waiting = asyncio.create_task(tried.wait())
        await asyncio.wait((self._opening, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._opening.done() and (error := self._opening.exception()) is not None:
            _log_error(logging.CRITICAL, "a worker cannot start", error)
            await send({"type": "lifespan.startup.failed", "message": ""})
            return
        self._opening.add_done_callback(self._end_on_failure)
        with _call_on(signal.SIGTERM, self._stop_kits), _call_on(HAND_OVER, self._hand_over):
            await send({"type": "lifespan.startup.complete"})
            self._when_open()
            await receive()
        self._closing.set()
        with suppress(Exception):  # already logged
            await self._opening
        await send({"type": "lifespan.shutdown.complete"})

    def _stop_kits(self) -> None:
        """Let kits end long requests, such as streams: Granian waits for them before it starts the shutdown."""
        for kit in self._app.state.running:
            service = self._app.state.kits.get(kit.name)
            try:
                if service is not None:
                    kit.stop(service)
            except Exception as error:
                _log_error(logging.ERROR, f"the kit {kit.name} failed to stop", error)

    def _hand_over(self) -> None:
        """Leave new connections to a replacement, which already accepts them, and stop when the present ones end."""
        self._leaving.set()
        settings: Settings = self._app.state.settings
        stop_accepting(settings.port)
        if self._app.middleware_stack is None:  # no request yet
            self._app.middleware_stack = self._app.build_middleware_stack()
        if isinstance(self._app.middleware_stack, RequestLayer):
            self._app.middleware_stack.close_connections()
        stop_after(settings.header_timeout / 1000, settings.stop_timeout / 1000)

    def _end_on_failure(self, opening: asyncio.Task[None]) -> None:
        """End the process, which could only respond with 503 from now on."""
        if opening.cancelled() or (error := opening.exception()) is None:
            return
        if self._closing.is_set():
            _log_error(logging.ERROR, "a worker failed to close", error)
        else:
            _log_error(logging.CRITICAL, "a worker cannot continue", error)
            self._end()

    async def _keep_open(self, tried: asyncio.Event) -> None:
        """Keep the application open until shutdown. `tried` is set once it is open, or its store was unavailable."""
        while not self._closing.is_set():
            try:
                async with self._app.router.lifespan_context(self._app):
                    tried.set()
                    await self._closing.wait()
                    return
            except StoreUnavailable as error:
                if self._closing.is_set():
                    return
                SERVER.warning("%s Retrying.", error)
                tried.set()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), _RETRY_S)


def _log_error(level: int, what: str, error: BaseException) -> None:
    """Log the message of a Keystead error, which is enough to act on; other errors with their traceback."""
    if isinstance(error, KeysteadError):
        SERVER.log(level, "%s: %s", what, error)
    else:
        SERVER.log(level, what, exc_info=error)


def _ignore_interrupts() -> None:
    """Ctrl-C reaches all processes of a terminal. The parent handles it, and stops the workers with SIGTERM."""
    with suppress(NotImplementedError, ValueError):
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
    with suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _call_on(signum: int, what: Callable[[], None]) -> Iterator[None]:
    """Call `what` in the event loop on this signal. Signal handlers of the loop still run: the loop learns of signals
    by its wakeup descriptor."""
    loop = asyncio.get_running_loop()
    try:
        before = signal.signal(signum, lambda *_: loop.call_soon_threadsafe(what))
    except ValueError:  # only the main thread receives signals
        yield
        return
    signal.siginterrupt(signum, False)
    try:
        yield
    finally:
        signal.signal(signum, before)


def _end_with_parent(parent: int, stop_s: float) -> None:
    """Stop within a second or two if the parent was killed, to release the port, and remove its folder of metrics."""
    folder = os.environ.get(METRICS_FOLDER)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_CHECK_PARENT_EVERY_S)
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
        _end_this_process()
        time.sleep(stop_s)
        os._exit(1)

    threading.Thread(target=watch, name="keystead-parent-watch", daemon=True).start()
