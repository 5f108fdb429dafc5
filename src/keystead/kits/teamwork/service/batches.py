"""Group commit: concurrent jobs share one transaction."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Generic, TypeAlias, TypeVar

from keystead.errors import Contended, StoreClosed, StoreFull, StoreReadOnly, StoreUnavailable

Job = TypeVar("Job")

_Batch: TypeAlias = "list[tuple[Job, asyncio.Future[Any]]]"
_STORE_FAILURES: Final = (StoreUnavailable, StoreClosed, StoreReadOnly, StoreFull, Contended)


class Batches(Generic[Job]):
    """Runs jobs of many callers together: while one batch commits, the next one gathers.

    A single job never waits, and a burst costs one commit per batch instead of one per job.

    run      runs jobs in one transaction, and returns their results in order
    size_of  the size of a job
    most     the size of a batch; a larger job runs alone

    A bad job fails alone: its batch is split in halves and run again until the job is isolated. A store failure fails
    the whole batch. A cancelled caller leaves the batch, unless it is already running.
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
        """Run a job together with the waiting ones. Returns its result, or raises its error."""
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
            if len(batch) == 1 or isinstance(error, _STORE_FAILURES):
                for _, done in batch:
                    if not done.done():
                        done.set_exception(error)
                return
            # In halves, so that repeated bad jobs do not force all others to run one by one.
            half = len(batch) // 2
            await self._run_batch(batch[:half])
            await self._run_batch(batch[half:])
        else:
            for (_, done), result in zip(batch, results, strict=True):
                if not done.done():
                    done.set_result(result)
