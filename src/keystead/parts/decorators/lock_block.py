"""`lock`: hold a lock for a block of work, in synchronous and asynchronous code."""

from __future__ import annotations

import os
import socket
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from datetime import timedelta
from types import TracebackType

from keystead.errors import BadDeclaration
from keystead.parts.lock import Hold, Holder, Lock
from keystead.schema.kinds import ValueKey
from keystead.stores.synchronous import enter


def lock(
    key: ValueKey[Holder],
    *,
    by: str | None = None,
    comment: str = "",
    wait: str | timedelta | None = None,
) -> LockBlock:
    """Hold a lock for a block of work: `with lock(keys.site_lock(7)) as hold:`, or `async with`.

    key       a key of a family `Locked`
    by        who holds it, for people; by default the host and the process
    comment   the purpose, for people
    wait      how long to wait for it. Then LockHeld is raised; by default at once

    It is refreshed in the background and released at the end. If it is lost, LockLost is raised: an asynchronous block
    is cancelled, a synchronous one goes on to its end (check `hold.good_until_ms` in long loops).
    """
    return LockBlock(Lock(key), this_process() if by is None else by, comment, wait)


class LockBlock:
    """A lock to be held once, by `with` or `async with`."""

    def __init__(self, lock: Lock, by: str, comment: str, wait: str | timedelta | None) -> None:
        self._lock = lock
        self._by = by
        self._comment = comment
        self._wait = wait
        self._entered: AbstractContextManager[Hold] | None = None
        self._entered_async: AbstractAsyncContextManager[Hold] | None = None

    def _holding(self) -> AbstractAsyncContextManager[Hold]:
        if self._entered is not None or self._entered_async is not None:
            raise BadDeclaration("a lock is held by one block at a time; write lock(…) again for the other")
        return self._lock.holding(self._by, self._comment, wait=self._wait)

    def __enter__(self) -> Hold:
        entered = enter(self._holding())
        hold = entered.__enter__()
        self._entered = entered
        return hold

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entered, self._entered = self._entered, None
        if entered is not None:
            entered.__exit__(kind, error, trace)

    async def __aenter__(self) -> Hold:
        entered = self._holding()
        hold = await entered.__aenter__()
        self._entered_async = entered
        return hold

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        entered, self._entered_async = self._entered_async, None
        if entered is not None:
            await entered.__aexit__(kind, error, trace)


def this_process() -> str:
    """Who holds a lock, if nobody says."""
    return f"{socket.gethostname()}/{os.getpid()}"
