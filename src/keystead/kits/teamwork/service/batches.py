"""Group commit: what waits at the same moment is written in one transaction."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

from keystead.errors import Contended, StoreClosed, StoreFull, StoreReadOnly, StoreUnavailable

Job = TypeVar("Job")

_Batch: TypeAlias = "list[tuple[Job, asyncio.Future[Any]]]"
_OF_THE_STORE: Final = (StoreUnavailable, StoreClosed, StoreReadOnly, StoreFull, Contended)


class Batches(Generic[Job]):
    """Jobs of many callers, run together: while one batch is being committed, the next one gathers.

    So a single job is never held up, and a burst costs a commit for each batch and not for each job.

    run      runs jobs in one transaction, and returns what each of them returns, in their order
    size_of  how much of a batch a job takes
    most     how much one batch takes; a larger job is run alone

    A job that is wrong fails alone: its batch is run again in halves, until it is the only one. A store that fails
    fails all of them. A caller who is cancelled leaves the batch, unless that is under way.
    """

    def __init__(
        self, run: Callable[[Sequence[Job]], Awaitable[Sequence[Any]]], size_of: Callable[[Job], int], most: int
    ) -> None:
        self._run = run
        self._size_of = size_of
        self._most = most
        self._waiting: deque[tuple[Job, asyncio.Future[Any]]] = deque()
        self._running: asyncio.Task[None] | None = None

    async def add(self, job: Job) -> Any:
        """Run a job with those that wait, too; what it returns. Raises what it raises."""
        done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((job, done))
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run_all(), name="keystead batches")
        return await done

    async def _run_all(self) -> None:
        while batch := self._next():
            await self._run_batch(batch)

    def _next(self) -> _Batch[Job]:
        batch: _Batch[Job] = []
        size = 0
        while self._waiting:
            job, done = self._waiting[0]
            size += self._size_of(job)
            if batch and size > self._most:
                break
            self._waiting.popleft()
            if not done.done():  # or its caller was cancelled
                batch.append((job, done))
        return batch

    async def _run_batch(self, batch: _Batch[Job]) -> None:
        try:
            results = await self._run([job for job, _ in batch])
        except Exception as error:
            if len(batch) == 1 or isinstance(error, _OF_THE_STORE):
                for _, done in batch:
                    if not done.done():
                        done.set_exception(error)
                return
            # In halves, so that who sends what is wrong again and again does not make all others wait one by one.
            half = len(batch) // 2
            await self._run_batch(batch[:half])
            await self._run_batch(batch[half:])
        else:
            for (_, done), result in zip(batch, results, strict=True):
                if not done.done():
                    done.set_result(result)
