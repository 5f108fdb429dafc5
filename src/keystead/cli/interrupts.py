"""Stopping a long command: steps in progress finish, the stores are closed, and a message is printed."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TypeAlias

from keystead.cli.exit import fail

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

PauseSignals: TypeAlias = Callable[[], AbstractContextManager[None]]


@contextmanager
def stop_on_signals(
    message: Callable[[], str], handle_gently: Callable[[], bool] = lambda: False
) -> Iterator[PauseSignals]:
    """On Ctrl-C and SIGTERM, cancel the block, print the message and exit with 130 or 143.

    If `handle_gently` returns True, it has handled the signal, and the block continues.

    Yields a context manager that restores default signal handling, for prompts: they block the event loop, so it could
    not cancel them.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    received: list[int] = []

    def stop(signum: int) -> None:
        if handle_gently():
            return
        received.append(signum)
        if task is not None:
            task.cancel()

    def listen() -> None:
        for signum in _SIGNALS:
            with suppress(NotImplementedError):  # on Windows, Ctrl-C still ends the program
                loop.add_signal_handler(signum, stop, signum)

    def ignore() -> None:
        for signum in _SIGNALS:
            with suppress(NotImplementedError):
                loop.remove_signal_handler(signum)

    @contextmanager
    def pause() -> Iterator[None]:
        ignore()
        try:
            yield
        finally:
            listen()

    listen()
    try:
        yield pause
    except asyncio.CancelledError:
        if not received or task is None:
            raise
        task.uncancel()
        fail(message(), 128 + received[0])
    finally:
        ignore()
