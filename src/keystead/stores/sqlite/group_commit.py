"""Group commit: all writes of a process go through one queue, in groups that share a commit.

Commands run in the thread of the event loop: they take microseconds, and another thread would have to reacquire
Python's lock (GIL) after each statement, which under load costs milliseconds each time. The slow part, the commit with
its sync to disk, runs in a worker thread. Writes that arrive meanwhile form the next group.

If the loop has nothing else to do and the disk is fast, the loop's thread waits for the commit itself, for a moment: to
be woken by another thread takes a third as long as a sync. A disk that hangs holds it up for a millisecond at most.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Sequence, Sized
from contextlib import suppress
from itertools import chain
from typing import Any, TypeAlias

from keystead.errors import CommandError, KeysteadError, StoreClosed, StoreUnavailable
from keystead.stores.commands import Call
from keystead.stores.sqlite.database_file import explain, is_locked
from keystead.stores.sqlite.sqlite_interpreter import SqliteInterpreter
from keystead.stores.worker_thread import WorkerJob, WorkerThread

GROUP_COMMANDS = 1_000  # per group, unless one batch alone has more
CALLS_A_TURN = 32  # consecutive calls that do not wait, before other tasks get a turn
INLINE_COMMANDS = 200  # a larger group runs in the worker, to keep the event loop responsive
QUIET_TURNS, QUIET_S = 2, 0.000_1  # turns of the loop before it waits for a commit; it is busy if they take longer
LONGEST_WAIT_S = 0.001


# Calls, whose result is their replies; or a function to run in the transaction, which uses keys only through the
# interpreter, because that buffers changes.
Work: TypeAlias = list[Call] | Callable[[], Any]


class Batch:
    """Work that takes effect as a whole, and the future of its caller."""

    __slots__ = ("commands", "deadline", "future", "heavy", "started", "work")

    def __init__(self, work: Work, heavy: bool, future: asyncio.Future[Any], deadline: float) -> None:
        self.work = work
        self.commands = len(work) if isinstance(work, list) else 1
        self.heavy = heavy
        self.future = future
        self.deadline = deadline
        self.started = False


class GroupCommit:
    def __init__(
        self,
        connection: sqlite3.Connection,
        interpreter: SqliteInterpreter,
        path: str,
        worker: WorkerThread,
        loop: asyncio.AbstractEventLoop,
        *,
        timeout: float,
        before_group: Callable[[], None],
        after_commit: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._interpreter = interpreter
        self._before_group = before_group
        self._after_commit = after_commit
        self._path = path
        self._worker = worker
        self._loop = loop
        self._now = loop.time
        # The callbacks that asyncio runs next; of another loop, only the time of its turns shows that it is busy.
        self._ready: Sized = getattr(loop, "_ready", ())
        self._timeout = timeout
        self._queue: deque[Batch] = deque()
        self._between: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._group: Sequence[Batch] = ()  # in progress; the batches in the queue came later
        self._timer: asyncio.TimerHandle | None = None
        self._busy = False
        self._closed = False
        self._alone = 0  # how many batches at the head each run in a separate group
        self._commit_s = 0.0  # how long a commit takes, as of late
        self._idle: asyncio.Future[None] | None = None

    @property
    def waiting(self) -> int:
        """The number of waiting batches."""
        return len(self._queue)

    @property
    def busy(self) -> bool:
        """Whether a group, or a job between two, is in progress."""
        return self._busy

    def submit(self, work: Work, *, heavy: bool = False) -> asyncio.Future[Any]:
        """Run `work` inside a write transaction. The future completes when its commit is on disk.

        `heavy` work runs in the worker thread. Work whose future is done before its turn is not run.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._closed:
            future.set_exception(StoreClosed("the store is closed"))
            return future
        deadline = self._now() + self._timeout
        self._queue.append(Batch(work, heavy, future, deadline))
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._fail_overdue)
        if not self._busy:
            self._busy = True
            # One turn later, so that all tasks that are ready now join this group.
            self._loop.call_soon(self._next)
        return future

    def run_between_groups(self, job: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run `job` in the worker between two groups, outside of any transaction."""
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._closed:
            future.cancel()
            return future
        self._between.append((job, future))
        if not self._busy:
            self._busy = True
            self._loop.call_soon(self._next)
        return future

    async def close(self) -> None:
        """Refuse new work, fail the waiting batches, and wait for the commit in progress."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        for batch in self._queue:
            _fail(batch.future, StoreClosed("the store was closed before this was written"))
        self._queue.clear()
        for _, future in self._between:
            future.cancel()
        self._between.clear()
        if self._busy:
            self._idle = self._loop.create_future()
            try:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._timeout):
                        await self._idle
            finally:
                # If the disk hangs, neither callers nor the process wait for it.
                for batch in self._group:
                    _fail(batch.future, StoreUnavailable("the store was closed while this was written", "unknown"))

    # --- one group after another ---------------------------------------------------------------------------

    def _next(self) -> None:
        while self._queue and self._queue[0].future.done():
            self._drop(self._queue.popleft())
        if self._between and not self._alone:
            job, future = self._between.popleft()
            self._worker.submit(job, lambda result, error: self._finish_between(future, result, error))
        elif self._queue:
            self._before_group()
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            except Exception as error:
                if is_locked(error):
                    self._worker.submit(self._wait_for_lock, self._after_lock_wait)
                else:
                    self._finish(self._take()[0], None, error)
            else:
                self._fill()
        else:
            self._busy = False
            if self._idle is not None and not self._idle.done():
                self._idle.set_result(None)

    def _finish_between(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        if not future.done():
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
        self._loop.call_soon(self._next)

    def _wait_for_lock(self) -> None:
        """In the worker. SQLite's own busy handler backs off to a tenth of a second; a group ends far sooner."""
        end = time.monotonic() + self._timeout
        pause = 0.0002
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.Error as error:
                if not is_locked(error) or time.monotonic() > end or self._closed:
                    raise
            time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - jitter, not security
            pause = min(pause * 1.5, 0.005)

    def _after_lock_wait(self, result: None, error: BaseException | None) -> None:
        if error is None:
            self._fill()
        elif isinstance(error, sqlite3.Error) and is_locked(error):
            # `_fail_overdue` has failed the batches that timed out. Later ones have time left, and retry.
            self._loop.call_soon(self._next)
        else:
            self._finish(self._take()[0], None, error)

    def _take(self) -> tuple[list[Batch], bool]:
        """The batches of the next group, and whether it runs in the worker."""
        group: list[Batch] = []
        commands, heavy, queue = 0, False, self._queue
        while queue and (not group or commands + queue[0].commands <= GROUP_COMMANDS):
            batch = queue.popleft()
            if batch.future.done():
                self._drop(batch)
                continue
            group.append(batch)
            commands += batch.commands
            heavy = heavy or batch.heavy
            if self._alone:
                self._alone -= 1
                break
        return group, heavy or commands > INLINE_COMMANDS

    def _fill(self) -> None:
        group, heavy = self._take()
        self._group = group
        if heavy:
            for batch in group:
                batch.started = (
                    True  # not in the worker: `_fail_overdue` must not report a starting batch as "not-sent"
                )
            self._worker.submit(
                lambda: self._commit(self._run(group)), lambda results, error: self._finish(group, results, error)
            )
            return
        try:
            results = self._run(group)
        except Exception as error:
            self._finish(group, None, error)
            return
        wait_s = 2 * self._commit_s
        job = self._worker.submit(
            lambda: self._timed_commit(results),
            lambda done, error: self._finish(group, done, error),
            is_held=wait_s < LONGEST_WAIT_S,
        )
        if wait_s < LONGEST_WAIT_S:
            self._loop.call_soon(self._wait_if_quiet, job, self._now(), QUIET_TURNS)

    def _wait_if_quiet(self, job: WorkerJob, since: float, turns: int) -> None:
        """Wait for a commit after some turns of the loop, unless others had work to do in them."""
        if turns > 1:
            self._loop.call_soon(self._wait_if_quiet, job, since, turns - 1)
        else:
            is_quiet = not self._ready and self._now() - since < QUIET_S
            job.finish_within(LONGEST_WAIT_S if is_quiet else 0)

    def _run(self, group: list[Batch]) -> list[Any]:
        """Do the work of each batch; a CommandError is the result of that batch and of no other."""
        results: list[Any] = []
        works = []
        for batch in group:
            batch.started = True
            works.append(batch.work)
        while (start := len(results)) < len(group):
            changes = self._interpreter.changes(works, start) if type(works[start]) is list else ()
            if len(changes) > 1 and self._interpreter.change(changes):
                results += [[b"OK"] for _ in changes]
            else:
                results += map(self._result, group[start : start + (len(changes) or 1)])
        self._interpreter.flush()
        return results

    def _result(self, batch: Batch) -> Any:
        work = batch.work
        try:
            if batch.future.done():
                return None
            return self._interpreter.replies(work) if isinstance(work, list) else work()
        except CommandError as error:
            return error

    def _timed_commit(self, results: list[Any]) -> list[Any]:
        began = time.perf_counter()
        self._commit(results)
        # One slow commit does not matter, several do.
        self._commit_s += (min(time.perf_counter() - began, 2 * LONGEST_WAIT_S) - self._commit_s) / 8
        return results

    def _commit(self, results: list[Any]) -> list[Any]:
        self._connection.execute("COMMIT")
        return results

    def _finish(self, group: list[Batch], results: list[Any] | None, error: BaseException | None) -> None:
        if error is not None or results is None:
            self._roll_back(group, error or RuntimeError("the group has no results"))
        else:
            for batch, result in zip(group, results, strict=True):
                future = batch.future
                if not future.done():
                    if type(result) is not list and isinstance(result, KeysteadError):
                        future.set_exception(result)
                    else:
                        future.set_result(result)
            self._after_commit()
        self._group = ()
        # After the tasks that wake now have had their turn, so that their next writes join the next group.
        self._loop.call_soon(self._next)

    def _roll_back(self, group: list[Batch], error: BaseException) -> None:
        self._interpreter.forget()
        if self._connection.in_transaction:
            with suppress(sqlite3.Error):  # it was rolled back already
                self._connection.execute("ROLLBACK")
        if len(group) > 1 and not (isinstance(error, sqlite3.Error) and is_locked(error)):
            # Nothing took effect. One batch may be at fault: each gets a separate group.
            self._queue.extendleft(reversed(group))
            self._alone += len(group)
            return
        for batch in group:
            _fail(batch.future, explain_error(error, self._path))

    # --- deadlines -----------------------------------------------------------------------------------------

    def _drop(self, batch: Batch) -> None:
        """Account for a batch whose caller has left."""
        if self._alone:
            self._alone -= 1

    def _fail_overdue(self) -> None:
        """Fail the batches whose deadline has passed, and set the timer for the next."""
        now = self._now()
        self._timer = None
        for batch in chain(self._group, self._queue):  # in the order of their deadlines
            if batch.future.done():
                continue
            if batch.deadline > now:
                self._timer = self._loop.call_at(batch.deadline, self._fail_overdue)
                return
            _fail(
                batch.future,
                StoreUnavailable(
                    f"{self._path} did not complete a write within {self._timeout:g} s;"
                    " its disk is slow, or another process holds its lock",
                    "unknown" if batch.started else "not-sent",
                ),
            )


class InlineCommit:
    """The commits of a store in memory: they take no time, so work runs immediately.

    Nothing here ever waits, so every few calls the reply comes one turn later: a loop that writes must not block
    others.
    """

    def __init__(
        self, connection: sqlite3.Connection, interpreter: SqliteInterpreter, *, after_commit: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._interpreter = interpreter
        self._after_commit = after_commit
        self._loop = asyncio.get_running_loop()
        self._calls = 0
        self.waiting = 0
        self.busy = False

    def submit(self, work: Work, *, heavy: bool = False) -> asyncio.Future[Any]:
        """See `GroupCommit.submit`."""
        future: asyncio.Future[Any] = self._loop.create_future()
        try:
            result = self._do(work)
        except Exception as error:
            future.set_exception(error)
            return future
        self._calls += 1
        if self._calls % CALLS_A_TURN:
            future.set_result(result)
        else:
            self._loop.call_soon(_answer, future, result)
        return future

    def run_between_groups(self, job: Callable[[], Any]) -> asyncio.Future[Any]:
        """See `GroupCommit.between`."""
        future: asyncio.Future[Any] = self._loop.create_future()
        future.set_result(job())
        return future

    async def close(self) -> None:
        """Nothing is ever in progress."""

    def _do(self, work: Work) -> Any:
        self._connection.execute("BEGIN")
        try:
            result = self._interpreter.replies(work) if isinstance(work, list) else work()
            self._interpreter.flush()
        except BaseException as error:
            self._interpreter.forget()
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise explain_error(error, "memory://") from None
        self._connection.execute("COMMIT")
        self._after_commit()
        return result


def explain_error(error: BaseException, path: str) -> BaseException:
    """Convert an error of the driver; return any other unchanged."""
    return explain(error, path) if isinstance(error, sqlite3.Error | OverflowError) else error


def _answer(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
