"""The time limits of requests: one timer for all, since all have the same limit."""

from __future__ import annotations

import asyncio
from typing import cast


class TimeLimit:
    """The time limit of one task. When it is over, the task is cancelled; `end` then says so.

    It does what `asyncio.timeout` does, for a fraction of the cost, which every request pays.
    """

    __slots__ = ("_cancelling", "_deadlines", "_is_over", "_own_timer", "_task")

    def __init__(self, deadlines: dict[TimeLimit, float], task: asyncio.Task[object]) -> None:
        self._deadlines = deadlines
        self._task = task
        self._cancelling = task.cancelling()
        self._is_over = False
        self._own_timer: asyncio.TimerHandle | None = None

    def reschedule(self, when: float | None) -> None:
        """Change the time limit, by the clock of the event loop; None removes it."""
        self._stop()
        if when is not None and not self._is_over:
            self._own_timer = asyncio.get_running_loop().call_at(when, self.cancel)

    def cancel(self) -> None:
        self._is_over = True
        self._stop()
        self._task.cancel()

    def end(self) -> bool:
        """Call it when the work has ended, once or twice. Whether only the time limit cancelled the task."""
        self._stop()
        if not self._is_over:
            return False
        self._is_over = False
        return self._task.uncancel() <= self._cancelling

    def _stop(self) -> None:
        self._deadlines.pop(self, None)
        if self._own_timer is not None:
            self._own_timer.cancel()
            self._own_timer = None


class TimeLimits:
    """Begins the time limits of requests. The earliest deadline is always the first of the dictionary."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._deadlines: dict[TimeLimit, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def begin(self) -> TimeLimit:
        """Limit the time of the current task from now on."""
        loop = asyncio.get_running_loop()
        limit = TimeLimit(self._deadlines, cast("asyncio.Task[object]", asyncio.current_task(loop)))
        deadline = self._deadlines[limit] = loop.time() + self._limit_s
        if self._timer is None or loop is not self._loop:
            self._loop = loop
            self._timer = loop.call_at(deadline, self._check, loop)
        return limit

    def _check(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = None
        now = loop.time()
        for limit, deadline in list(self._deadlines.items()):
            if deadline > now:
                self._timer = loop.call_at(deadline, self._check, loop)
                return
            limit.cancel()
