"""Stopping a long command: steps in progress finish, the stores are closed, and a message says so."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TypeAlias

from keystead.cli.exit import leave

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


Paused: TypeAlias = Callable[[], AbstractContextManager[None]]


@contextmanager
def stoppable(sentence: Callable[[], str], gently: Callable[[], bool] = lambda: False) -> Iterator[Paused]:
    """Ctrl-C and SIGTERM end the block, say the sentence, and leave with 130 or 143, as a shell expects.

    Where `gently` says True it has taken the signal upon itself: the block goes on, and ends in its own way.

    It gives a context manager in which signals do what they always do: for a question to a person, which the event
    loop waits for and could not be stopped in.
    """
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    received: list[int] = []

    def stop(signum: int) -> None:
        if gently():
            return
        received.append(signum)
        if task is not None:
            task.cancel()

    def listen() -> None:
        for signum in _SIGNALS:
            with suppress(NotImplementedError):  # Windows, where Ctrl-C still ends the program
                loop.add_signal_handler(signum, stop, signum)

    def ignore() -> None:
        for signum in _SIGNALS:
            with suppress(NotImplementedError):
                loop.remove_signal_handler(signum)

    @contextmanager
    def paused() -> Iterator[None]:
        ignore()
        try:
            yield
        finally:
            listen()

    listen()
    try:
        yield paused
    except asyncio.CancelledError:
        if not received or task is None:
            raise
        task.uncancel()
        leave(sentence(), 128 + received[0])
    finally:
        ignore()
