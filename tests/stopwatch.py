"""How long something took, of the time in which this process could run: a busy machine makes nothing late by itself."""

import os
import time
from pathlib import Path


class Stopwatch:
    """Runs from when it is made."""

    def __init__(self) -> None:
        self._began_s, self._waited_s = time.monotonic(), _kept_waiting_s()

    @property
    def seconds(self) -> float:
        """What has passed, without the time in which threads of this process were ready to run and others ran."""
        return time.monotonic() - self._began_s - max(0.0, _kept_waiting_s() - self._waited_s)


def _kept_waiting_s() -> float:
    """How long the kernel has let the threads of this process wait for a processor; 0 where it does not say."""
    waited_ns = 0
    for thread in os.listdir(_THREADS) if _THREADS.exists() else ():
        try:
            waited_ns += int((_THREADS / thread / "schedstat").read_text().split()[1])
        except (FileNotFoundError, ProcessLookupError):  # it has just ended, or nobody counts here
            continue
    return waited_ns / 1e9


_THREADS = Path("/proc/self/task")
