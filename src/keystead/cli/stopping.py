"""How a long command is stopped: what is under way ends, the stores are closed, and one sentence says so."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from keystead.cli.leave import leave

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stoppable(sentence: Callable[[], str]) -> Iterator[None]:
    """Ctrl-C and SIGTERM end the block, say the sentence, and leave with 130 or 143, as a shell expects."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    received: list[int] = []

    def stop(signum: int) -> None:
        received.append(signum)
        if task is not None:
            task.cancel()

    for signum in _SIGNALS:
        with suppress(NotImplementedError):  # Windows, where Ctrl-C still ends the program
            loop.add_signal_handler(signum, stop, signum)
    try:
        yield
    except asyncio.CancelledError:
        if not received or task is None:
            raise
        task.uncancel()
        leave(sentence(), 128 + received[0])
    finally:
        for signum in _SIGNALS:
            with suppress(NotImplementedError):
                loop.remove_signal_handler(signum)
