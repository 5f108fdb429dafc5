"""Single flight: concurrent callers share one call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class SharedCall(Generic[T]):
    """At most one call is in progress. Concurrent callers get its result or its failure.

    So a hanging provider costs concurrent logins one timeout in total. Cancelling a caller does not cancel the call.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[T] | None = None

    @property
    def is_running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def join(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Wait for the call in progress, or start one."""
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(begin())
            self._task.add_done_callback(_retrieve_exception)
        return await asyncio.shield(self._task)


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    """Retrieve the exception: avoids asyncio's "never retrieved" warning."""
    if not task.cancelled():
        task.exception()
