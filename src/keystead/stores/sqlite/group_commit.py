"""The one lane all writes of a process go through, in groups that share a commit.

Commands run in the event loop's own thread: they take microseconds, and a thread that ran them would have to
win Python's lock back after each statement, which under load costs milliseconds each time. What takes long, the
commit with its sync to disk, is done by a worker thread. What arrives meanwhile forms the next group.
"""

from __future__ import annotations

import asyncio
import random
import sqlite3
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain, islice
from typing import Any, TypeAlias

from keystead.errors import CommandError, KeysteadError, StoreClosed, StoreUnavailable
from keystead.stores.commands import Call
from keystead.stores.sqlite.database_file import explain, is_locked
from keystead.stores.sqlite.sqlite_interpreter import SqliteInterpreter
from keystead.stores.worker_thread import WorkerThread

GROUP_COMMANDS = 1_000  # a group holds no more than this, unless one batch alone does
CALLS_A_TURN = 32  # calls in a row that need not wait, after which other tasks get a turn
INLINE_COMMANDS = 200  # a larger group runs in the worker, so that the event loop goes on


# Calls, whose result is their replies; or anything else that is to be done in the transaction, and returns its result.
Work: TypeAlias = list[Call] | Callable[[], Any]


class Batch:
    """Work that is to take effect as a whole, and whoever waits for it."""

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
        beginning: Callable[[], None],
        committed: Callable[[], None],
    ) -> None:
        self._connection = connection
        self._interpreter = interpreter
        self._beginning = beginning
        self._committed = committed
        self._path = path
        self._worker = worker
        self._loop = loop
        self._now = loop.time
        self._timeout = timeout
        self._queue: deque[Batch] = deque()
        self._between: deque[tuple[Callable[[], Any], asyncio.Future[Any]]] = deque()
        self._group: Sequence[Batch] = ()  # under way; what waits in the queue came later
        self._timer: asyncio.TimerHandle | None = None
        self._busy = False
        self._closed = False
        self._alone = 0  # how many batches at the head run each in a group of its own
        self._idle: asyncio.Future[None] | None = None

    @property
    def waiting(self) -> int:
        """How many batches wait for their turn."""
        return len(self._queue)

    @property
    def busy(self) -> bool:
        """Whether a group, or something between two, is under way."""
        return self._busy

    def submit(self, work: Work, *, heavy: bool = False) -> asyncio.Future[Any]:
        """Run `work` inside a write transaction. The future ends when its commit is on disk.

        `heavy` work runs in the worker thread. Work whose future is done before its turn is not run.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        if self._closed:
            future.set_exception(StoreClosed("the store is closed"))
            return future
        deadline = self._now() + self._timeout
        self._queue.append(Batch(work, heavy, future, deadline))
        if self._timer is None:
            self._timer = self._loop.call_at(deadline, self._overdue)
        if not self._busy:
            self._busy = True
            # One turn later, so that all tasks that are ready now come into this group.
            self._loop.call_soon(self._next)
        return future

    def between(self, job: Callable[[], Any]) -> asyncio.Future[Any]:
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
        """Refuse new work, end what waits with an error, and wait for the commit under way."""
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
                # Where the disk hangs, nobody waits for it: not who wrote, and not the process.
                for batch in self._group:
                    _fail(batch.future, StoreUnavailable("the store was closed while this was written", "unknown"))

    # --- one group after another ---------------------------------------------------------------------------

    def _next(self) -> None:
        while self._queue and self._queue[0].future.done():
            self._drop(self._queue.popleft())
        if self._between and not self._alone:
            job, future = self._between.popleft()
            self._worker.submit(job, lambda result, error: self._did_between(future, result, error))
        elif self._queue:
            self._beginning()
            try:
                self._connection.execute("BEGIN IMMEDIATE")
            except Exception as error:
                if is_locked(error):
                    self._worker.submit(self._wait_for_lock, self._locked)
                else:
                    self._finish(self._take()[0], None, error)
            else:
                self._fill()
        else:
            self._busy = False
            if self._idle is not None and not self._idle.done():
                self._idle.set_result(None)

    def _did_between(self, future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
        if not future.done():
            if error is None:
                future.set_result(result)
            else:
                future.set_exception(error)
        self._loop.call_soon(self._next)

    def _wait_for_lock(self) -> None:
        """In the worker. SQLite's own waiting backs off to a tenth of a second; a group is over far sooner."""
        end = time.monotonic() + self._timeout
        pause = 0.0002
        while True:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.Error as error:
                if not is_locked(error) or time.monotonic() > end or self._closed:
                    raise
            time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311 - spreads processes apart, guards nothing
            pause = min(pause * 1.5, 0.005)

    def _locked(self, result: None, error: BaseException | None) -> None:
        if error is None:
            self._fill()
        elif isinstance(error, sqlite3.Error) and is_locked(error):
            # Whose time is up was told so by `_overdue`. Whoever came later has time left, and tries on.
            self._loop.call_soon(self._next)
        else:
            self._finish(self._take()[0], None, error)

    def _take(self) -> tuple[list[Batch], bool]:
        """The batches of the next group, and whether it is one for the worker."""
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
                batch.started = True  # here, not there: `_overdue` must not say "not-sent" of what begins that moment
            self._worker.submit(
                lambda: self._commit(self._run(group)), lambda results, error: self._finish(group, results, error)
            )
            return
        try:
            results = self._run(group)
        except Exception as error:
            self._finish(group, None, error)
            return
        self._worker.submit(lambda: self._commit(results), lambda done, error: self._finish(group, done, error))

    def _run(self, group: list[Batch]) -> list[Any]:
        """Do the work of each batch; a CommandError is the result of that batch and of no other."""
        results: list[Any] = []
        works = []
        for batch in group:
            batch.started = True
            works.append(batch.work)
        while (start := len(results)) < len(group):
            changes = self._interpreter.changes(islice(works, start, None))
            if len(changes) > 1 and self._interpreter.change(changes):
                results += [[b"OK"] for _ in changes]
            else:
                results += map(self._result, group[start : start + max(len(changes), 1)])
        return results

    def _result(self, batch: Batch) -> Any:
        work = batch.work
        try:
            if batch.future.done():
                return None
            return self._interpreter.replies(work) if isinstance(work, list) else work()
        except CommandError as error:
            return error

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
            self._committed()
        self._group = ()
        # After the tasks that wake now have had their turn: what they write next comes into the next group.
        self._loop.call_soon(self._next)

    def _roll_back(self, group: list[Batch], error: BaseException) -> None:
        if self._connection.in_transaction:
            with suppress(sqlite3.Error):  # otherwise it was rolled back already
                self._connection.execute("ROLLBACK")
        if len(group) > 1 and not (isinstance(error, sqlite3.Error) and is_locked(error)):
            # Nothing of the group took effect. One batch may be at fault: each gets a group of its own.
            self._queue.extendleft(reversed(group))
            self._alone += len(group)
            return
        for batch in group:
            _fail(batch.future, explained(error, self._path))

    # --- deadlines -----------------------------------------------------------------------------------------

    def _drop(self, batch: Batch) -> None:
        """Forget a batch that nobody waits for any more."""
        if self._alone:
            self._alone -= 1

    def _overdue(self) -> None:
        """End the waiting of whoever has waited for too long, and set the clock for the next."""
        now = self._now()
        self._timer = None
        for batch in chain(self._group, self._queue):  # in the order of their deadlines
            if batch.future.done():
                continue
            if batch.deadline > now:
                self._timer = self._loop.call_at(batch.deadline, self._overdue)
                return
            _fail(
                batch.future,
                StoreUnavailable(
                    f"{self._path} did not take a write within {self._timeout:g} s;"
                    " its disk is slow or another process holds it",
                    "unknown" if batch.started else "not-sent",
                ),
            )


class InlineCommit:
    """The lane of a store in memory: there a commit takes no time, so work is done where it is asked for.

    Nothing here ever waits, so every few calls the answer comes a turn later: a loop that writes lets others run.
    """

    def __init__(
        self, connection: sqlite3.Connection, interpreter: SqliteInterpreter, *, committed: Callable[[], None]
    ) -> None:
        self._connection = connection
        self._interpreter = interpreter
        self._committed = committed
        self._loop = asyncio.get_running_loop()
        self._calls = 0
        self.waiting = 0
        self.busy = False

    def submit(self, work: Work, *, heavy: bool = False) -> asyncio.Future[Any]:
        """As `GroupCommit.submit`."""
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

    def between(self, job: Callable[[], Any]) -> asyncio.Future[Any]:
        """As `GroupCommit.between`."""
        future: asyncio.Future[Any] = self._loop.create_future()
        future.set_result(job())
        return future

    async def close(self) -> None:
        """Nothing is ever under way."""

    def _do(self, work: Work) -> Any:
        self._connection.execute("BEGIN")
        try:
            result = self._interpreter.replies(work) if isinstance(work, list) else work()
        except CommandError:  # had no effect
            self._connection.execute("COMMIT")
            raise
        except BaseException as error:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise explained(error, "memory://") from None
        self._connection.execute("COMMIT")
        self._committed()
        return result


def explained(error: BaseException, path: str) -> BaseException:
    """An error of the driver as one of Keystead's; any other as it is."""
    return explain(error, path) if isinstance(error, sqlite3.Error | OverflowError) else error


def _answer(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
