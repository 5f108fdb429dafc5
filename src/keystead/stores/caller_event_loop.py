"""The event loop of synchronous callers: asyncio's own, with less work for each call."""

from __future__ import annotations

import asyncio
from collections.abc import Sized
from typing import Any, Final

TURNS: Final = 8


class CallerEventLoop(asyncio.SelectorEventLoop):
    """Runs what is ready for several turns before it looks for events and timers.

    A call takes four turns: it starts, it is sent, its reply arrives, it ends. Only the third has to look for events,
    which takes as long as all else of a turn. While `others` wait, each turn does: their threads run meanwhile, and
    their next calls join the same round trip.
    """

    def __init__(self, others: Sized) -> None:
        super().__init__()
        self._others = others

    def _run_once(self) -> None:
        own: Any = self
        ready = own._ready
        if not own._debug and not self._others:
            for _ in range(TURNS):
                if not ready or own._stopping:
                    break
                for _ in range(len(ready)):
                    handle = ready.popleft()
                    if not handle._cancelled:
                        handle._run()
        if not own._stopping or own._debug:
            super()._run_once()  # type: ignore[misc]
