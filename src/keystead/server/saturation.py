"""Whether a worker has had more to do than it can, for longer than a burst."""

from __future__ import annotations

import asyncio
import time
from typing import Final

LONG_TURN_S: Final = 0.0015
BURST_S: Final = 0.1  # of work
_FORGOTTEN: Final = 0.1  # of the time between long turns


class Saturation:
    """Adds up the long turns of the event loop, and forgets them in the time between.

    A turn is measured by the CPU time of its thread: by the clock, a busy machine would look like a busy worker. The
    number of requests does not tell, either: a thousand that wait for a slow store are no work.
    """

    def __init__(self) -> None:
        self._is_measuring = False
        self._turn_began_s = 0.0
        self._long_turn_at = 0.0
        self._work_s = 0.0  # in long turns
        self._lasts = False

    def lasts(self) -> bool:
        """Call it with each request while there are many: it also measures this turn."""
        if not self._is_measuring:
            self._is_measuring = True
            between_s = time.monotonic() - self._long_turn_at
            self._work_s = max(0.0, self._work_s - _FORGOTTEN * between_s)
            self._long_turn_at += between_s
            self._lasts = self._work_s >= (BURST_S / 2 if self._lasts else BURST_S)
            self._turn_began_s = time.thread_time()
            asyncio.get_running_loop().call_soon(self._end_turn)
        return self._lasts

    def _end_turn(self) -> None:
        self._is_measuring = False
        turn_s = time.thread_time() - self._turn_began_s
        if turn_s >= LONG_TURN_S:
            self._work_s = min(self._work_s + turn_s, 2 * BURST_S)
            self._long_turn_at = time.monotonic()
