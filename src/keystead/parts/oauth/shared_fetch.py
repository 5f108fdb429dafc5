"""Single flight: concurrent callers share one call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Shared(Generic[T]):
    """At most one call is in progress. Concurrent callers get its result or its failure.

    So a provider that hangs costs each login one timeout, and not one after another. Cancelling a caller does not
    cancel it for the others.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[T] | None = None

    @property
    def is_under_way(self) -> bool:
        return self._task is not None and not self._task.done()

    async def join(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Wait for the call in progress, or start one."""
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(begin())
            self._task.add_done_callback(_seen)
        return await asyncio.shield(self._task)


def _seen(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception: avoids asyncio's "never retrieved" warning."""
    if not task.cancelled():
        task.exception()
