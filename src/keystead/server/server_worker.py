"""A worker process: the application, opened even while its store is away, and never left behind by its parent."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from keystead.errors import KeysteadError, StoreUnavailable
from keystead.server.app import create_app
from keystead.server.logs import SERVER, set_up_logs
from keystead.server.settings import Settings

METRICS_FOLDER: Final = "PROMETHEUS_MULTIPROC_DIR"  # the name is prometheus_client's
_TRY_AGAIN_S: Final = 0.5
_LOOK_EVERY_S: Final = 0.5


def load_worker(settings: Settings) -> ASGIApp:
    """What Granian calls in each new process."""
    set_up_logs(settings.logs_as, settings.log_level, settings.development)
    _end_with_parent(os.getppid(), settings.stop_timeout / 1000)
    return ServerWorker(create_app(settings))


def _end_this_process() -> None:
    os.kill(os.getpid(), signal.SIGTERM)


class ServerWorker:
    """The application in a process of its own.

    `keystead serve` has opened the stores once before any worker starts. So a worker that cannot open them replaces one
    that died while a store was away: it goes on trying, and answers 503 until it has succeeded. Whatever else keeps it
    from opening is logged, and `end` ends the process, so that the parent replaces it or gives up.
    """

    def __init__(self, app: FastAPI, end: Callable[[], None] = _end_this_process) -> None:
        self._app = app
        self._end = end
        self._opening: asyncio.Task[None] | None = None
        self._closing = asyncio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._app(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        await receive()
        _leave_interrupts_to_the_parent()
        tried = asyncio.Event()
        self._opening = asyncio.create_task(self._keep_open(tried))
        waiting = asyncio.create_task(tried.wait())
        await asyncio.wait((self._opening, waiting), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if self._opening.done() and (error := self._opening.exception()) is not None:
            _log_error(logging.CRITICAL, "a worker cannot start", error)
            await send({"type": "lifespan.startup.failed", "message": ""})
            return
        self._opening.add_done_callback(self._end_if_it_failed)
        with _call_on_sigterm(self._stop_kits):
            await send({"type": "lifespan.startup.complete"})
            await receive()
        self._closing.set()
        with suppress(Exception):  # said when it happened
            await self._opening
        await send({"type": "lifespan.shutdown.complete"})

    def _stop_kits(self) -> None:
        """Granian waits for requests under way before it says that the application is to close. A kit may have some
        that would be waited for in vain, and cut off in the end."""
        for kit in self._app.state.running:
            service = self._app.state.kits.get(kit.name)
            try:
                if service is not None:
                    kit.stop(service)
            except Exception as error:
                _log_error(logging.ERROR, f"the kit {kit.name} did not stop well", error)

    def _end_if_it_failed(self, opening: asyncio.Task[None]) -> None:
        """It could only answer 503 from now on, without a visible reason."""
        if opening.cancelled() or (error := opening.exception()) is None:
            return
        if self._closing.is_set():
            _log_error(logging.ERROR, "a worker did not close well", error)
        else:
            _log_error(logging.CRITICAL, "a worker cannot go on", error)
            self._end()

    async def _keep_open(self, tried: asyncio.Event) -> None:
        """Hold the application open until it is to close; `tried` is set once it is open, or its store was away."""
        while not self._closing.is_set():
            try:
                async with self._app.router.lifespan_context(self._app):
                    tried.set()
                    await self._closing.wait()
                    return
            except StoreUnavailable as error:
                if self._closing.is_set():
                    return
                SERVER.warning("%s Trying again.", error)
                tried.set()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._closing.wait(), _TRY_AGAIN_S)


def _log_error(level: int, what: str, error: BaseException) -> None:
    """Our errors say what to do in their message; others are logged with their traceback."""
    if isinstance(error, KeysteadError):
        SERVER.log(level, "%s: %s", what, error)
    else:
        SERVER.log(level, what, exc_info=error)


def _leave_interrupts_to_the_parent() -> None:
    """Ctrl-C reaches every process of a terminal. Only the parent handles it, and stops workers with SIGTERM."""
    with suppress(NotImplementedError, ValueError):
        asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
    with suppress(ValueError):
        signal.signal(signal.SIGINT, signal.SIG_IGN)


@contextmanager
def _call_on_sigterm(stop: Callable[[], None]) -> Iterator[None]:
    """Have this called in the event loop when the process is asked to stop. Whoever else listens, through the loop, is
    told as before: the loop learns of a signal by its wakeup descriptor, and not by the handler."""
    loop = asyncio.get_running_loop()
    try:
        before = signal.signal(signal.SIGTERM, lambda *_: loop.call_soon_threadsafe(stop))
    except ValueError:  # this is not the main thread, which alone is told of signals
        yield
        return
    signal.siginterrupt(signal.SIGTERM, False)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _end_with_parent(parent: int, stop_s: float) -> None:
    """A worker whose parent was killed would hold the port for ever: it stops by itself, within a second or two.

    It also removes the folder of metrics, which the parent cannot any more.
    """

    folder = os.environ.get(METRICS_FOLDER)

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_EVERY_S)
        if folder:
            shutil.rmtree(folder, ignore_errors=True)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(stop_s)
        os._exit(1)

    threading.Thread(target=watch, name="keystead-parent-watch", daemon=True).start()
